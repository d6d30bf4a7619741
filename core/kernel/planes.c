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

static size_t whole(size_t n) { return (n + 63) / 64 * 64; }

struct planes planes_layout(uint32_t n_in, uint32_t n_planes, uint8_t *rows)
{
    struct planes p = {.rows = rows, .n_planes = n_planes};
    p.n_blocks = n_in / PLANES_BLOCK + (n_in % PLANES_BLOCK != 0);
    size_t n = p.n_blocks;
    p.scale_at = n * PLANES_BLOCK * n_planes;
    p.sum_at = p.scale_at + n * sizeof(float);
    p.minus_at = p.sum_at + n * sizeof(float);
    p.halves_at = p.minus_at + n * n_planes * sizeof(int32_t);
    p.row_bytes = whole(p.halves_at + n * n_planes * 2 * sizeof(int32_t));
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

/* The codes of one block, and minus their sums over 16, for each plane. */
static void codes_of(const float *x, float inverse, const int n_planes, int8_t *high, int8_t *low,
                     int32_t minus[2][2])
{
    int32_t q[PLANES_BLOCK], h[PLANES_BLOCK], l[PLANES_BLOCK];
    for (int i = 0; i < PLANES_BLOCK; i++)
        q[i] = rounded(x[i] * inverse);
    for (int i = 0; i < PLANES_BLOCK; i++) { /* 256 high + low, low in [-128, 127] */
        h[i] = n_planes == 1 ? q[i] : (q[i] + 128) >> 8;
        l[i] = q[i] - 256 * h[i];
    }
    for (int half = 0; half < 2; half++) {
        int32_t sum_h = 0, sum_l = 0;
        for (int i = 16 * half; i < 16 * half + 16; i++) {
            sum_h -= h[i];
            sum_l -= l[i];
        }
        minus[0][half] = sum_h;
        minus[1][half] = sum_l;
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

/* What stands beside the codes of block b. */
static inline void put_sums(const struct planes *p, uint8_t *record, uint32_t b, float scale,
                            const int n_planes, int32_t minus[2][2])
{
    int32_t sum = 0;
    for (int plane = 0; plane < n_planes; plane++) {
        size_t at = (size_t)plane * p->n_blocks + b;
        int32_t both = minus[plane][0] + minus[plane][1];
        memcpy(record + p->halves_at + at * 2 * sizeof(int32_t), minus[plane], sizeof(minus[0]));
        memcpy(record + p->minus_at + at * sizeof(int32_t), &both, sizeof(both));
        sum -= plane + 1 < n_planes ? 256 * both : both;
    }
    float product = scale * (float)sum;
    memcpy(record + p->scale_at + b * sizeof(float), &scale, sizeof(scale));
    memcpy(record + p->sum_at + b * sizeof(float), &product, sizeof(product));
}

static void block_scalar(const struct planes *p, uint8_t *record, uint32_t b, const float *x)
{
    int8_t *high = (int8_t *)record + (size_t)b * PLANES_BLOCK;
    int32_t minus[2][2];
    const int n_planes = (int)p->n_planes;
    struct block_scale s = scale_of(greatest(x), n_planes == 1 ? STEPS_8 : STEPS_16, &x);
    codes_of(x, s.inverse, n_planes, high, high + (size_t)p->n_blocks * PLANES_BLOCK, minus);
    put_sums(p, record, b, s.scale, n_planes, minus);
}

#if defined(__x86_64__)
TARGET_AVX2 static uint32_t greatest_avx2(const float *x)
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

/* 32 integers that fit in bytes, and minus their sums over 16. */
TARGET_AVX2 static void put_bytes(const __m256i q[4], int8_t *to, int32_t minus[2])
{
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)to, bytes);
    __m256i fours =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(-1));
    fours = _mm256_hadd_epi32(fours, fours);
    fours = _mm256_hadd_epi32(fours, fours);
    minus[0] = _mm256_extract_epi32(fours, 0);
    minus[1] = _mm256_extract_epi32(fours, 4);
}

TARGET_AVX2 static void block_avx2(const struct planes *p, uint8_t *record, uint32_t b,
                                   const float *x)
{
    int8_t *high = (int8_t *)record + (size_t)b * PLANES_BLOCK;
    int32_t minus[2][2];
    const int n_planes = (int)p->n_planes;
    struct block_scale s = scale_of(greatest_avx2(x), n_planes == 1 ? STEPS_8 : STEPS_16, &x);
    const __m256 inverse = _mm256_set1_ps(s.inverse), magic = _mm256_set1_ps(0x1.8p23F);
    __m256i q[4], h[4];
    for (int i = 0; i < 4; i++) {
        __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + (size_t)8 * i), inverse), magic);
        q[i] = _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_castps_si256(magic));
        h[i] = _mm256_srai_epi32(_mm256_add_epi32(q[i], _mm256_set1_epi32(128)), 8);
    }
    if (n_planes == 1) {
        put_bytes(q, high, minus[0]);
    } else {
        put_bytes(h, high, minus[0]);
        for (int i = 0; i < 4; i++)
            q[i] = _mm256_sub_epi32(q[i], _mm256_slli_epi32(h[i], 8));
        put_bytes(q, high + (size_t)p->n_blocks * PLANES_BLOCK, minus[1]);
    }
    put_sums(p, record, b, s.scale, n_planes, minus);
}
#endif

typedef void block_fn(const struct planes *p, uint8_t *record, uint32_t b, const float *x);

void planes_quantise(const struct planes *p, uint32_t row, const float *x, uint32_t n_in)
{
    uint8_t *record = p->rows + row * p->row_bytes;
    uint32_t n_whole = n_in / PLANES_BLOCK;
    block_fn *block = block_scalar;
#if defined(__x86_64__)
    if (cpu_level() != CPU_SCALAR)
        block = block_avx2;
#endif
    for (uint32_t b = 0; b < n_whole; b++)
        block(p, record, b, x + (size_t)b * PLANES_BLOCK);
    if (n_whole < p->n_blocks) {
        float last[PLANES_BLOCK] = {0};
        memcpy(last, x + (size_t)n_whole * PLANES_BLOCK, n_in % PLANES_BLOCK * sizeof(float));
        block(p, record, n_whole, last);
    }
}
