/* [kernel] panel Q8_0: 8 bits less 128, a half-precision scale per 32 values. 1088 bytes a block. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q8;

INT_PANEL(q8, 8, 128, SCALES_HALF)
