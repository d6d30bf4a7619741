/* [kernel] Panel formats: how packed weights lie in memory and are computed on. A panel holds
 * PANEL_ROWS rows of W (output channels) side by side over the whole of k, so that a vector lane
 * is an output row, no horizontal sum is left, and a worker reads one sequential stream.
 *
 * Two kinds. Float panels multiply floats; BF16's variant for CPU_AVX512BF16 rounds rows of X to
 * BF16 first. Integer panels hold codes in blocks of 32 values of k (panel_int.h) and multiply them
 * with quantised rows of X (planes.h); where activations stay float, their blocks are dequantised
 * and multiplied as floats.
 *
 * A format's file holds its variants for every CPU level; a missing one is the next lower one.
 * All variants add into acc [n_rows, PANEL_ROWS], one chain over k in ascending order for each
 * element, in steps of a value, of two (BF16) or of a group (integers). Pure functions:
 * ANY_THREAD. */
#pragma once

#include "core/kernel/cpu.h"
#include "core/kernel/planes.h"

#include <stddef.h>
#include <stdint.h>

enum { PANEL_ROWS = 32 };

enum panel_id {
#define PANEL(id) PANEL_##id,
#include "core/kernel/panel.def"
#undef PANEL
    PANEL_COUNT
};

/* acc[r, o] += sum over k in [0, n_in) of w[k, o] x[r, k]; rows of x are x_stride floats apart. */
typedef void panel_float_fn(const uint8_t *w, uint32_t n_in, const float *x, size_t x_stride,
                            uint32_t n_rows, float *acc);

/* Blocks [begin, begin + n) of a panel as codes and float scales. */
struct int_decoded;
typedef void panel_decode_fn(const uint8_t *w, uint32_t begin, uint32_t n, struct int_decoded *out);

struct panel {
    const char *name;
    size_t (*n_bytes)(uint32_t n_in); /* of one panel, a multiple of 64 */
    /* Row `row` (0 .. PANEL_ROWS-1) as floats, bit for bit as its file type defines them: [n_in]. */
    void (*unpack)(const uint8_t *w, uint32_t row, uint32_t n_in, float *out);
    panel_float_fn *floats[CPU_LEVELS]; /* float panels, else NULL, and so is widen */
    /* k in [begin, begin + n) of all rows: out[(k - begin) * stride + row]. */
    void (*widen)(const uint8_t *w, uint32_t begin, uint32_t n, float *out, size_t stride);
    const struct int_format *format; /* integer panels, else NULL */
    panel_decode_fn *decode[CPU_LEVELS];
    const struct int_tiles *direct; /* or NULL: decode, then multiply */
    const struct int_tiles *first;  /* or NULL: tiles that decode for others to come */
};

extern const struct panel *const panel_table[PANEL_COUNT];
