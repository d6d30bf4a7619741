/* [kernel] panel Q4_0: 4 bits less 8, a half-precision scale per 32 values. 576 bytes a block. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q4;

INT_PANEL(q4, 4, 8, SCALES_HALF)
