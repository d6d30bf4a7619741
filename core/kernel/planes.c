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
    p.row_bytes = planes_record(1).n_bytes * n_planes * p.n_blocks;
    return p;
}

float planes_scale(float value) { return 256 * (value / STEPS_16); }

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
    v += PLANES_MAGIC_FLOAT;
    memcpy(&bits, &v, sizeof(bits));
    return bits - PLANES_MAGIC;
}

/* The codes of one block, and of each plane their sums over 16. */
static void codes_of(const float *x, float inverse, const int n_planes, int8_t *const codes[2],
                     int32_t sum[2][2])
{
    int32_t q[2][PLANES_BLOCK];
    for (int i = 0; i < PLANES_BLOCK; i++)
        q[0][i] = q[1][i] = rounded(x[i] * inverse);
    for (int i = 0; i < PLANES_BLOCK && n_planes == 2; i++) {
        /* 256 high + low, low in [-128, 127] */
        q[0][i] = (q[0][i] + 128) >> 8;
        q[1][i] -= 256 * q[0][i];
    }
    for (int plane = 0; plane < n_planes; plane++) {
        sum[plane][0] = sum[plane][1] = 0;
        for (int i = 0; i < PLANES_BLOCK; i++) {
            sum[plane][i / 16] += q[plane][i];
            codes[plane][i] = (int8_t)q[plane][i];
        }
    }
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
    uint8_t *record; /* of its tile, of the first plane */
    size_t to_low;   /* bytes to that of the second */
    size_t mt, t;    /* rows in the tile, this row */
    int8_t *codes[2];
};

/* What a plane's scale is multiplied by: x = s (256 high + low). */
static inline float plane_unit(const int n_planes, const int plane)
{
    return n_planes == 2 && plane == 0 ? 256 : 1;
}

/* What stands beside the codes. */
static inline void put_sums(const struct place *to, float scale, const int n_planes,
                            int32_t sum[2][2])
{
    const struct planes_record r = planes_record(to->mt);
    uint8_t *at = to->record + to->t * 4;
    for (int plane = 0; plane < n_planes; plane++, at += to->to_low) {
        const int32_t *half = sum[plane], both = half[0] + half[1];
        const float unit = plane_unit(n_planes, plane) * scale, product = unit * (float)both;
        const int32_t start = PLANES_MAGIC - 128 * both;
        const int32_t halves[2] = {PLANES_MAGIC - 128 * half[0], PLANES_MAGIC - 128 * half[1]};
        memcpy(at + r.scale, &unit, sizeof(unit));
        memcpy(at + r.sum, &product, sizeof(product));
        memcpy(at + r.start, &start, sizeof(start));
        memcpy(at + r.halves, &halves[0], sizeof(start));
        memcpy(at + r.halves + 4 * to->mt, &halves[1], sizeof(start));
    }
}

/* n_blocks of n_rows of x, all of one tile, whose first is row t of mt. */
struct piece {
    uint8_t *record; /* of the first block */
    size_t to_low;
    size_t mt, t;
    const float *x;
    size_t stride;
    uint32_t n_rows, n_blocks;
};

/* A piece block by block, in one body for each level and number of planes. */
#define EACH_BLOCK(block, n_planes, piece)                                                         \
    for (uint32_t r = 0; r < (piece)->n_rows; r++) {                                               \
        struct place to = {.record = (piece)->record,                                              \
                           .to_low = (piece)->to_low,                                              \
                           .mt = (piece)->mt,                                                      \
                           .t = (piece)->t + r};                                                   \
        const float *x = (piece)->x + r * (piece)->stride;                                         \
        for (uint32_t i = 0; i < (piece)->n_blocks; i++, x += PLANES_BLOCK) {                      \
            to.codes[0] = (int8_t *)to.record + PLANES_BLOCK * to.t;                               \
            to.codes[1] = to.codes[0] + to.to_low;                                                 \
            block(&to, n_planes, x);                                                               \
            to.record += planes_record(to.mt).n_bytes;                                             \
        }                                                                                          \
    }

static inline void block_scalar(const struct place *to, const int n_planes, const float *x)
{
    int32_t sum[2][2];
    struct block_scale s = scale_of(greatest(x), n_planes == 1 ? STEPS_8 : STEPS_16, &x);
    codes_of(x, s.inverse, n_planes, to->codes, sum);
    put_sums(to, s.scale, n_planes, sum);
}

