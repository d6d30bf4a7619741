/* [kernel] Quantised activations: rows of X as one or two planes of 8-bit integers with one scale
 * per 32 values of k: x = s q, or x = s (256 high + low). A row is one record in the caller's
 * buffer:
 *
 *   high [n_blocks, 32] int8, low (two planes), then per block: scale s, the float s * sum(q), and
 *   minus the integer sums of each plane over 32 and over 16 values, which start the accumulators
 *   of formats with a zero point: sum (w - z) q = -z sum q + sum w q.
 *
 * A row's record depends on the row alone. ANY_THREAD: pure functions of pointers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PLANES_BLOCK = 32 };

struct planes {
    uint8_t *rows; /* [n_rows, row_bytes], 64-byte aligned */
    size_t row_bytes;
    uint32_t n_blocks;
    uint32_t n_planes; /* 1 or 2 */
    size_t scale_at;   /* float [n_blocks] */
    size_t sum_at;     /* float [n_blocks]: s * sum(q) */
    size_t minus_at;   /* int32 [n_planes, n_blocks]: -sum over 32 */
    size_t halves_at;  /* int32 [n_planes, n_blocks, 2]: -sum over 16 */
};

/* The layout of rows of n_in values (the last block is filled up with zeros). */
struct planes planes_layout(uint32_t n_in, uint32_t n_planes, uint8_t *rows);

/* Quantises row x [n_in] into its record. A row with a value that is not finite becomes NaN. */
void planes_quantise(const struct planes *p, uint32_t row, const float *x, uint32_t n_in);

static inline const uint8_t *planes_row(const struct planes *p, uint32_t row)
{
    return p->rows + row * p->row_bytes;
}
static inline const int8_t *planes_codes(const struct planes *p, uint32_t row, uint32_t plane)
{
    return (const int8_t *)planes_row(p, row) + (size_t)plane * p->n_blocks * PLANES_BLOCK;
}
static inline const float *planes_scales(const struct planes *p, uint32_t row)
{
    return (const float *)(const void *)(planes_row(p, row) + p->scale_at);
}
static inline const float *planes_sums(const struct planes *p, uint32_t row)
{
    return (const float *)(const void *)(planes_row(p, row) + p->sum_at);
}
