/* [base] which workers sit out beside busy neighbours. */
#include "core/base/crowd.h"

/* A look is taken each WINDOW of running time: some time slices of a neighbour (3 ms). */
#define WINDOW_NS    20000000u
#define LEAST_REST   250000000u
#define LONGEST_REST 4000000000u

enum { STRIKES = 3 /* at which one sits out, where all was calm */ };

void crowd_begin(struct crowd *c, uint32_t n)
{
    *c = (struct crowd){.n = n, .n_active = n, .calm = true, .rest_ns = LEAST_REST};
}

/* One lost more than a sixth of the window, and another less than a third of that. */
static bool uneven(const struct crowd *c, const uint64_t *lost_ns)
{
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_active; i++) {
        most = lost_ns[i] > most ? lost_ns[i] : most;
        least = lost_ns[i] < least ? lost_ns[i] : least;
    }
    return most > c->window_ns / 6 && least < most / 3;
}

bool crowd_look(struct crowd *c, const uint64_t *lost_ns, uint64_t ran_ns, uint64_t now_ns)
{
    c->window_ns += ran_ns;
    if (c->window_ns < WINDOW_NS)
        return false;
    bool struck = uneven(c, lost_ns);
    c->strikes = struck ? c->strikes + 1 : c->strikes ? c->strikes - 1 : 0;
    if (struck && (c->strikes >= STRIKES || !c->calm)) {
        c->strikes = 0;
        c->rest_ns = c->calm ? LEAST_REST : c->rest_ns * 2;
        c->rest_ns = c->rest_ns < LONGEST_REST ? c->rest_ns : LONGEST_REST;
        c->again_ns = now_ns + c->rest_ns;
        c->n_active--;
        c->calm = false;
    } else if (c->n_active == c->n) {
        c->calm |= !struck;
    } else if (now_ns >= c->again_ns) {
        c->n_active++;
    }
    c->window_ns = 0;
    return true;
}
