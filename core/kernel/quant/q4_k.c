/* [kernel] type Q4_K: 256 values in 4 bits; per 32 a 6-bit part of a scale and of a minimum.
 * Block: d, dmin (halves), 12 bytes of parts, 128 bytes of codes. w = (d scale) q - (dmin min). */
#include "core/kernel/panel_int.h"
#include "core/kernel/quant_types.h"

#include <string.h>

enum { ELEMS = 256, BYTES = 144, PARTS = 4, CODES = 16 };

/* Scale and minimum of the j-th 32 values: 6 bits each in 12 bytes. The first four lie in the low
 * bits of bytes 0-3 and 4-7; of the last four, the low 4 bits lie in bytes 8-11 and the upper 2
 * in the upper bits of bytes 0-3 and 4-7. */
static void parts_of(const uint8_t *p, uint32_t j, uint8_t part[2])
{
    if (j < 4) {
        part[0] = p[j] & 63;
        part[1] = p[j + 4] & 63;
    } else {
        part[0] = (uint8_t)((p[j + 4] & 15) | p[j - 4] >> 6 << 4);
        part[1] = (uint8_t)(p[j + 4] >> 4 | p[j] >> 6 << 4);
    }
}

/* 32 bytes hold 64 values: the first 32 in the low nibbles, the next 32 in the high ones. */
static void codes_of(const uint8_t *p, uint8_t codes[ELEMS])
{
    for (int i = 0; i < ELEMS; i++) {
        uint8_t both = p[CODES + i / 64 * 32 + i % 32];
        codes[i] = i % 64 < 32 ? both & 15 : both >> 4;
    }
}

void quant_dequant_q4_k(float *out, const uint8_t *blocks, size_t n_elems)
{
    uint8_t codes[ELEMS];
    for (; n_elems >= ELEMS; n_elems -= ELEMS, blocks += BYTES) {
        float d = quant_half_to_float(quant_read16(blocks));
        float dmin = quant_half_to_float(quant_read16(blocks + 2));
        codes_of(blocks, codes);
        for (uint32_t i = 0; i < ELEMS; i++) {
            uint8_t part[2];
            parts_of(blocks + PARTS, i / 32, part);
            *out++ = d * (float)part[0] * (float)codes[i] - dmin * (float)part[1];
        }
    }
}

/* Words of the j-th 32 values: values i and i + 16 of them in a byte. */
static void words_of(const uint8_t *p, uint32_t j, uint32_t words[4])
{
    uint32_t from[8], shift = j % 2 * 4;
    memcpy(from, p + CODES + (size_t)j / 2 * 32, sizeof(from));
    for (int i = 0; i < 4; i++)
        words[i] = (from[i] >> shift & 0x0f0f0f0f) | (from[i + 4] >> shift & 0x0f0f0f0f) << 4;
}

void quant_pack_q4_k(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    for (uint32_t b = 0; b < n_in / ELEMS; b++, blocks += BYTES) {
        struct int_scale s = {quant_read16(blocks), quant_read_min(blocks + 2), {0}};
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t words[4];
            words_of(blocks, j, words);
            parts_of(blocks + PARTS, j, s.part);
            int_put(4, SCALES_K_MIN, panel, row, 8 * b + j, words, &s);
        }
    }
}
