/* [kernel] type F32: floats, little-endian. */
#include "core/kernel/panel_float.h"
#include "core/kernel/quant_types.h"

#include <string.h>

void quant_dequant_f32(float *out, const uint8_t *blocks, size_t n_elems)
{
    memcpy(out, blocks, n_elems * sizeof(*out));
}

void quant_pack_f32(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in)
{
    float_put(panel, row, blocks, n_in, sizeof(float));
}
