/* [kernel] Integer panels: blocks of 32 values of k for 32 rows. A block is
 *
 *   codes   bits 8: [8 steps, 32 rows, 4 k] one byte each;
 *           bits 4, 5, 6: [4 steps, 32, 4] bytes, step j in the low and step j + 4 in the high
 *           nibble; then bits 5: [32, 4] bytes whose bit j is bit 4 of the code of step j;
 *           bits 6: two times [32, 4] bytes, of steps 0-3 and 4-7, bits 2j and 2j+1 are bits 4, 5
 *   scales  as enum int_scales says
 *
 * and w = scale * (code - zero), or scale * code + min. Four values of k lie together because dot
 * instructions take them so. Codes are unsigned because those instructions multiply unsigned by
 * signed; the zero point is corrected in the accumulator's first value (planes.h).
 *
 * Many rows: some blocks are decoded to bytes and floats, which stay in the first-level cache while
 * all rows pass by. Levels that have byte dot products decode codes to the upper bits of a byte
 * and divide the scales accordingly, which is exact: then every zero point is 128. */
#pragma once

#include "core/kernel/fine.h"
#include "core/kernel/panel.h"

#include <stdbool.h>
#include <string.h>

enum int_scales {
    SCALES_HALF,     /* half [32] */
    SCALES_HALF_MIN, /* half [32], half minimum [32] */
    SCALES_K_MIN,    /* u8 [32], u8 minimum [32]; per 8 blocks before them: half [32], half [32] */
    SCALES_K_HALVES, /* s8 [2, 32]: per 16 values; per 8 blocks before them: half [32] */
    /* Of decoded blocks (struct int_decoded, bits 8), which are computed on by the same code. */
    SCALES_FLOAT,
    SCALES_FLOAT_MIN,
    SCALES_FLOAT_HALVES
};

struct int_format {
    uint32_t bits;
    uint32_t zero; /* 0 or a power of two; 0 where there is a minimum, and only there */
    enum int_scales scales;
};

/* The scales of a decoded block. base = -PLANES_MAGIC_FLOAT * scale (planes.h). */
struct int_factors {
    float scale[2][PANEL_ROWS], base[2][PANEL_ROWS]; /* [0]: of 32 values, or of 16 each */
    float min[PANEL_ROWS];
};

/* Up to INT_CHUNK blocks as all formats share them. */
enum { INT_CHUNK = 16 };
struct int_decoded {
    _Alignas(64) struct int_factors factors[INT_CHUNK];
    _Alignas(64) uint8_t buffer[INT_CHUNK][8][PANEL_ROWS][4];
    const uint8_t *codes; /* the buffer, or within a panel of 8 bits: [step, row, k % 4] each */
    size_t stride;        /* bytes from block to block */
    uint32_t zero;        /* of these codes */
};

static inline uint32_t int_code_bytes(uint32_t bits)
{
    return bits == 8 ? 1024 : 512 + (bits - 4) * 128;
}
static inline int int_is_decoded(enum int_scales scales) { return scales >= SCALES_FLOAT; }

/* Of a block after decoding. */
static inline enum int_scales int_decoded_scales(enum int_scales scales)
{
    return scales == SCALES_HALF       ? SCALES_FLOAT
           : scales == SCALES_K_HALVES ? SCALES_FLOAT_HALVES
                                       : SCALES_FLOAT_MIN;
}

static inline uint32_t int_block_bytes(uint32_t bits, enum int_scales scales)
{
    return int_code_bytes(bits) + (scales == SCALES_HALF_MIN ? 128 : 64);
}
/* How far the starts of sums, made for a zero point of 128, are shifted for another one. */
static inline uint32_t int_shift(uint32_t zero)
{
    return zero ? 7 - (uint32_t)__builtin_ctz(zero) : 0;
}
/* Bytes before each 8 blocks. */
static inline uint32_t int_super_bytes(enum int_scales scales)
{
    return scales == SCALES_K_MIN ? 128 : scales == SCALES_K_HALVES ? 64 : 0;
}
static inline int int_has_min(enum int_scales scales)
{
    return scales == SCALES_HALF_MIN || scales == SCALES_K_MIN || scales == SCALES_FLOAT_MIN;
}
/* Scales per block of 32. */
static inline uint32_t int_groups(enum int_scales scales)
{
    return scales == SCALES_K_HALVES || scales == SCALES_FLOAT_HALVES ? 2 : 1;
}
/* Offset of the header before block b's 8, and of block b. */
static inline size_t int_super_at(uint32_t bits, enum int_scales scales, uint32_t b)
{
    return b / 8 * (size_t)(8 * int_block_bytes(bits, scales) + int_super_bytes(scales));
}
static inline size_t int_block_at(uint32_t bits, enum int_scales scales, uint32_t b)
{
    return int_super_at(bits, scales, b) + int_super_bytes(scales) +
           b % 8 * (size_t)int_block_bytes(bits, scales);
}

