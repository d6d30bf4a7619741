/* [kernel] type Q6_K: 256 values in 6 bits; per 16 a signed 8-bit part of a scale.
 * Block: 128 bytes of low nibbles, 64 of upper bits, 16 int8 parts, d (half). w = (d part) (q - 32). */
#include "core/kernel/panel_int.h"
#include "core/kernel/quant_types.h"

#include <string.h>

enum { ELEMS = 256, BYTES = 210, UPPER = 128, PARTS = 192, SCALE = 208 };

/* Each half of the block holds 128 values in four runs of 32: runs 0 and 1 in the low nibbles of
 * 64 bytes, runs 2 and 3 in the high ones; run r has bits 2r and 2r + 1 of 32 upper bytes. */
static void codes_of(const uint8_t *p, uint8_t codes[ELEMS])
{
    for (int i = 0; i < ELEMS; i++) {
        int half = i / 128, run = i % 128 / 32, at = i % 32;
        uint8_t both = p[half * 64 + run % 2 * 32 + at];
        uint8_t upper = p[UPPER + half * 32 + at] >> 2 * run & 3;
        codes[i] = (uint8_t)((run < 2 ? both & 15 : both >> 4) | upper << 4);
    }
}

void quant_dequant_q6_k(float *out, const uint8_t *blocks, size_t n_elems)
{
    uint8_t codes[ELEMS];
    for (; n_elems >= ELEMS; n_elems -= ELEMS, blocks += BYTES) {
        float d = quant_half_to_float(quant_read16(blocks + SCALE));
        codes_of(blocks, codes);
        for (int i = 0; i < ELEMS; i++)
            *out++ = d * (float)(int8_t)blocks[PARTS + i / 16] * (float)(codes[i] - 32);
    }
}

/* Words of the j-th 32 values: values i and i + 16 of them in a byte, then four values' upper bits,
 * i, i + 4, i + 8 and i + 12, in a byte. */
static void words_of(const uint8_t *p, uint32_t j, uint32_t words[6])
{
    uint32_t half = j / 4, run = j % 4, shift = run / 2 * 4, from[8], upper[8];
    memcpy(from, p + (size_t)half * 64 + (size_t)run % 2 * 32, sizeof(from));
    memcpy(upper, p + UPPER + (size_t)half * 32, sizeof(upper));
    for (int i = 0; i < 4; i++)
        words[i] = (from[i] >> shift & 0x0f0f0f0f) | (from[i + 4] >> shift & 0x0f0f0f0f) << 4;
    for (int i = 0; i < 2; i++) {
        words[4 + i] = 0;
        for (int k = 0; k < 4; k++)
            words[4 + i] |= (upper[4 * i + k] >> 2 * run & 0x03030303) << 2 * k;
    }
}

void quant_pack_q6_k(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    for (uint32_t b = 0; b < n_in / ELEMS; b++, blocks += BYTES) {
        struct int_scale s = {quant_read16(blocks + SCALE), 0, {0}};
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t words[6];
            words_of(blocks, j, words);
            s.part[0] = blocks[PARTS + 2 * j];
            s.part[1] = blocks[PARTS + 2 * j + 1];
            int_put(6, SCALES_K_HALVES, panel, row, 8 * b + j, words, &s);
        }
    }
}
