/* [kernel] What each file in quant/ provides to the table: one pair of functions per row of
 * quant.def. */
#pragma once

#include "core/kernel/quant.h"

#define QUANT(id, gguf, elems, bytes, panel)                                                       \
    void quant_dequant_##id(float *out, const uint8_t *blocks, size_t n_elems);                    \
    void quant_pack_##id(uint8_t *to, uint32_t row, const uint8_t *blocks, uint32_t n_in);
#include "core/kernel/quant.def"
#undef QUANT
