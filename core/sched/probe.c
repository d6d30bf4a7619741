/* [05 scheduler] when to try more rows than seem to pay. */
#include "core/sched/probe.h"

/* Of the tokens as it is, what makes a step hopeful; of the time foretold, what is a surprise. */
static const double worth = 0.5, surprise = 0.8;

void probe_open(struct probe *p) { *p = (struct probe){.pause = PROBE_SOON}; }

bool probe_due(struct probe *p, double tokens, double more)
{
    if (more < worth * tokens || ++p->n_hopeful < p->pause)
        return false;
    p->n_hopeful = 0;
    p->pause = 2 * p->pause < PROBE_LATE ? 2 * p->pause : PROBE_LATE;
    return true;
}

void probe_begin(struct probe *p, const struct pace *pace, const struct load *load)
{
    p->load = *load;
    p->foretold_ns = pace_ns(pace, load);
}

void probe_end(struct probe *p, const struct pace *pace)
{
    if (pace_ns(pace, &p->load) < surprise * p->foretold_ns)
        p->pause = PROBE_SOON;
    p->foretold_ns = 0;
}
