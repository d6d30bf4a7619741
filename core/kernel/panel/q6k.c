/* [kernel] panel Q6_K: 6 bits less 32; per 16 values a signed 8-bit part of a scale; per 256 the
 * factor in half precision. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q6k;

INT_PANEL(q6k, 6, 32, SCALES_K_HALVES)
