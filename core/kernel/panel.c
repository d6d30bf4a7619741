/* [kernel] the table of panel formats. */
#include "core/kernel/panel.h"

#define PANEL(id) extern const struct panel panel_##id;
#include "core/kernel/panel.def"
#undef PANEL

const struct panel *const panel_table[PANEL_COUNT] = {
#define PANEL(id) &panel_##id,
#include "core/kernel/panel.def"
#undef PANEL
};