static void piece_scalar(int n_planes, const struct piece *piece)
{
    if (n_planes == 1)
        EACH_BLOCK(block_scalar, 1, piece)
    else
        EACH_BLOCK(block_scalar, 2, piece)
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
    int32_t sum[2][2];
    struct block_scale s = scale_of(greatest_avx2(x), n_planes == 1 ? STEPS_8 : STEPS_16, &x);
    const __m256 inverse = _mm256_set1_ps(s.inverse), magic = _mm256_set1_ps(PLANES_MAGIC_FLOAT);
    __m256i q[4], h[4];
    for (int i = 0; i < 4; i++) {
        __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + (size_t)8 * i), inverse), magic);
        q[i] = _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_castps_si256(magic));
        h[i] = _mm256_srai_epi32(_mm256_add_epi32(q[i], _mm256_set1_epi32(128)), 8);
    }
    for (int i = 0; i < 4 && n_planes == 2; i++)
        q[i] = _mm256_sub_epi32(q[i], _mm256_slli_epi32(h[i], 8));
    put_bytes(n_planes == 2 ? h : q, to->codes[0]);
    sums_of(n_planes == 2 ? h : q, sum[0]);
    if (n_planes == 2) {
        put_bytes(q, to->codes[1]);
        sums_of(q, sum[1]);
    }
    put_sums(to, s.scale, n_planes, sum);
}

TARGET_AVX2 static void piece_avx2(int n_planes, const struct piece *piece)
{
    if (n_planes == 1)
        EACH_BLOCK(block_avx2, 1, piece)
    else
        EACH_BLOCK(block_avx2, 2, piece)
}

/* One block of n rows at once: rows become lanes, so that what stands once for a row is computed
 * for all of them. */
enum { LANES = 8 };

/* Of each row its greatest |x| as bits. */
SIMD_INLINE TARGET_AVX512 __m256i greatest_avx512(const float *x, size_t stride, const size_t n)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m256i m[LANES], pair[4], four[2];
    SIMD_UNROLL for (size_t t = 0; t < LANES; t++)
    {
        if (t >= n) {
            m[t] = _mm256_setzero_si256();
            continue;
        }
        __m512i lo = _mm512_and_si512(_mm512_loadu_si512(x + t * stride), mask);
        __m512i hi = _mm512_and_si512(_mm512_loadu_si512(x + t * stride + 16), mask);
        lo = _mm512_max_epi32(lo, hi);
        m[t] = _mm256_max_epi32(_mm512_castsi512_si256(lo), _mm512_extracti64x4_epi64(lo, 1));
    }
    SIMD_UNROLL for (size_t i = 0; i < 4; i++) pair[i] =
        _mm256_max_epi32(_mm256_unpacklo_epi32(m[2 * i], m[2 * i + 1]),
                         _mm256_unpackhi_epi32(m[2 * i], m[2 * i + 1]));
    SIMD_UNROLL for (size_t i = 0; i < 2; i++) four[i] =
        _mm256_max_epi32(_mm256_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                         _mm256_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
    return _mm256_max_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                            _mm256_permute2x128_si256(four[0], four[1], 0x31));
}

/* The codes of a row, 128 larger: [32] of the low plane (or the only one), then [32] of the high
 * one. The rounding constant carries both 128: bytes 0 and 1 of a value are its codes. */
SIMD_INLINE TARGET_AVX512 __m512i codes_avx512(const float *x, float inverse, const int n_planes)
{
    const __m512 by = _mm512_set1_ps(inverse);
    const __m512 magic = _mm512_set1_ps(0x1.8p23F + (n_planes == 1 ? 0x80p0F : 0x8080p0F));
    const __m512i bytes = _mm512_set4_epi32(-1, -1, 0x0d090501, 0x0c080400);
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    __m512 lo = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x), by), magic);
    __m512 hi = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x + 16), by), magic);
    return _mm512_permutex2var_epi32(_mm512_shuffle_epi8(_mm512_castps_si512(lo), bytes), order,
                                     _mm512_shuffle_epi8(_mm512_castps_si512(hi), bytes));
}

