/* [kernel] Integer panels on x86-64: the tiles of panel_int_simd.h at four CPU levels, and the
 * macro that makes a format's functions of them. */
#pragma once

#include "core/kernel/panel_int.h"
#include "core/kernel/simd.h"

#if defined(__x86_64__)

#include <stddef.h>
#include <string.h>

enum {
    CPU_LANES_avx2 = 8,
    CPU_LANES_avx2vnni = 8,
    CPU_LANES_avx512 = 16,
    CPU_LANES_avx512vnni = 16
};

typedef unsigned short v16hu __attribute__((vector_size(32)));
typedef unsigned short v32hu __attribute__((vector_size(64)));

/* Bytes from a block to what is prefetched while it is computed on. */
enum { INT_AHEAD = 4096 };

/* Where a member of struct int_factors begins, in floats. */
#define INT_FACTOR(member) (offsetof(struct int_factors, member) / sizeof(float))

/* Some rows of a tile: n from r0 on, of mt in a record. */
struct int_rows {
    size_t mt, r0, n;
};

/* Records of a block, of one plane or two; by: one whose factors stand for theirs, or NULL. */
struct int_records {
    const uint8_t *at[2], *by;
};

/* Row r of some, from n on of the second plane, among a record's values of `size` bytes each. */
SIMD_INLINE const uint8_t *int_row(const struct int_records x, const struct int_rows some,
                                   const size_t r, const size_t size)
{
    return x.at[r / some.n] + (some.r0 + r % some.n) * size;
}

/* A block of W from vector h0 on, and what has its scales where it was decoded. */
struct int_weights {
    const uint8_t *super, *p;
    const float *by;
};

/* Where a block's codes and factors are written while it is read, or NULL. */
struct int_copy {
    uint8_t *codes;
    float *by;
};

/* In assembly because gcc 12 copies the accumulator of the intrinsic, runs out of registers and
 * halves the speed. */
SIMD_INLINE TARGET_AVX512VNNI __m512i dot_avx512vnni(__m512i sum, __m512i c, __m512i q)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(c), "v"(q));
    return sum;
}
SIMD_INLINE TARGET_AVX2VNNI __m256i dot_avx2vnni(__m256i sum, __m256i c, __m256i q)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(c), "x"(q));
    return sum;
}

#define SIMD        avx2
#define SIMD_TARGET TARGET_AVX2
#define SIMD_LANES  8
#define SIMD_DOTS   0
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_DOTS

#define SIMD        avx2vnni
#define SIMD_TARGET TARGET_AVX2VNNI
#define SIMD_DOTS   1
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_LANES
#undef SIMD_DOTS

#define SIMD        avx512
#define SIMD_TARGET TARGET_AVX512
#define SIMD_LANES  16
#define SIMD_DOTS   0
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_DOTS

#define SIMD        avx512vnni
#define SIMD_TARGET TARGET_AVX512VNNI
#define SIMD_DOTS   1
#include "core/kernel/panel_int_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_LANES
#undef SIMD_DOTS

/* Rows of a tile at a time, where there are more than 6. */
enum { INT_ROWS_avx2 = 4, INT_ROWS_avx2vnni = 4, INT_ROWS_avx512 = 4, INT_ROWS_avx512vnni = 8 };

/* <name>_<level>_<planes>_<rows>: mt rows of X times blocks of `bits` and `scales`, which, unless
 * packed_bits is 0, are decoded on the way from those of packed_bits and `packed`. */
#define INT_TILE(target, name, level, bits, zero, scales, most, planes, mt, packed_bits, packed)   \
    target static void name##_##level##_##planes##_##mt(struct int_product *job)                   \
    {                                                                                              \
        enum { ROWS = (mt) > 6 && INT_ROWS_##level < (mt) ? INT_ROWS_##level : (mt) };             \
        for (size_t h0 = 0; h0 < PANEL_ROWS / CPU_LANES_##level; h0 += 2) {                        \
            tile_##level(job, bits, zero, scales, most, planes, mt, 0, ROWS, h0, packed_bits,      \
                         packed);                                                                  \
            if (ROWS < (mt))                                                                       \
                tile_##level(job, bits, zero, scales, most, planes, mt, ROWS, (mt)-ROWS, h0,       \
                             packed_bits, packed);                                                 \
        }                                                                                          \
    }
#define INT_DECODED(target, name, level, scales, most, planes, mt)                                 \
    INT_TILE(target, name, level, 8, 0, scales, most, planes, mt, 0, scales)
/* tile(..., rows) for up to 6 or 8 rows. */
#define INT_ROWS_6(tile, ...)                                                                      \
    tile(__VA_ARGS__, 1) tile(__VA_ARGS__, 2) tile(__VA_ARGS__, 3) tile(__VA_ARGS__, 4)            \
        tile(__VA_ARGS__, 5) tile(__VA_ARGS__, 6)
