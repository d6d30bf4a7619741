/* [base] How many workers pay: a worker whose processor is taken by another process holds up all
 * others at the next barrier, for a whole time slice, so that two workers beside one busy process
 * are slower than one alone (measured: 31 % of the quiet speed in decode, one alone 52 %). So
 * a worker that loses much more of its time than the others makes one sit out; after a while it is
 * tried again, and where it does no better, later and later. A single time slice that a neighbour took
 * is no reason: without the worker that costs far more than the slice.
 *
 * Time lost by all alike (a quota, a machine crowded everywhere) is no reason: fewer workers would
 * not lose less. Pure arithmetic; owner: worker 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct crowd {
    uint32_t n, n_active; /* workers there are, and that run */
    bool calm;            /* all have run, and for a while nothing was lost: they may be pinned */
    uint32_t strikes;     /* looks at which one lost more, since; each other look takes one back */
    uint64_t window_ns;   /* time in runs since the last look */
    uint64_t rest_ns;     /* how long one sits out */
    uint64_t again_ns;    /* the time when it is tried again */
};

void crowd_begin(struct crowd *c, uint32_t n);

/* After a run of `ran_ns` that ended at now_ns. lost_ns [n_active]: what each lost, summed by the
 * caller since the last true; true: looked at, start to sum anew. */
bool crowd_look(struct crowd *c, const uint64_t *lost_ns, uint64_t ran_ns, uint64_t now_ns);