/* halves[plane][i]: of each row the sum of the codes of the first and of the last 16 values. */
SIMD_INLINE TARGET_AVX512 void halves_avx512(const __m512i codes[LANES], const int n_planes,
                                             __m256i halves[2][2])
{
    __m512i sum[LANES], pair[4], four[2];
    SIMD_UNROLL for (size_t t = 0; t < LANES; t++) sum[t] =
        _mm512_sad_epu8(codes[t], _mm512_setzero_si512());
    SIMD_UNROLL for (size_t i = 0; i < 4; i++) pair[i] =
        _mm512_add_epi64(_mm512_unpacklo_epi64(sum[2 * i], sum[2 * i + 1]),
                         _mm512_unpackhi_epi64(sum[2 * i], sum[2 * i + 1]));
    SIMD_UNROLL for (size_t i = 0; i < 2; i++) four[i] = _mm512_castps_si512(_mm512_shuffle_ps(
        _mm512_castsi512_ps(pair[2 * i]), _mm512_castsi512_ps(pair[2 * i + 1]), 0x88));
    /* four: rows 0 to 3 and 4 to 7, first halves, last halves; lower: of the low or only plane */
    SIMD_UNROLL for (int plane = 0; plane < n_planes; plane++)
    {
        __m256i both[2];
        SIMD_UNROLL for (size_t i = 0; i < 2; i++) both[i] =
            _mm256_sub_epi32(plane + 1 == n_planes ? _mm512_castsi512_si256(four[i])
                                                   : _mm512_extracti64x4_epi64(four[i], 1),
                             _mm256_set1_epi32(16 * 0x80));
        halves[plane][0] = _mm256_permute2x128_si256(both[0], both[1], 0x20);
        halves[plane][1] = _mm256_permute2x128_si256(both[0], both[1], 0x31);
    }
}

SIMD_INLINE TARGET_AVX512 void put_lanes(uint8_t *to, __m256i v, const size_t n)
{
    int32_t lanes[LANES];
    _mm256_storeu_si256((__m256i *)(void *)lanes, v);
    memcpy(to, lanes, n * sizeof(*lanes));
}

/* What stands beside the codes, from row t on. */
SIMD_INLINE TARGET_AVX512 void put_sums_avx512(const struct piece *piece, uint8_t *record,
                                               __m256 scale, const __m256i halves[2][2],
                                               const int n_planes, const size_t n)
{
    const size_t mt = piece->mt;
    const struct planes_record r = planes_record(mt);
    const __m256i magic = _mm256_set1_epi32(PLANES_MAGIC);
    uint8_t *at = record + piece->t * 4;
    SIMD_UNROLL for (int plane = 0; plane < n_planes; plane++, at += piece->to_low)
    {
        const __m256 unit = _mm256_mul_ps(scale, _mm256_set1_ps(plane_unit(n_planes, plane)));
        const __m256i *half = halves[plane], sum = _mm256_add_epi32(half[0], half[1]);
        const __m256 product = _mm256_mul_ps(unit, _mm256_cvtepi32_ps(sum));
        put_lanes(at + r.scale, _mm256_castps_si256(unit), n);
        put_lanes(at + r.sum, _mm256_castps_si256(product), n);
        put_lanes(at + r.start, _mm256_sub_epi32(magic, _mm256_slli_epi32(sum, 7)), n);
        put_lanes(at + r.halves, _mm256_sub_epi32(magic, _mm256_slli_epi32(half[0], 7)), n);
        put_lanes(at + r.halves + 4 * mt, _mm256_sub_epi32(magic, _mm256_slli_epi32(half[1], 7)),
                  n);
    }
}

SIMD_INLINE TARGET_AVX512 void block_avx512(const struct piece *piece, uint8_t *record,
                                            const float *x, const int n_planes, const size_t n)
{
    const __m256i most = greatest_avx512(x, piece->stride, n);
    const __m256 top = _mm256_castsi256_ps(most);
    if (_mm256_cmpge_epi32_mask(most, _mm256_set1_epi32(0x7f800000))) { /* not finite: seldom */
        struct piece one = *piece;
        one.record = record;
        one.x = x;
        one.n_blocks = 1;
        piece_scalar(n_planes, &one);
        return;
    }
    const __m256 steps = _mm256_set1_ps(n_planes == 1 ? STEPS_8 : STEPS_16);
    const __mmask8 large = _mm256_cmp_ps_mask(top, _mm256_set1_ps(0x1p-100F), _CMP_GE_OQ);
    float inverse[LANES];
    _mm256_storeu_ps(inverse, _mm256_maskz_div_ps(large, steps, top));
    __m512i codes[LANES];
    SIMD_UNROLL for (size_t t = 0; t < LANES; t++)
    {
        codes[t] = _mm512_setzero_si512();
        if (t >= n)
            continue;
        codes[t] = codes_avx512(x + t * piece->stride, inverse[t], n_planes);
        __m512i c = _mm512_xor_si512(codes[t], _mm512_set1_epi8((char)0x80));
        uint8_t *high = record + PLANES_BLOCK * (piece->t + t);
        uint8_t *low = n_planes == 1 ? high : high + piece->to_low;
        _mm256_storeu_si256((__m256i *)(void *)low, _mm512_castsi512_si256(c));
        if (n_planes == 2)
            _mm256_storeu_si256((__m256i *)(void *)high, _mm512_extracti64x4_epi64(c, 1));
    }
    __m256i halves[2][2];
    halves_avx512(codes, n_planes, halves);
    const __m256 scale = _mm256_maskz_div_ps(large, top, steps);
    put_sums_avx512(piece, record, scale, halves, n_planes, n);
}

