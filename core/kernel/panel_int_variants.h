/* [kernel] Integer panels on x86-64: the tiles of panel_int_simd.h at three CPU levels, and the
 * macro that makes a format's functions of them. */
#pragma once

#include "core/kernel/panel_int.h"
#include "core/kernel/simd.h"

#if defined(__x86_64__)

#include <string.h>

enum { CPU_LANES_avx2 = 8, CPU_LANES_avx512 = 16, CPU_LANES_avx512vnni = 16 };

typedef unsigned short v16hu __attribute__((vector_size(32)));
typedef unsigned short v32hu __attribute__((vector_size(64)));

/* maddubs adds two products of an unsigned and a signed byte in 16 bits, which saturate from codes
 * of 129 on: wide codes are multiplied as 16-bit integers, even and odd ones apart. SIMD_KEEP stops
 * the compiler from adding in another order, which takes more registers than there are. */
SIMD_INLINE TARGET_AVX2 __m256i dot_avx2(__m256i sum, __m256i c, __m256i q, const int wide)
{
    if (!wide) {
        __m256i pairs = _mm256_maddubs_epi16(c, q);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        SIMD_KEEP(sum);
        return sum;
    }
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8), odd = _mm256_srai_epi16(q, 8);
    __m256i c_even = _mm256_and_si256(c, _mm256_set1_epi16(255)), c_odd = _mm256_srli_epi16(c, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(c_even, even));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(c_odd, odd));
    SIMD_KEEP(sum);
    return sum;
}

SIMD_INLINE TARGET_AVX512 __m512i dot_avx512(__m512i sum, __m512i c, __m512i q, const int wide)
{
    if (!wide) {
        __m512i pairs = _mm512_maddubs_epi16(c, q);
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
        SIMD_KEEP(sum);
        return sum;
    }
    __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8), odd = _mm512_srai_epi16(q, 8);
    __m512i c_even = _mm512_and_si512(c, _mm512_set1_epi16(255)), c_odd = _mm512_srli_epi16(c, 8);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(c_even, even));
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(c_odd, odd));
    SIMD_KEEP(sum);
    return sum;
}

/* In assembly because gcc 12 copies the accumulator of the intrinsic, runs out of registers and
 * halves the speed. */
SIMD_INLINE TARGET_AVX512VNNI __m512i dot_avx512vnni(__m512i sum, __m512i c, __m512i q,
                                                     const int wide)
{
    (void)wide;
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(c), "v"(q));
    return sum;
}

#define SIMD        avx2
#define SIMD_TARGET TARGET_AVX2
#define SIMD_LANES  8
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_LANES

#define SIMD        avx512
#define SIMD_TARGET TARGET_AVX512
#define SIMD_LANES  16
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET

#define SIMD        avx512vnni
#define SIMD_TARGET TARGET_AVX512VNNI
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_LANES

typedef void int_tile_fn(const struct int_product *job);

/* Rows of X in the largest tile: two accumulators of integers and two of floats for each must find
 * room in the registers, beside what a dot product needs. */
enum { TILE_ROWS = 4, TILE_ROWS_VNNI = 6 };

/* The tiles of one format: [level][rows - 1]. */
struct int_tiles {
    int_tile_fn *tile[CPU_LEVELS][TILE_ROWS_VNNI];
};

/* Runs the job's rows in tiles of even sizes. */
static inline void int_run_tiles(const struct int_tiles *tiles, enum cpu_level level,
                                 struct int_product job)
{
    const uint32_t most = level == CPU_AVX512VNNI ? TILE_ROWS_VNNI : TILE_ROWS;
    for (uint32_t mt; job.n_rows; job.n_rows -= mt) {
        uint32_t n_tiles = (job.n_rows + most - 1) / most;
        mt = (job.n_rows + n_tiles - 1) / n_tiles;
        tiles->tile[level][mt - 1](&job);
        job.row += mt;
        job.acc += (size_t)mt * PANEL_ROWS;
    }
}

