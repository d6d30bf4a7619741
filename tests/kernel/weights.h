/* Weights for kernel tests: random and edge rows of every file type, and a reading of them that
 * shares no code with core/kernel: one value at a time, straight from the block's description. */
#pragma once

#include "core/kernel/quant.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum data {
    DATA_RANDOM,
    DATA_ZERO,
    DATA_MOST,
    DATA_LEAST,
    DATA_LARGE,
    DATA_TINY,
    DATA_UNIT,
    DATAS
};
static const char *const data_names[DATAS] = {"random", "zero", "most", "least",
                                              "large",  "tiny", "unit"};

static uint64_t random_state = 88172645463325252U;
static inline uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}
static inline float random_float(void) { return (float)(int32_t)random_bits() * 0x1p-31F; }

/* A value w = scale * code + min as integers and floats; float types: code 0, min the value. */
struct part {
    float scale, min;
    int32_t code;
};

static inline float ref_half(const uint8_t *p)
{
    uint32_t h = p[0] + 256U * p[1];
    double fraction = h % 1024, sign = h >= 32768 ? -1 : 1;
    int exponent = (int)(h / 1024 % 32);
    return (float)(sign * (exponent ? ldexp(1 + fraction / 1024, exponent - 15)
                                    : ldexp(fraction / 1024, -14)));
}

static inline int nibble(const uint8_t *p, uint32_t i, uint32_t run)
{
    return i % (2 * run) < run ? p[i / (2 * run) * run + i % run] % 16
                               : p[i / (2 * run) * run + i % run] / 16;
}

static inline struct part ref_q4_k(const uint8_t *p, uint32_t i)
{
    uint32_t j = i / 32;
    const uint8_t *s = p + 4;
    int scale = j < 4 ? s[j] % 64 : s[j + 4] % 16 + s[j - 4] / 64 * 16;
    int min = j < 4 ? s[j + 4] % 64 : s[j + 4] / 16 + s[j] / 64 * 16;
    return (struct part){ref_half(p) * (float)scale, -(ref_half(p + 2) * (float)min),
                         nibble(p + 16, i, 32)};
}

static inline struct part ref_q6_k(const uint8_t *p, uint32_t i)
{
    uint32_t half = i / 128, l = i % 32;
    const uint8_t *low = p + 64 * half, *high = p + 128 + 32 * half;
    const int8_t *scales = (const int8_t *)(p + 192);
    int code = 0;
    switch (i % 128 / 32) {
    case 0:
        code = low[l] % 16 + high[l] % 4 * 16;
        break;
    case 1:
        code = low[l + 32] % 16 + high[l] / 4 % 4 * 16;
        break;
    case 2:
        code = low[l] / 16 + high[l] / 16 % 4 * 16;
        break;
    case 3:
        code = low[l + 32] / 16 + high[l] / 64 * 16;
        break;
    }
    return (struct part){ref_half(p + 208) * (float)scales[i / 16], 0, code - 32};
}

/* Value i of a row. */
static inline struct part ref_value(enum quant_id type, const uint8_t *row, uint32_t i)
{
    const struct quant *q = &quant_table[type];
    const uint8_t *p = row + (size_t)(i / q->block_elems) * q->block_bytes;
    uint32_t bits;
    float f;
    i %= q->block_elems;
    switch (type) {
    case QUANT_f32:
        memcpy(&f, p, sizeof(f));
        return (struct part){0, f, 0};
    case QUANT_f16:
        return (struct part){0, ref_half(p), 0};
    case QUANT_bf16:
        bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
        memcpy(&f, &bits, sizeof(f));
        return (struct part){0, f, 0};
    case QUANT_q4_0:
        return (struct part){ref_half(p), 0, nibble(p + 2, i, 16) - 8};
    case QUANT_q4_1:
        return (struct part){ref_half(p), ref_half(p + 2), nibble(p + 4, i, 16)};
    case QUANT_q5_0:
        return (struct part){ref_half(p), 0,
                             nibble(p + 6, i, 16) + p[2 + i / 8] / (1 << i % 8) % 2 * 16 - 16};
    case QUANT_q5_1:
        return (struct part){ref_half(p), ref_half(p + 2),
                             nibble(p + 8, i, 16) + p[4 + i / 8] / (1 << i % 8) % 2 * 16};
    case QUANT_q8_0:
        return (struct part){ref_half(p), 0, (int8_t)p[2 + i]};
    case QUANT_q4_k:
        return ref_q4_k(p, i);
    case QUANT_q6_k:
        return ref_q6_k(p, i);
    default:
        abort();
    }
}

