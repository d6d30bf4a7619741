/* [kernel] panel Q5_0: 5 bits less 16, a half-precision scale per 32 values. 704 bytes a block. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q5;

INT_PANEL(q5, 5, 16, SCALES_HALF)
