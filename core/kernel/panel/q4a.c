/* [kernel] panel Q4_1: 4 bits, scale and minimum in half precision per 32 values. 640 bytes a
 * block. */
#include "core/kernel/panel_int_variants.h"

extern const struct panel panel_q4a;

INT_PANEL(q4a, 4, 0, SCALES_HALF_MIN)
