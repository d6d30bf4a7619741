/* [kernel] What each file in quant/ provides to the table: one pair of functions per row of
 * quant.def. */
#pragma once

#include "core/kernel/quant.h"

#define QUANT(id, gguf, elems, bytes, panel)                                                       \
    void quant_dequant_##id(float *out, const uint8_t *blocks, size_t n_elems);                    \
    void quant_pack_##id(uint8_t *to, uint32_t row, const uint8_t *blocks, uint32_t n_in);
#include "core/kernel/quant.def"
#undef QUANT

/* A minimum. An infinite one, which only a damaged file has, is NaN in a panel: infinity times the 0
 * of a row that does not read a plane would be, but only in company (panel_int.h). */
static inline uint16_t quant_read_min(const uint8_t *p)
{
    uint16_t h = quant_read16(p);
    return (h & 0x7fff) == 0x7c00 ? (uint16_t)(h | 0x200) : h;
}
