/* [base] Which workers are guests on their processors: one that shares its processor with a busy
 * process holds up all others for a whole time slice whenever it is taken from it, so that two
 * workers beside one busy process are slower than one alone. So where time is lost, the worker
 * that lost most becomes a guest: it rests before its time is over, and the others do its part
 * meanwhile (workers.h). After a while it is tried again without, and where that does no better,
 * later and later. A single time slice that a neighbour took is no reason.
 *
 * Only time that another thread of this machine got is counted. It does not matter who lost it: a
 * neighbour that goes from one processor to the other every few milliseconds stays on that of
 * the guest. Pure arithmetic; owner: worker 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct crowd {
    uint32_t n, n_hosts; /* workers there are; those from n_hosts on are guests */
    bool calm;           /* there was no guest, and for a while nothing was lost */
    uint32_t strikes;    /* looks at which one lost more, since; each other look takes one back */
    uint32_t moved; /* after a look: this one and worker n_hosts exchange processors; n: nobody */
    uint64_t window_ns; /* time in runs since the last look */
    uint64_t rest_ns;   /* how long one is a guest */
    uint64_t again_ns;  /* the time when it is tried again */
};

void crowd_begin(struct crowd *c, uint32_t n);

/* After a run of `ran_ns` that ended at now_ns. lost_ns [n]: what each lost, summed by the caller
 * since the last true; true: looked at, start to sum anew. */
bool crowd_look(struct crowd *c, const uint64_t *lost_ns, uint64_t ran_ns, uint64_t now_ns);
