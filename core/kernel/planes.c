/* [kernel] activations to integers: per 32 values, s = max |x| / 127 (one plane) or / 32639 (two:
 * the largest 256 * high + low of bytes), q = round(x / s), halves to even. */
#include "core/kernel/planes.h"

#include "core/kernel/cpu.h"
#include "core/kernel/simd.h"

#include <math.h>
#include <string.h>

/* Steps from 0 to the greatest |x|. */
#define STEPS_8  127.0F
#define STEPS_16 32639.0F

struct planes planes_layout(uint32_t n_rows, uint32_t n_in, uint32_t n_planes, uint8_t *rows)
{
    struct planes p = {.rows = rows, .n_rows = n_rows, .n_planes = n_planes};
    p.n_tiles = n_rows / PLANES_TILE + (n_rows % PLANES_TILE != 0);
    p.n_blocks = n_in / PLANES_BLOCK + (n_in % PLANES_BLOCK != 0);
    p.row_bytes = planes_record(1, n_planes).n_bytes * p.n_blocks;
    return p;
}

/* The greatest |x| as bits: these are ordered as the values are, and NaN is above all. */
static uint32_t greatest(const float *x)
{
    int32_t most = 0;
    for (int i = 0; i < PLANES_BLOCK; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* Adding 1.5 * 2^23 rounds |v| < 2^22 to an integer, halves to even, and leaves it in the low bits:
 * the same at every CPU level. */
static inline int32_t rounded(float v)
{
    int32_t bits;
    v += 0x1.8p23F;
    memcpy(&bits, &v, sizeof(bits));
    return bits - 0x4b400000;
}

/* The codes of one block, and their sums over 16. */
static void codes_of(const float *x, float inverse, const int n_planes, int8_t *high, int8_t *low,
                     int32_t sum[2])
{
    int32_t q[PLANES_BLOCK], h[PLANES_BLOCK], l[PLANES_BLOCK];
    for (int i = 0; i < PLANES_BLOCK; i++)
        q[i] = rounded(x[i] * inverse);
    for (int i = 0; i < PLANES_BLOCK; i++) { /* 256 high + low, low in [-128, 127] */
        h[i] = n_planes == 1 ? q[i] : (q[i] + 128) >> 8;
        l[i] = q[i] - 256 * h[i];
    }
    sum[0] = sum[1] = 0;
    for (int i = 0; i < 16; i++) {
        sum[0] += q[i];
        sum[1] += q[i + 16];
    }
    for (int i = 0; i < PLANES_BLOCK; i++)
        high[i] = (int8_t)h[i];
    for (int i = 0; i < PLANES_BLOCK && n_planes == 2; i++)
        low[i] = (int8_t)l[i];
}

/* Scale and 1 / scale of a block; x of a block that is not finite counts as zeros. */
struct block_scale {
    float scale, inverse;
};
static const float zeros[PLANES_BLOCK];

static inline struct block_scale scale_of(uint32_t most, float steps, const float **x)
{
    float top;
    memcpy(&top, &most, sizeof(top));
    if (most >= 0x7f800000) { /* infinite or NaN: so will be the products */
        *x = zeros;
        return (struct block_scale){NAN, 0};
    }
    if (top < 0x1p-100F) /* too small for steps / top */
        return (struct block_scale){0, 0};
    return (struct block_scale){top / steps, steps / top};
}

/* Where one row of a block is written. */
struct place {
    uint8_t *record; /* of its tile */
    size_t mt, t;    /* rows in the tile, this row */
    int8_t *high, *low;
};

/* What stands beside the codes. */
static inline void put_sums(const struct place *to, float scale, const int n_planes,
                            const int32_t sum[2])
{
    struct planes_record r = planes_record(to->mt, (size_t)n_planes);
    const int32_t magic = n_planes == 1 ? PLANES_MAGIC : 0;
    const int32_t start = magic - 128 * (sum[0] + sum[1]);
    const int32_t halves[2] = {magic - 128 * sum[0], magic - 128 * sum[1]};
    const float product = scale * (float)(sum[0] + sum[1]);
    uint8_t *at = to->record + to->t * 4;
    memcpy(at + r.scale, &scale, sizeof(scale));
    memcpy(at + r.sum, &product, sizeof(product));
    memcpy(at + r.start, &start, sizeof(start));
    memcpy(at + r.halves, &halves[0], sizeof(start));
    memcpy(at + r.halves + 4 * to->mt, &halves[1], sizeof(start));
}

/* n blocks of x to the records from `to` on, in one body for each level and number of planes. */
#define ROW_LOOP(block, n_planes)                                                                  \
    for (; n--; x += PLANES_BLOCK) {                                                               \
        to.high = (int8_t *)to.record + PLANES_BLOCK * to.t;                                       \
        to.low = to.high + PLANES_BLOCK * to.mt;                                                   \
        block(&to, n_planes, x);                                                                   \
        to.record += planes_record(to.mt, n_planes).n_bytes;                                       \
    }

static inline void block_scalar(const struct place *to, const int n_planes, const float *x)
{
    int32_t sum[2];
    struct block_scale s = scale_of(greatest(x), n_planes == 1 ? STEPS_8 : STEPS_16, &x);
    codes_of(x, s.inverse, n_planes, to->high, to->low, sum);
    put_sums(to, s.scale, n_planes, sum);
}

static void row_scalar(struct place to, int n_planes, const float *x, uint32_t n)
{
    if (n_planes == 1)
        ROW_LOOP(block_scalar, 1)
    else
        ROW_LOOP(block_scalar, 2)
}

#if defined(__x86_64__)
SIMD_INLINE TARGET_AVX2 uint32_t greatest_avx2(const float *x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < PLANES_BLOCK; i += 8) {
        __m256i bits = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), mask);
        most = _mm256_max_epi32(most, bits);
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* 32 integers that fit in bytes. */
SIMD_INLINE TARGET_AVX2 void put_bytes(const __m256i q[4], int8_t *to)
{
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)to, bytes);
}

