/* [12 block] A batch: the rows of one forward pass. A row is one token of one timeline at one
 * position; prefill gives a timeline many rows, decode one; the code is the same. */
#pragma once

#include "core/kv/seq.h"

struct batch_row {
    uint32_t token;
    uint32_t pos; /* absolute position in the timeline, 0 .. */
    const struct seq
        *seq;           /* its pages cover pos; rows of one seq are adjacent, pos rising by 1, and
                              positions below the first row's are already in the pages */
    int32_t logits_row; /* row of the logits to write, or -1: not wanted */
};

struct batch {
    const struct batch_row *rows; /* [n_rows] */
    uint32_t n_rows;
    uint32_t n_logits; /* rows wanted: logits_row is 0 .. n_logits-1, rising with the rows */
};