#define INT_ROWS_8(tile, ...)                                                                      \
    INT_ROWS_6(tile, __VA_ARGS__)                                                                  \
    tile(__VA_ARGS__, 7) tile(__VA_ARGS__, 8)
#define INT_LEVEL(target, name, level, scales, most)                                               \
    INT_ROWS_8(INT_DECODED, target, name, level, scales, most, 1)                                  \
    INT_ROWS_8(INT_DECODED, target, name, level, scales, most, 2)
#define INT_NAMES(name, level, planes)                                                             \
    {                                                                                              \
        name##_##level##_##planes##_1, name##_##level##_##planes##_2,                              \
            name##_##level##_##planes##_3, name##_##level##_##planes##_4,                          \
            name##_##level##_##planes##_5, name##_##level##_##planes##_6,                          \
            name##_##level##_##planes##_7, name##_##level##_##planes##_8                           \
    }
#define INT_LEVEL_NAMES(name, level)                                                               \
    {                                                                                              \
        INT_NAMES(name, level, 1), INT_NAMES(name, level, 2)                                       \
    }

/* <name>_tiles of decoded blocks whose codes, where there are no byte dot products, are `most`. */
#define INT_TILES(name, scales, most)                                                              \
    INT_LEVEL(TARGET_AVX2, name, avx2, scales, most)                                               \
    INT_LEVEL(TARGET_AVX2VNNI, name, avx2vnni, scales, most)                                       \
    INT_LEVEL(TARGET_AVX512, name, avx512, scales, most)                                           \
    INT_LEVEL(TARGET_AVX512VNNI, name, avx512vnni, scales, most)                                   \
    static const struct int_tiles name##_tiles = {                                                 \
        {[CPU_AVX2] = INT_LEVEL_NAMES(name, avx2),                                                 \
         [CPU_AVX2VNNI] = INT_LEVEL_NAMES(name, avx2vnni),                                         \
         [CPU_AVX512] = INT_LEVEL_NAMES(name, avx512),                                             \
         [CPU_AVX512VNNI] = INT_LEVEL_NAMES(name, avx512vnni),                                     \
         [CPU_AVX512BF16] = INT_LEVEL_NAMES(name, avx512vnni)}};

/* A format's vector variants: few rows read the panel itself. */
#define INT_DIRECT(target, level, bits, zero, scales, planes, mt)                                  \
    INT_TILE(target, direct, level, bits, zero, scales, (1 << (bits)) - 1, planes, mt, 0, scales)
#define INT_DIRECT_1(target, level, bits, zero, scales)                                            \
    INT_DIRECT(target, level, bits, zero, scales, 1, 1)                                            \
    INT_DIRECT(target, level, bits, zero, scales, 2, 1)
/* Unpacking 5 or 6 bits for more than 4 rows does not pay, nor any for more than 6 with 8 lanes:
 * these tiles are left out. */
