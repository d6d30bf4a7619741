/* [kernel] Which blocks of two planes are read finely: of all rows the high plane is read; of a row
 * also the low one where its high scale there is not below the row's `least`. A tile reads the low
 * plane of the blocks that one of its rows reads so, with factors of 0 for its other rows. Found once
 * for all panels. ANY_THREAD: pure functions of pointers. */
#pragma once

#include "core/kernel/planes.h"

#include <stdbool.h>

/* blocks [tiles, n_blocks]: which are read so; NULL: all. starts [tiles, chunks]: how many of a tile's
 * come before a chunk. records: those of them of the low plane, one after the other, from where the
 * tile's of one plane would begin (planes.h); NULL: the plane's own. */
struct fine {
    const bool *blocks;
    const uint32_t *starts;
    const uint8_t *records;
};

/* Bytes of room for at most n_rows rows of n_in values, 64-byte aligned. */
size_t fine_bytes(uint32_t n_rows, uint32_t n_in);

/* least [n_rows]; x NULL or of one plane: only `blocks` is not NULL. */
struct fine fine_choose(const struct planes *x, const float *least, void *room);
