/* [kernel] type BF16: the upper halves of floats. */
#include "core/kernel/panel_float.h"
#include "core/kernel/quant_types.h"

void quant_dequant_bf16(float *out, const uint8_t *blocks, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++)
        out[i] = quant_bf16_to_float(quant_read16(blocks + 2 * i));
}

void quant_pack_bf16(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    float_put(panel, row, blocks, n_in, sizeof(uint16_t));
}
