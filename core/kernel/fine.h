/* [kernel] Which blocks of two planes are read finely: of every row the high plane is read; the low one
 * too where the row's high scale there is not below its `least`. Found once for all panels.
 * ANY_THREAD: pure functions of pointers. */
#pragma once

#include "core/kernel/planes.h"

/* Bytes of room for at most n_rows rows of n_in values. */
size_t fine_bytes(uint32_t n_rows, uint32_t n_in);

/* fine [tiles, n_blocks]: bit t says that row t of the tile reads its low plane there. least [n_rows];
 * x of two planes. */
void fine_choose(const struct planes *x, const float *least, uint8_t *fine);