/* <name>_tiles of constant bits and scales; wide: codes above 63. */
#define INT_TILE(target, name, level, mt, bits, scales, wide)                                      \
    target static void name##_##level##_##mt(const struct int_product *job)                        \
    {                                                                                              \
        tile_##level(job, bits, scales, wide, mt, 0);                                              \
        if (CPU_LANES_##level == 8)                                                                \
            tile_##level(job, bits, scales, wide, mt, 2);                                          \
    }
#define INT_TILES_4(target, name, level, bits, scales, wide)                                       \
    INT_TILE(target, name, level, 1, bits, scales, wide)                                           \
    INT_TILE(target, name, level, 2, bits, scales, wide)                                           \
    INT_TILE(target, name, level, 3, bits, scales, wide)                                           \
    INT_TILE(target, name, level, 4, bits, scales, wide)
#define INT_TILES_6(target, name, level, bits, scales, wide)                                       \
    INT_TILES_4(target, name, level, bits, scales, wide)                                           \
    INT_TILE(target, name, level, 5, bits, scales, wide)                                           \
    INT_TILE(target, name, level, 6, bits, scales, wide)
#define INT_TILE_NAMES_4(name, level)                                                              \
    name##_##level##_1, name##_##level##_2, name##_##level##_3, name##_##level##_4
#define INT_TILE_NAMES_6(name, level)                                                              \
    INT_TILE_NAMES_4(name, level), name##_##level##_5, name##_##level##_6
#define INT_TILES(name, bits, scales, wide)                                                        \
    INT_TILES_4(TARGET_AVX2, name, avx2, bits, scales, wide)                                       \
    INT_TILES_4(TARGET_AVX512, name, avx512, bits, scales, wide)                                   \
    INT_TILES_6(TARGET_AVX512VNNI, name, avx512vnni, bits, scales, wide)                           \
    static const struct int_tiles name##_tiles = {                                                 \
        {[CPU_AVX2] = {INT_TILE_NAMES_4(name, avx2)},                                              \
         [CPU_AVX512] = {INT_TILE_NAMES_4(name, avx512)},                                          \
         [CPU_AVX512VNNI] = {INT_TILE_NAMES_6(name, avx512vnni)}}};

/* A format's vector variants. */
#define INT_VARIANTS(bits, ZERO, scales)                                                           \
    INT_TILES(direct, bits, scales, (bits) == 8)                                                   \
    static void run_direct(enum cpu_level level, const uint8_t *w, const struct planes *x,         \
                           uint32_t row, uint32_t n_rows, float *acc)                              \
    {                                                                                              \
        struct int_product job = {w, 0, x->n_blocks, int_shift(ZERO), x, row, n_rows, acc};        \
        int_run_tiles(&direct_tiles, level, job);                                                  \
    }                                                                                              \
    TARGET_AVX2 static void decode_256(const uint8_t *w, uint32_t begin, uint32_t n,               \
                                       struct int_block *out)                                      \
    {                                                                                              \
        decode_avx2(w, bits, scales, begin, n, out);                                               \
    }                                                                                              \
    TARGET_AVX512 static void decode_512(const uint8_t *w, uint32_t begin, uint32_t n,             \
                                         struct int_block *out)                                    \
    {                                                                                              \
        decode_avx512(w, bits, scales, begin, n, out);                                             \
    }
#define INT_SLOTS                                                                                  \
    .direct = run_direct, .decode = {decode_scalar, decode_256, decode_512, decode_512}

#else
#define INT_VARIANTS(bits, ZERO, scales)
#define INT_SLOTS .decode = {decode_scalar, decode_scalar, decode_scalar, decode_scalar}
#endif

/* All of a format: `panel_<id>`. */
#define INT_PANEL(id, BITS, ZERO, SCALES)                                                          \
    static const struct int_format format = {.bits = (BITS), .zero = (ZERO), .scales = (SCALES)};  \
    static size_t n_bytes(uint32_t n_in) { return int_panel_bytes(&format, n_in); }                \
    static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)                  \
    {                                                                                              \
        int_unpack(&format, w, row, n_in, out);                                                    \
    }                                                                                              \
    static void decode_scalar(const uint8_t *w, uint32_t begin, uint32_t n, struct int_block *out) \
    {                                                                                              \
        int_decode_scalar(&format, w, begin, n, out);                                              \
    }                                                                                              \
    INT_VARIANTS(BITS, ZERO, SCALES)                                                               \
    const struct panel panel_##id = {                                                              \
        .name = #id,                                                                               \
        .n_bytes = n_bytes,                                                                        \
        .unpack = unpack,                                                                          \
        .format = &format,                                                                         \
        INT_SLOTS,                                                                                 \
    };