static inline float part_float(enum quant_id type, struct part v)
{
    float product = (float)v.code * v.scale;
    return type <= QUANT_bf16 ? v.min : v.min != 0 ? product + v.min : product;
}
static inline float ref_float(enum quant_id type, const uint8_t *row, uint32_t i)
{
    return part_float(type, ref_value(type, row, i));
}

/* Values of k that share a scale; the float types have none. */
static inline uint32_t ref_group(enum quant_id type) { return type == QUANT_q6_k ? 16 : 32; }

static inline uint16_t data_half(enum data d)
{
    switch (d) {
    case DATA_ZERO:
        return 0;
    case DATA_LARGE:
        return (uint16_t)(0x7bff | (random_bits() & 0x8000));
    case DATA_TINY:
        return (uint16_t)(random_bits() & 0x83ff);
    case DATA_UNIT:
        return (uint16_t)(0x3c00 | (random_bits() & 0x8000));
    default:
        return quant_float_to_half(random_float() * 0.02F);
    }
}

static inline void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* Offsets of the halves in a block. */
static inline int halves_at(enum quant_id type, uint32_t at[2])
{
    at[0] = type == QUANT_q6_k ? 208 : 0;
    at[1] = 2;
    return type == QUANT_q4_1 || type == QUANT_q5_1 || type == QUANT_q4_k ? 2 : 1;
}

static inline void data_float(enum quant_id type, enum data d, uint8_t *p)
{
    float f = d == DATA_ZERO    ? 0
              : d == DATA_LARGE ? random_float() * 60000
              : d == DATA_TINY  ? random_float() * 1e-6F
              : d == DATA_UNIT  ? (float)(int)(random_bits() % 15) - 7
                                : random_float();
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if (type == QUANT_f32)
        memcpy(p, &f, sizeof(f));
    else
        put16(p, type == QUANT_f16 ? quant_float_to_half(f) : (uint16_t)(bits >> 16));
}

/* One block of a type. */
static inline void data_block(enum quant_id type, enum data d, uint8_t *p)
{
    const struct quant *q = &quant_table[type];
    uint32_t at[2];
    if (type <= QUANT_bf16) {
        data_float(type, d, p);
        return;
    }
    for (uint32_t i = 0; i < q->block_bytes; i++)
        p[i] =
            d == DATA_ZERO    ? 0
            : d == DATA_MOST  ? (type == QUANT_q8_0 || (type == QUANT_q6_k && i >= 192) ? 127 : 255)
            : d == DATA_LEAST ? (type == QUANT_q8_0 || (type == QUANT_q6_k && i >= 192) ? 128 : 0)
                              : (uint8_t)random_bits();
    if (type == QUANT_q4_k && d == DATA_UNIT) /* parts 1 and 1: sums stay below 2^24 */
        memcpy(p + 4, "\1\1\1\1\1\1\1\1\21\21\21\21", 12);
    if (type == QUANT_q6_k && d == DATA_UNIT)
        for (int i = 0; i < 16; i++)
            p[192 + i] = (uint8_t)(i % 3 - 1);
    for (int i = 0, n = halves_at(type, at); i < n; i++)
        put16(p + at[i], data_half(d));
}

/* n_out rows of n_in values. Caller frees. */
static inline uint8_t *data_weights(enum quant_id type, enum data d, uint32_t n_out, uint32_t n_in)
{
    const struct quant *q = &quant_table[type];
    size_t n = (size_t)n_out * (n_in / q->block_elems);
    uint8_t *data = malloc(n * q->block_bytes);
    if (!data)
        abort();
    for (size_t i = 0; i < n; i++)
        data_block(type, d, data + i * q->block_bytes);
    return data;
}

static inline size_t data_row_bytes(enum quant_id type, uint32_t n_in)
{
    return (size_t)(n_in / quant_table[type].block_elems) * quant_table[type].block_bytes;
}
