/* [kernel] type Q8_0: 32 values in 8 bits, a half-precision scale d.
 * Block: d, 32 int8. w = d q. */
#include "core/kernel/panel_int.h"
#include "core/kernel/quant_types.h"

#include <string.h>

enum { ELEMS = 32, BYTES = 34 };

/* The codes of a block in order. */
static void codes_of(const uint8_t *p, uint8_t codes[ELEMS])
{
    for (int i = 0; i < ELEMS; i++)
        codes[i] = (uint8_t)(p[2 + i] ^ 128); /* q + 128 */
}

void quant_dequant_q8_0(float *out, const uint8_t *blocks, size_t n_elems)
{
    uint8_t codes[ELEMS];
    for (; n_elems >= ELEMS; n_elems -= ELEMS, blocks += BYTES) {
        float d = quant_half_to_float(quant_read16(blocks));
        codes_of(blocks, codes);
        for (int i = 0; i < ELEMS; i++)
            *out++ = (float)(codes[i] - 128) * d;
    }
}

void quant_pack_q8_0(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    uint32_t words[8];
    for (uint32_t b = 0; b < n_in / ELEMS; b++, blocks += BYTES) {
        struct int_scale s = {quant_read16(blocks), 0, {0}};
        memcpy(words, blocks + 2, 32);
        for (int i = 0; i < 8; i++)
            words[i] ^= 0x80808080; /* q + 128 */
        int_put(8, SCALES_HALF, panel, row, b, words, &s);
    }
}