#define INT_DIRECT_LARGE(bits, name) ((bits) == 5 || (bits) == 6 ? NULL : (name))
#define INT_DIRECT_NAMES_6(level, bits, planes)                                                    \
    direct_##level##_##planes##_1, direct_##level##_##planes##_2, direct_##level##_##planes##_3,   \
        direct_##level##_##planes##_4, INT_DIRECT_LARGE(bits, direct_##level##_##planes##_5),      \
        INT_DIRECT_LARGE(bits, direct_##level##_##planes##_6)
#define INT_DIRECT_NAMES_8(level, bits, planes)                                                    \
    INT_DIRECT_NAMES_6(level, bits, planes),                                                       \
        INT_DIRECT_LARGE(bits, direct_##level##_##planes##_7),                                     \
        INT_DIRECT_LARGE(bits, direct_##level##_##planes##_8)
#define INT_DIRECT_LEVEL(most, level, bits)                                                        \
    {                                                                                              \
        {INT_DIRECT_NAMES_##most(level, bits, 1)}, { INT_DIRECT_NAMES_##most(level, bits, 2) }     \
    }
#define INT_DECODE(target, level, bits, zero, scales)                                              \
    target static void decode_to_##level(const uint8_t *w, uint32_t begin, uint32_t n,             \
                                         struct int_decoded *out)                                  \
    {                                                                                              \
        decode_##level(w, bits, zero, scales, begin, n, out);                                      \
    }
/* The first tile of many, which have 4 to 8 rows then (planes.h), decodes, where byte dot products
 * leave the time for it. There is nothing to decode in 8 bits. */
#define INT_FIRST(bits, zero, scales, planes, mt)                                                  \
    INT_TILE(TARGET_AVX512VNNI, first, avx512vnni, 8, zero, int_decoded_scales(scales), 255,       \
             planes, mt, bits, scales)
#define INT_FIRST_TILES(bits, zero, scales, planes)                                                \
    INT_FIRST(bits, zero, scales, planes, 4)                                                       \
    INT_FIRST(bits, zero, scales, planes, 5)                                                       \
    INT_FIRST(bits, zero, scales, planes, 6)                                                       \
    INT_FIRST(bits, zero, scales, planes, 7)                                                       \
    INT_FIRST(bits, zero, scales, planes, 8)
#define INT_FIRST_NAME(bits, name) ((bits) == 8 ? NULL : (name))
#define INT_FIRST_NAMES(bits, planes)                                                              \
    {                                                                                              \
        [3] = INT_FIRST_NAME(bits, first_avx512vnni_##planes##_4),                                 \
        [4] = INT_FIRST_NAME(bits, first_avx512vnni_##planes##_5),                                 \
        [5] = INT_FIRST_NAME(bits, first_avx512vnni_##planes##_6),                                 \
        [6] = INT_FIRST_NAME(bits, first_avx512vnni_##planes##_7),                                 \
        [7] = INT_FIRST_NAME(bits, first_avx512vnni_##planes##_8)                                  \
    }
#define INT_FIRST_LEVEL(bits)                                                                      \
    {                                                                                              \
        INT_FIRST_NAMES(bits, 1), INT_FIRST_NAMES(bits, 2)                                         \
    }
#define INT_VARIANTS(bits, zero, scales)                                                           \
    INT_FIRST_TILES(bits, zero, scales, 1)                                                         \
    INT_FIRST_TILES(bits, zero, scales, 2)                                                         \
    static const struct int_tiles first = {                                                        \
        {[CPU_AVX512VNNI] = INT_FIRST_LEVEL(bits), [CPU_AVX512BF16] = INT_FIRST_LEVEL(bits)}};     \
    INT_DIRECT_1(TARGET_AVX2, avx2, bits, zero, scales)                                            \
    INT_ROWS_6(INT_DIRECT, TARGET_AVX2VNNI, avx2vnni, bits, zero, scales, 1)                       \
    INT_ROWS_6(INT_DIRECT, TARGET_AVX2VNNI, avx2vnni, bits, zero, scales, 2)                       \
    INT_DIRECT_1(TARGET_AVX512, avx512, bits, zero, scales)                                        \
    INT_ROWS_8(INT_DIRECT, TARGET_AVX512VNNI, avx512vnni, bits, zero, scales, 1)                   \
    INT_ROWS_8(INT_DIRECT, TARGET_AVX512VNNI, avx512vnni, bits, zero, scales, 2)                   \
    INT_DECODE(TARGET_AVX2, avx2, bits, zero, scales)                                              \
    INT_DECODE(TARGET_AVX2VNNI, avx2vnni, bits, zero, scales)                                      \
    INT_DECODE(TARGET_AVX512, avx512, bits, zero, scales)                                          \
    INT_DECODE(TARGET_AVX512VNNI, avx512vnni, bits, zero, scales)                                  \
    static const struct int_tiles direct = {                                                       \
        {[CPU_AVX2] = {{direct_avx2_1_1}, {direct_avx2_2_1}},                                      \
         [CPU_AVX2VNNI] = INT_DIRECT_LEVEL(6, avx2vnni, bits),                                     \
         [CPU_AVX512] = {{direct_avx512_1_1}, {direct_avx512_2_1}},                                \
         [CPU_AVX512VNNI] = INT_DIRECT_LEVEL(8, avx512vnni, bits),                                 \
         [CPU_AVX512BF16] = INT_DIRECT_LEVEL(8, avx512vnni, bits)}};
#define INT_SLOTS                                                                                  \
    .direct = &direct, .first = &first,                                                            \
    .decode = {decode_scalar,    decode_to_avx2,       decode_to_avx2vnni,                         \
               decode_to_avx512, decode_to_avx512vnni, decode_to_avx512vnni}

#else
#define INT_VARIANTS(bits, ZERO, scales)
#define INT_SLOTS .decode = {decode_scalar}
#endif

/* All of a format: `panel_<id>`. */
#define INT_PANEL(id, BITS, ZERO, SCALES)                                                          \
    static const struct int_format format = {.bits = (BITS), .zero = (ZERO), .scales = (SCALES)};  \
    static size_t n_bytes(uint32_t n_in) { return int_panel_bytes(&format, n_in); }                \
    static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)                  \
    {                                                                                              \
        int_unpack(&format, w, row, n_in, out);                                                    \
    }                                                                                              \
    static void decode_scalar(const uint8_t *w, uint32_t begin, uint32_t n,                        \
                              struct int_decoded *out)                                             \
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
