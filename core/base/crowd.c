/* [base] which workers are guests beside busy neighbours. */
#include "core/base/crowd.h"

/* A look is taken each WINDOW of running time: some time slices of a neighbour (3 ms). */
#define WINDOW_NS    20000000u
#define LEAST_REST   250000000u
#define LONGEST_REST 4000000000u

enum { STRIKES = 3 /* at which one becomes a guest, where all was calm */ };

void crowd_begin(struct crowd *c, uint32_t n)
{
    *c = (struct crowd){.n = n, .n_hosts = n, .calm = true, .moved = n, .rest_ns = LEAST_REST};
}

/* The host that lost most, if that was more than a sixth of the window, or n. The last host
 * stays one; it only moves, where a guest lost much less: the neighbour came over. */
static uint32_t loser(const struct crowd *c, const uint64_t *lost_ns)
{
    uint64_t least = UINT64_MAX;
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        most = i < c->n_hosts && lost_ns[i] > lost_ns[most] ? i : most;
        least = lost_ns[i] < least ? lost_ns[i] : least;
    }
    bool much = lost_ns[most] > c->window_ns / 6;
    return much && (c->n_hosts > 1 || least < lost_ns[most] / 3) ? most : c->n;
}

bool crowd_look(struct crowd *c, const uint64_t *lost_ns, uint64_t ran_ns, uint64_t now_ns)
{
    c->window_ns += ran_ns;
    if (c->window_ns < WINDOW_NS)
        return false;
    uint32_t most = loser(c, lost_ns);
    bool struck = most < c->n;
    c->moved = c->n;
    c->strikes = struck ? c->strikes + 1 : c->strikes ? c->strikes - 1 : 0;
    if (struck && (c->strikes >= STRIKES || !c->calm)) {
        c->strikes = 0;
        c->rest_ns = c->calm ? LEAST_REST : c->n_hosts == 1 ? c->rest_ns : c->rest_ns * 2;
        c->rest_ns = c->rest_ns < LONGEST_REST ? c->rest_ns : LONGEST_REST;
        c->again_ns = now_ns + c->rest_ns;
        c->n_hosts -= c->n_hosts > 1;
        c->moved = most;
        c->calm = false;
    } else if (c->n_hosts == c->n) {
        c->calm |= !struck;
    } else if (now_ns >= c->again_ns) {
        c->n_hosts++;
    }
    c->window_ns = 0;
    return true;
}
