/* [kernel] type Q4_1: 32 values in 4 bits, a half-precision scale d and minimum m.
 * Block: d, m, 16 bytes (value i low, value i + 16 high). w = d q + m. */
#include "core/kernel/panel_int.h"
#include "core/kernel/quant_types.h"

#include <string.h>

enum { ELEMS = 32, BYTES = 20 };

/* The codes of a block in order. */
static void codes_of(const uint8_t *p, uint8_t codes[ELEMS])
{
    for (int i = 0; i < ELEMS / 2; i++) {
        codes[i] = p[4 + i] & 15;
        codes[i + 16] = p[4 + i] >> 4;
    }
}

void quant_dequant_q4_1(float *out, const uint8_t *blocks, size_t n_elems)
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

void quant_pack_q4_1(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    uint32_t words[4];
    for (uint32_t b = 0; b < n_in / ELEMS; b++, blocks += BYTES) {
        struct int_scale s = {quant_read16(blocks), quant_read_min(blocks + 2), {0}};
        memcpy(words, blocks + 4, 16); /* value i low, i + 16 high: as in the panel */
        int_put(4, SCALES_HALF_MIN, panel, row, b, words, &s);
    }
}
