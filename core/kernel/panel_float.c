/* [kernel] what the float panels share. */
#include "core/kernel/panel_float.h"

#include <string.h>

void float_put(uint8_t *w, uint32_t row, const uint8_t *elements, uint32_t n_in,
               uint32_t elem_bytes)
{
    for (uint32_t k = 0; k < n_in; k++)
        memcpy(w + ((size_t)k * PANEL_ROWS + row) * elem_bytes, elements + (size_t)k * elem_bytes,
               elem_bytes);
}
