/* [kernel] Quantised activations: rows of X as one or two planes of 8-bit integers with one scale
 * per 32 values of k: x = s q, q = high or 256 high + low.
 *
 * Rows are multiplied in tiles, as few as can be of up to PLANES_TILE, spread evenly. They lie in the
 * order in which a tile reads them: for each tile, for each plane, the high one first, for each block
 * of 32 values, one record of mt rows,
 *
 *   codes [mt, 32] int8, then their scale [mt], s or of the high of two planes 256 s, the float
 *   scale * sum(codes) [mt], and as integers the start [mt] of sums with a zero point of 128,
 *   -128 * sum(codes), over 32 and, [2, mt], over 16 values: sum (w - z) q = -z sum q + sum w q;
 *   smaller powers of two shift it.
 *
 * So planes are multiplied one after the other, alike, and the product is the sum of both.
 *
 * The starts are larger by PLANES_MAGIC, the bits of the float 1.5 * 2^23: added to an integer below
 * 2^22 it makes the bits of the float 1.5 * 2^23 + that integer, so that a product with a scale, less
 * the same product of 1.5 * 2^23, needs no conversion and is as exact.
 *
 * What is stored of a row depends on the row alone. ANY_THREAD: pure functions of pointers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PLANES_BLOCK = 32, PLANES_TILE = 8 };
enum { PLANES_ROW_BYTES = PLANES_BLOCK + 5 * 4 }; /* of a record, for each row */
enum { PLANES_MAGIC = 0x4b400000 };               /* the bits of PLANES_MAGIC_FLOAT */
#define PLANES_MAGIC_FLOAT 0x1.8p23F

struct planes {
    uint8_t *rows;
    uint32_t n_rows, n_tiles;
    uint32_t n_blocks;
    uint32_t n_planes; /* 1 or 2 */
    size_t row_bytes;
};

/* Offsets in a record of mt rows. */
struct planes_record {
    size_t scale;  /* float [mt] */
    size_t sum;    /* float [mt]: scale * sum(codes) */
    size_t start;  /* int32 [mt] */
    size_t halves; /* int32 [2, mt] */
    size_t n_bytes;
};

static inline struct planes_record planes_record(size_t mt)
{
    struct planes_record r = {.scale = PLANES_BLOCK * mt};
    r.sum = r.scale + 4 * mt;
    r.start = r.sum + 4 * mt;
    r.halves = r.start + 4 * mt;
    r.n_bytes = PLANES_ROW_BYTES * mt;
    return r;
}

/* The layout of n_rows rows of n_in values (the last block is filled up with zeros). */
struct planes planes_layout(uint32_t n_rows, uint32_t n_in, uint32_t n_planes, uint8_t *rows);

static inline size_t planes_bytes(const struct planes *p) { return p->row_bytes * p->n_rows; }

/* Values [n_rows, stride] of rows from `row` on and of columns [k, k + n), k a multiple of 32, n too or
 * up to the last column. */
struct planes_part {
    const float *x;
    size_t stride;
    uint32_t row, n_rows, k, n;
};
/* Quantises them into their places. A block with a value that is not finite has the scale NaN. */
void planes_quantise(const struct planes *p, const struct planes_part *part);

/* The high plane's scale of a block in two planes whose largest value is this. */
float planes_scale(float value);

/* Tile i has rows [planes_tile(p, i), planes_tile(p, i + 1)); its records are at planes_at. */
static inline uint32_t planes_tile(const struct planes *p, uint32_t i)
{
    return (uint32_t)((uint64_t)p->n_rows * i / p->n_tiles);
}
static inline uint32_t planes_tile_of(const struct planes *p, uint32_t row)
{
    return (uint32_t)((((uint64_t)row + 1) * p->n_tiles - 1) / p->n_rows);
}
static inline uint8_t *planes_at(const struct planes *p, uint32_t tile)
{
    return p->rows + planes_tile(p, tile) * p->row_bytes;
}
