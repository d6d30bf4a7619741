/* [kernel] panel F16: halves [n_in, 32], widened in registers. */
#include "core/kernel/panel_float_variants.h"

extern const struct panel panel_f16;

FLOAT_PANEL(f16, FLOAT_HALF, avx512)
