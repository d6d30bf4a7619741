/* [kernel] type Q5_1: 32 values in 5 bits, a half-precision scale d and minimum m.
 * Block: d, m, 32 upper bits, 16 bytes (value i low, value i + 16 high). w = d q + m. */
#include "core/kernel/panel_int.h"
#include "core/kernel/quant_types.h"

#include <string.h>

enum { ELEMS = 32, BYTES = 24 };

/* The codes of a block in order. */
static void codes_of(const uint8_t *p, uint8_t codes[ELEMS])
{
    uint32_t upper = quant_read16(p + 4) | (uint32_t)quant_read16(p + 6) << 16;
    for (int i = 0; i < ELEMS / 2; i++) {
        codes[i] = (uint8_t)((p[8 + i] & 15) | (upper >> i & 1) << 4);
        codes[i + 16] = (uint8_t)(p[8 + i] >> 4 | (upper >> (i + 16) & 1) << 4);
    }
}

void quant_dequant_q5_1(float *out, const uint8_t *blocks, size_t n_elems)
{
    uint8_t codes[ELEMS];
    for (; n_elems >= ELEMS; n_elems -= ELEMS, blocks += BYTES) {
        float d = quant_half_to_float(quant_read16(blocks));
        float m = quant_half_to_float(quant_read16(blocks + 2));
        codes_of(blocks, codes);
        for (int i = 0; i < ELEMS; i++)
            *out++ = (float)codes[i] * d + m;
    }
}

void quant_pack_q5_1(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    uint32_t words[5];
    for (uint32_t b = 0; b < n_in / ELEMS; b++, blocks += BYTES) {
        struct int_scale s = {quant_read16(blocks), quant_read_min(blocks + 2), {0}};
        uint32_t upper;
        memcpy(words, blocks + 8, 16); /* value i low, i + 16 high: as in the panel */
        memcpy(&upper, blocks + 4, 4);
        words[4] = int_upper_bits(upper);
        int_put(5, SCALES_HALF_MIN, panel, row, b, words, &s);
    }
}
