/* [kernel] panel F32: floats [n_in, 32]. */
#include "core/kernel/panel_float.h"

#include <string.h>

static size_t n_bytes(uint32_t n_in) { return (size_t)n_in * PANEL_ROWS * 4; }

static inline float value(const uint8_t *w, size_t i)
{
    float v;
    memcpy(&v, w + 4 * i, sizeof(v));
    return v;
}

static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)
{
    for (uint32_t k = 0; k < n_in; k++)
        out[k] = value(w, (size_t)k * PANEL_ROWS + row);
}

static void widen(const uint8_t *w, uint32_t begin, uint32_t n, float *out, size_t stride)
{
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t o = 0; o < PANEL_ROWS; o++)
            out[k * stride + o] = value(w, (size_t)(begin + k) * PANEL_ROWS + o);
}

static void scalar(const uint8_t *w, uint32_t n_in, const float *x, size_t x_stride,
                   uint32_t n_rows, float *acc)
{
    for (uint32_t k = 0; k < n_in; k++) {
        float column[PANEL_ROWS];
        for (uint32_t o = 0; o < PANEL_ROWS; o++)
            column[o] = value(w, (size_t)k * PANEL_ROWS + o);
        for (uint32_t r = 0; r < n_rows; r++) {
            float *to = acc + (size_t)r * PANEL_ROWS, v = x[r * x_stride + k];
            for (uint32_t o = 0; o < PANEL_ROWS; o++)
                to[o] = to[o] + column[o] * v;
        }
    }
}

panel_float_fn *const float_multiply[CPU_LEVELS] = {scalar, scalar, scalar, scalar};

const struct panel panel_f32 = {
    .name = "f32",
    .n_bytes = n_bytes,
    .unpack = unpack,
    .widen = widen,
    .floats = {scalar, scalar, scalar, scalar},
};
