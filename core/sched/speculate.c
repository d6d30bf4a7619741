/* [05 scheduler] the drafts of a step: for each running stream as many guessed tokens as pay, and now
 * and then more (probe.h).
 *
 * Streams without a draft wait for the rows of the others: together these may take SHARE of the step,
 * so that nobody's gain is another's loss. Prompt rows come on top, as beside any decode rows. */
#include "core/base/mem.h"
#include "core/sched/scheduler.h"

#include <string.h>

#define SHARE 0.1 /* of the time of the decode rows */

/* What a draft may have: tokens left to say (each step says one anyway), room in the ring, and no end
 * token, behind which nothing is said. */
static uint32_t most_of(const struct scheduler *s, const struct request *r)
{
    uint32_t left = r->n_max - atomic_load(&r->n_completion), room = ring_room(&r->ring), n = 0;
    uint32_t most = left < room ? left : room;
    while (n + 1 < most && n < DRAFT_MAX && n < r->draft.n && !scheduler_is_end(s, r->draft.id[n]))
        n++;
    return n;
}

static void set(struct request *r, uint32_t n)
{
    ASSERT(r->n_timeline + n <= r->cap_timeline);
    r->n_draft = n;
    memcpy(r->timeline + r->n_timeline, r->draft.id, n * sizeof(*r->timeline));
}

/* Guesses for all that decode. Returns how many do; *n_guesses: of them have one. */
ON_ENGINE static uint32_t guess(struct scheduler *s, struct load *load, uint32_t *n_guesses)
{
    uint32_t n = 0;
    *n_guesses = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        r->draft.n = 0;
        if (request_in_prompt(r) || r->blocked)
            continue;
        if (!r->draft.n_ends) {
            draft_open(&r->draft, r->cap_timeline);
            draft_read(&r->draft, r->timeline, r->n_timeline);
        }
        draft_guess(&r->draft, r->timeline, r->n_timeline);
        *n_guesses += r->draft.n > 0;
        load_add(load, LOAD_DECODE, r->seq.n_tokens, 1);
        n++;
    }
    return n;
}

/* As many guessed tokens each as pay. Returns the tokens that the step will probably give. */
ON_ENGINE static double draft(struct scheduler *s, struct load *load, uint32_t rows, double tokens,
                              double limit_ns)
{
    bool always = s->o.speculation == SPECULATION_ON;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        uint32_t most = most_of(s, r), end = r->n_timeline;
        most = most < rows ? most : rows;
        uint32_t k =
            always ? most : draft_rows(&r->draft, &s->pace, load, tokens, end, most, limit_ns);
        set(r, k);
        rows -= k;
        load_add(load, LOAD_DECODE, end, k);
        tokens += draft_gain(&r->draft, k);
    }
    return tokens;
}

/* A draft where twice the rows of this stream are tried. */
static uint32_t twice(const struct scheduler *s, const struct request *r)
{
    uint32_t most = most_of(s, r), k = 2 * r->n_draft + 1;
    return k < most ? k : most;
}

/* What drafts of twice the rows would probably bring beyond the chosen ones; 0: beside prompt rows,
 * where a step does not tell what they cost. */
static double missed(const struct scheduler *s)
{
    double more = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        if (request_in_prompt(r))
            return 0;
        if (r->draft.n)
            more += draft_gain(&r->draft, twice(s, r)) - draft_gain(&r->draft, r->n_draft);
    }
    return more;
}

/* Longer drafts than seem to pay: `rows` more at most. */
ON_ENGINE static void try_more(struct scheduler *s, struct load *load, uint32_t rows)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        uint32_t k = r->draft.n ? twice(s, r) : 0, more = k > r->n_draft ? k - r->n_draft : 0;
        more = more < rows ? more : rows;
        load_add(load, LOAD_DECODE, r->n_timeline + r->n_draft, more);
        rows -= more;
        set(r, r->n_draft + more);
    }
    probe_begin(&s->probe, &s->pace, load);
}

void scheduler_speculate(struct scheduler *s)
{
    struct load load = {0};
    uint32_t rows = s->o.max_logits - s->o.max_running, n_guesses;
    if (s->o.speculation == SPECULATION_OFF || !rows)
        return;
    probe_end(&s->probe, &s->pace);
    uint32_t n = guess(s, &load, &n_guesses);
    if (!n_guesses)
        return;
    double limit_ns = (n_guesses < n ? 1 + SHARE : 4) * pace_ns(&s->pace, &load);
    double tokens = draft(s, &load, rows, n, limit_ns);
    if (s->o.speculation == SPECULATION_AUTO && probe_due(&s->probe, tokens, missed(s)))
        try_more(s, &load, rows - (load_rows(&load) - n));
}
