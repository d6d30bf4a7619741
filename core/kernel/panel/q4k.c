/* [kernel] panel Q4_K: 4 bits; per 32 values the 6-bit parts of a scale and a minimum, widened to
 * a byte (2.8 % more than the file); per 256 the half-precision factors of both. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q4k;

INT_PANEL(q4k, 4, 0, SCALES_K_MIN)
