/* [kernel] Float panels: the scalar variant, the tiles of panel_float_simd.h at two CPU levels,
 * and the macro that makes a format's functions of them. */
#pragma once

#include "core/kernel/panel_float.h"
#include "core/kernel/quant.h"
#include "core/kernel/simd.h"

#include <string.h>

enum float_kind { FLOAT_WHOLE, FLOAT_HALF, FLOAT_BRAIN };

static inline size_t float_bytes(enum float_kind kind) { return kind == FLOAT_WHOLE ? 4 : 2; }

static inline float float_value(enum float_kind kind, const uint8_t *w, size_t i)
{
    float v;
    if (kind == FLOAT_HALF)
        return quant_half_to_float(quant_read16(w + 2 * i));
    if (kind == FLOAT_BRAIN)
        return quant_bf16_to_float(quant_read16(w + 2 * i));
    memcpy(&v, w + 4 * i, sizeof(v));
    return v;
}

static inline void float_widen(enum float_kind kind, const uint8_t *w, uint32_t begin, uint32_t n,
                               float *out, size_t stride)
{
    for (size_t k = 0; k < n; k++)
        for (size_t o = 0; o < PANEL_ROWS; o++)
            out[k * stride + o] = float_value(kind, w, (begin + k) * PANEL_ROWS + o);
}

static inline void float_scalar(enum float_kind kind, const uint8_t *w, uint32_t n_in,
                                const float *x, size_t x_stride, uint32_t n_rows, float *acc)
{
    for (uint32_t k = 0; k < n_in; k++) {
        float column[PANEL_ROWS];
        float_widen(kind, w, k, 1, column, PANEL_ROWS);
        for (uint32_t r = 0; r < n_rows; r++, acc += PANEL_ROWS)
            for (uint32_t o = 0; o < PANEL_ROWS; o++)
                acc[o] = acc[o] + column[o] * x[r * x_stride + k];
        acc -= (size_t)n_rows * PANEL_ROWS;
    }
}

#if defined(__x86_64__)

/* Rows of X in the largest tile. */
enum { FLOAT_TILE = 6 };

/* acc[r, o] += sum over k of w[k, o] x[r, k]. */
struct float_product {
    const uint8_t *w;
    uint32_t n_in;
    const float *x;
    size_t x_stride;
    float *acc;
};

typedef void float_tile_fn(const struct float_product *job);

#define SIMD        avx2
#define SIMD_TARGET TARGET_AVX2
#define SIMD_LANES  8
#include "core/kernel/panel_float_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_LANES

#define SIMD        avx512
#define SIMD_TARGET TARGET_AVX512
#define SIMD_LANES  16
#include "core/kernel/panel_float_simd.h"
#undef SIMD
#undef SIMD_TARGET
#undef SIMD_LANES

static inline void float_run_tiles(float_tile_fn *const *tile, struct float_product job,
                                   uint32_t n_rows)
{
    for (uint32_t mt; n_rows; n_rows -= mt) {
        uint32_t n_tiles = (n_rows + FLOAT_TILE - 1) / FLOAT_TILE;
        mt = (n_rows + n_tiles - 1) / n_tiles;
        tile[mt - 1](&job);
        job.x += mt * job.x_stride;
        job.acc += (size_t)mt * PANEL_ROWS;
    }
}

#define FLOAT_TILE_FN(target, level, mt, kind, second)                                             \
    target static void level##_##mt(const struct float_product *job)                               \
    {                                                                                              \
        float_tile_##level(job, kind, mt, 0);                                                      \
        if (second)                                                                                \
            float_tile_##level(job, kind, mt, 2);                                                  \
    }
#define FLOAT_LEVEL(target, level, kind, second)                                                   \
    FLOAT_TILE_FN(target, level, 1, kind, second)                                                  \
    FLOAT_TILE_FN(target, level, 2, kind, second)                                                  \
    FLOAT_TILE_FN(target, level, 3, kind, second)                                                  \
    FLOAT_TILE_FN(target, level, 4, kind, second)                                                  \
    FLOAT_TILE_FN(target, level, 5, kind, second)                                                  \
    FLOAT_TILE_FN(target, level, 6, kind, second)                                                  \
    static void level(const uint8_t *w, uint32_t n_in, const float *x, size_t x_stride,            \
                      uint32_t n_rows, float *acc)                                                 \
    {                                                                                              \
        static float_tile_fn *const tile[FLOAT_TILE] = {level##_1, level##_2, level##_3,           \
                                                        level##_4, level##_5, level##_6};          \
        float_run_tiles(tile, (struct float_product){w, n_in, x, x_stride, acc}, n_rows);          \
    }
#define FLOAT_VARIANTS(kind)                                                                       \
    FLOAT_LEVEL(TARGET_AVX2, avx2, kind, 1)                                                        \
    FLOAT_LEVEL(TARGET_AVX512, avx512, kind, 0)
#define FLOAT_LEVELS(bf16) scalar, avx2, avx2, avx512, avx512, bf16

#else
#define FLOAT_VARIANTS(kind)
#define FLOAT_LEVELS(bf16) scalar
#endif

/* All of a format: `panel_<id>`; bf16: what it has for CPU_AVX512BF16. */
#define FLOAT_PANEL(id, KIND, bf16)                                                                \
    static size_t n_bytes(uint32_t n_in) { return n_in * float_bytes(KIND) * PANEL_ROWS; }         \
    static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)                  \
    {                                                                                              \
        for (size_t k = 0; k < n_in; k++)                                                          \
            out[k] = float_value(KIND, w, k * PANEL_ROWS + row);                                   \
    }                                                                                              \
    static void widen(const uint8_t *w, uint32_t begin, uint32_t n, float *out, size_t stride)     \
    {                                                                                              \
        float_widen(KIND, w, begin, n, out, stride);                                               \
    }                                                                                              \
    static void scalar(const uint8_t *w, uint32_t n_in, const float *x, size_t x_stride,           \
                       uint32_t n_rows, float *acc)                                                \
    {                                                                                              \
        float_scalar(KIND, w, n_in, x, x_stride, n_rows, acc);                                     \
    }                                                                                              \
    FLOAT_VARIANTS(KIND)                                                                           \
    const struct panel panel_##id = {                                                              \
        .name = #id,                                                                               \
        .n_bytes = n_bytes,                                                                        \
        .unpack = unpack,                                                                          \
        .widen = widen,                                                                            \
        .floats = {FLOAT_LEVELS(bf16)},                                                            \
    };