#define ROWS_AVX512(n_planes, n)                                                                   \
    case n:                                                                                        \
        for (uint32_t i = 0; i < piece->n_blocks; i++, record += n_bytes)                          \
            block_avx512(piece, record, piece->x + (size_t)i * PLANES_BLOCK, n_planes, n);         \
        break;
#define PIECE_AVX512(n_planes)                                                                     \
    TARGET_AVX512 static void piece_avx512_##n_planes(const struct piece *piece)                   \
    {                                                                                              \
        const size_t n_bytes = planes_record(piece->mt).n_bytes;                                   \
        uint8_t *record = piece->record;                                                           \
        switch (piece->n_rows) {                                                                   \
            ROWS_AVX512(n_planes, 1)                                                               \
            ROWS_AVX512(n_planes, 2)                                                               \
            ROWS_AVX512(n_planes, 3)                                                               \
            ROWS_AVX512(n_planes, 4)                                                               \
            ROWS_AVX512(n_planes, 5)                                                               \
            ROWS_AVX512(n_planes, 6)                                                               \
            ROWS_AVX512(n_planes, 7)                                                               \
            ROWS_AVX512(n_planes, 8)                                                               \
        }                                                                                          \
    }
PIECE_AVX512(1)
PIECE_AVX512(2)

static void piece_avx512(int n_planes, const struct piece *piece)
{
    if (n_planes == 1)
        piece_avx512_1(piece);
    else
        piece_avx512_2(piece);
}
#endif

typedef void piece_fn(int n_planes, const struct piece *piece);

static void quantise(int n_planes, const struct piece *piece)
{
    static piece_fn *const variants[CPU_LEVELS] = CPU_BY_WIDTH(piece);
    variants[cpu_level()](n_planes, piece);
}

/* The last values of a piece's rows, fewer than a block. */
static void quantise_rest(int n_planes, const struct piece *whole, uint32_t n)
{
    float x[PLANES_TILE][PLANES_BLOCK] = {0};
    struct piece piece = *whole;
    for (uint32_t r = 0; r < piece.n_rows; r++)
        memcpy(x[r], piece.x + r * piece.stride + (size_t)piece.n_blocks * PLANES_BLOCK,
               n * sizeof(**x));
    piece.record += piece.n_blocks * planes_record(piece.mt).n_bytes;
    piece.x = x[0];
    piece.stride = PLANES_BLOCK;
    piece.n_blocks = 1;
    quantise(n_planes, &piece);
}

void planes_quantise(const struct planes *p, const struct planes_part *part)
{
    const uint32_t end = part->row + part->n_rows;
    const uint32_t rest = part->n % PLANES_BLOCK;
    uint32_t tile = planes_tile_of(p, part->row);
    for (uint32_t r = part->row; r < end; tile++) {
        uint32_t first = planes_tile(p, tile), next = planes_tile(p, tile + 1);
        struct piece piece = {.mt = next - first,
                              .t = r - first,
                              .x = part->x + (r - part->row) * part->stride,
                              .stride = part->stride,
                              .n_rows = (next < end ? next : end) - r,
                              .n_blocks = part->n / PLANES_BLOCK};
        piece.to_low = p->n_blocks * planes_record(piece.mt).n_bytes;
        piece.record =
            planes_at(p, tile) + part->k / PLANES_BLOCK * planes_record(piece.mt).n_bytes;
        quantise((int)p->n_planes, &piece);
        if (rest)
            quantise_rest((int)p->n_planes, &piece, rest);
        r += piece.n_rows;
    }
}