/* Sums of the first and the last 16 of 32 integers. */
SIMD_INLINE TARGET_AVX2 void sums_of(const __m256i q[4], int32_t sum[2])
{
    __m256i s = _mm256_hadd_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    __m128i both = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    both = _mm_hadd_epi32(both, both);
    _mm_storel_epi64((__m128i *)(void *)sum, both);
}

SIMD_INLINE TARGET_AVX2 void block_avx2(const struct place *to, const int n_planes, const float *x)
{
    int32_t sum[2];
    struct block_scale s = scale_of(greatest_avx2(x), n_planes == 1 ? STEPS_8 : STEPS_16, &x);
    const __m256 inverse = _mm256_set1_ps(s.inverse), magic = _mm256_set1_ps(0x1.8p23F);
    __m256i q[4], h[4];
    for (int i = 0; i < 4; i++) {
        __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + (size_t)8 * i), inverse), magic);
        q[i] = _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_castps_si256(magic));
        h[i] = _mm256_srai_epi32(_mm256_add_epi32(q[i], _mm256_set1_epi32(128)), 8);
    }
    sums_of(q, sum);
    if (n_planes == 1) {
        put_bytes(q, to->high);
    } else {
        put_bytes(h, to->high);
        for (int i = 0; i < 4; i++)
            q[i] = _mm256_sub_epi32(q[i], _mm256_slli_epi32(h[i], 8));
        put_bytes(q, to->low);
    }
    put_sums(to, s.scale, n_planes, sum);
}

TARGET_AVX2 static void row_avx2(struct place to, int n_planes, const float *x, uint32_t n)
{
    if (n_planes == 1)
        ROW_LOOP(block_avx2, 1)
    else
        ROW_LOOP(block_avx2, 2)
}
#endif

typedef void row_fn(struct place to, int n_planes, const float *x, uint32_t n);

void planes_quantise_part(const struct planes *p, const struct planes_part *part)
{
    uint32_t tile = planes_tile_of(p, part->row), next = planes_tile(p, tile + 1);
    uint32_t n_whole = part->n / PLANES_BLOCK, rest = part->n % PLANES_BLOCK;
    const float *x = part->x;
    struct place to = {.t = part->row - planes_tile(p, tile)};
    row_fn *quantise = row_scalar;
#if defined(__x86_64__)
    if (cpu_level() != CPU_SCALAR)
        quantise = row_avx2;
#endif
    for (uint32_t r = part->row; r < part->row + part->n_rows; r++, to.t++, x += part->stride) {
        if (r == next) {
            next = planes_tile(p, ++tile + 1);
            to.t = 0;
        }
        to.mt = next - r + to.t;
        size_t n_bytes = planes_record(to.mt, p->n_planes).n_bytes;
        to.record = planes_at(p, tile) + part->k / PLANES_BLOCK * n_bytes;
        quantise(to, (int)p->n_planes, x, n_whole);
        if (rest) {
            float last[PLANES_BLOCK] = {0};
            memcpy(last, x + (size_t)n_whole * PLANES_BLOCK, rest * sizeof(float));
            to.record += n_whole * n_bytes;
            quantise(to, (int)p->n_planes, last, 1);
        }
    }
}

void planes_quantise(const struct planes *p, uint32_t row, const float *x, uint32_t n_in)
{
    struct planes_part part = {.x = x, .row = row, .n_rows = 1, .n = n_in};
    planes_quantise_part(p, &part);
}
