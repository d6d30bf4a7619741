/* [kernel] panel F32: floats [n_in, 32]. */
#include "core/kernel/panel_float_variants.h"

extern const struct panel panel_f32;

FLOAT_PANEL(f32, FLOAT_WHOLE, avx512)
