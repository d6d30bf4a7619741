/* [05 scheduler] Steps that are longer than seems to pay, so that what it seems is not believed for
 * ever: a number of rows that never occurs is never measured, and the one measurement of the start may
 * have been taken beside a busy process. Where guesses would bring half as many tokens again, now and
 * then a step has about twice the rows; pace.h learns what they cost, and the next draft is as long as
 * pays. The pauses between two double, unless one was much cheaper than foretold.
 *
 * One scheduler owns a probe. ON_ENGINE. */
#pragma once

#include "core/sched/pace.h"

#include <stdbool.h>
#include <stdint.h>

enum { PROBE_SOON = 8, PROBE_LATE = 1024 /* hopeful steps between two */ };

struct probe {
    uint32_t n_hopeful, pause; /* since the last one; how many until the next */
    struct load load;          /* of the decode rows of the last one */
    double foretold_ns;        /* 0: none since it was last looked at */
};

void probe_open(struct probe *p);

/* A step of `tokens` (expected) could have `more`. True: more rows are tried in this one. */
bool probe_due(struct probe *p, double tokens, double more);

/* This step has `load` for it. */
void probe_begin(struct probe *p, const struct pace *pace, const struct load *load);

/* Before the next step is planned: what has been learnt. */
void probe_end(struct probe *p, const struct pace *pace);
