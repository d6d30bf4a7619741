/* [kernel] panel BF16: the upper halves of floats [n_in, 32]. */
#include "core/kernel/panel_float_variants.h"

extern const struct panel panel_bf16;

FLOAT_PANEL(bf16, FLOAT_BRAIN)
