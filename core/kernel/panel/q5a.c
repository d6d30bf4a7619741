/* [kernel] panel Q5_1: 5 bits, scale and minimum in half precision per 32 values. 768 bytes a
 * block. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q5a;

INT_PANEL(q5a, 5, 0, SCALES_HALF_MIN)
