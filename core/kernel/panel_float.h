/* [kernel] Float panels: [n_in, PANEL_ROWS] elements of 4 or 2 bytes. */
#pragma once

#include "core/kernel/panel.h"

/* For packing: copies one row of elements (2 or 4 bytes each) to place `row` of a panel. */
void float_put(uint8_t *w, uint32_t row, const uint8_t *elements, uint32_t n_in,
               uint32_t elem_bytes);