size_t int_panel_bytes(const struct int_format *f, uint32_t n_in);

/* For packing: block b of one row, as the words that stand [row] in its lines of 128 bytes: 8 of
 * codes as they are, or 4 of nibbles and then the upper bits; and its scales. A format's header halves
 * are written with block 0 of the 8. unused: 0. */
struct int_scale {
    uint16_t scale, min; /* halves */
    uint8_t part[2];     /* K_MIN: scale, minimum; K_HALVES: the two scales */
};

static inline void int_put_half(uint8_t *at, size_t row, uint16_t h)
{
    memcpy(at + 2 * row, &h, sizeof(h));
}

/* Inlined with constant bits and scales. */
static inline void int_put(const uint32_t bits, const enum int_scales scales, uint8_t *w,
                           uint32_t row, uint32_t b, const uint32_t *words,
                           const struct int_scale *s)
{
    uint8_t *super = w + int_super_at(bits, scales, b), *at = w + int_block_at(bits, scales, b);
    for (uint32_t i = 0; i < bits; i++)
        memcpy(at + (size_t)128 * i + (size_t)4 * row, &words[i], 4);
    at += int_code_bytes(bits);
    if (int_super_bytes(scales) == 0) {
        int_put_half(at, row, s->scale);
        if (int_has_min(scales))
            int_put_half(at + 64, row, s->min);
        return;
    }
    if (b % 8 == 0) {
        int_put_half(super, row, s->scale);
        if (int_has_min(scales))
            int_put_half(super + 64, row, s->min);
    }
    at[row] = s->part[0];
    at[PANEL_ROWS + row] = s->part[1];
}

/* 32 upper bits, one of each value in order, as the word of bits 5: byte i has those of values i,
 * i + 4, i + 8 ... */
static inline uint32_t int_upper_bits(uint32_t bits)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t x = bits >> i & 0x11111111;
        x = (x | x >> 3) & 0x03030303;
        x = (x | x >> 6) & 0x000f000f;
        word |= ((x | x >> 12) & 0xff) << 8 * i;
    }
    return word;
}

/* The definition of a panel's values: row `row` as floats. */
void int_unpack(const struct int_format *f, const uint8_t *w, uint32_t row, uint32_t n_in,
                float *out);
void int_decode_scalar(const struct int_format *f, const uint8_t *w, uint32_t begin, uint32_t n,
                       struct int_decoded *out);

/* Tiles of so many rows fetch for others, so many lines a block. */
enum { INT_FETCH_ROWS = 4, INT_FETCH_LINES = 2 };

/* acc [mt, PANEL_ROWS] += blocks [begin, begin + n) of the rows of a tile times those of w: block after
 * block, plane after plane, per group of 32 (or 16) values acc = acc + (scale * sum) * s, then, with
 * a minimum, acc = acc + min * (s * sum of q), s and q of the plane; the additions fused with their
 * products at levels above scalar. */
struct int_product {
    const uint8_t *w;            /* a panel: for tiles that read or decode it */
    struct int_decoded *decoded; /* n blocks: decoded, or room for a tile that decodes */
    uint32_t begin, n;
    const uint8_t *x,
        *low;            /* the tile's records from block `begin` on, of both planes (planes.h) */
    const uint8_t *fine; /* [n]: of two planes, which rows read the low one (fine.h); NULL: all */
    float *acc;
    const uint8_t *ahead; /* lines of 64 bytes to prefetch, n_ahead for each block */
    uint32_t n_ahead;
    const uint8_t *fetch; /* and for others, n_fetch for each block */
    uint32_t n_fetch;
};

/* Tiles of one kind of block: [level][planes - 1][rows - 1]; NULL: decode, then multiply. */
typedef void int_tile_fn(struct int_product *job);
struct int_tiles {
    int_tile_fn *tile[CPU_LEVELS][2][PLANES_TILE];
};

/* The tile of decoded blocks; NULL: int_multiply_scalar. */
int_tile_fn *int_tile(enum cpu_level level, const struct int_format *f, uint32_t n_planes,
                      uint32_t mt);
void int_multiply_scalar(const struct int_format *f, uint32_t n_planes, uint32_t mt,
                         const struct int_product *job);

/* Floats of n decoded blocks: [n * 32, PANEL_ROWS], for multiplying with float activations. */
void int_floats(enum cpu_level level, const struct int_format *f, const struct int_decoded *w,
                uint32_t n, float *out);
