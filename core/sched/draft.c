/* [05 scheduler] what may come next, from the text itself. */
#include "core/sched/draft.h"

#include "core/base/mem.h"

#include <string.h>

enum { LONGEST = 3, SHORTEST = 2, ENDS_MAX = 1 << 15 };

/* A guess's weight after each later one; what is believed before any; how many guesses of the answer
 * those of the prompt weigh at most; how much more than its price a row must promise, for the price is
 * an estimate. */
static const double fade = 0.95, held_before = 0.5, failed_before = 1.5, prompt_weight = 4,
                    margin = 1.25;

void draft_open(struct draft *d, uint32_t cap)
{
    *d = (struct draft){.n_ends = 64};
    while (d->n_ends < 2 * (uint64_t)cap && d->n_ends < ENDS_MAX)
        d->n_ends *= 2;
    d->ends = mem_new(d->n_ends, sizeof(*d->ends));
    for (int i = 0; i < DRAFT_KINDS; i++) {
        d->held[i] = held_before;
        d->failed[i] = failed_before;
    }
}

void draft_close(struct draft *d)
{
    free(d->ends);
    *d = (struct draft){0};
}

/* The place of the suffix of so many tokens that ends before `end`. */
static uint32_t *place(const struct draft *d, const uint32_t *timeline, uint32_t end,
                       uint32_t n_suffix)
{
    uint64_t h = n_suffix;
    for (uint32_t i = end - n_suffix; i < end; i++)
        h = (h ^ timeline[i]) * 0x9e3779b97f4a7c15u;
    return &d->ends[(h >> 40) & (d->n_ends - 1)];
}

/* All suffixes of timeline [n] but the last. */
static void index_until(struct draft *d, const uint32_t *timeline, uint32_t n)
{
    if (d->n_indexed < SHORTEST)
        d->n_indexed = SHORTEST;
    for (; d->n_indexed < n; d->n_indexed++)
        for (uint32_t k = SHORTEST; k <= LONGEST && k <= d->n_indexed; k++)
            *place(d, timeline, d->n_indexed, k) = d->n_indexed;
}

/* Where what follows timeline [n] is guessed from: d->from, 0 = nowhere. */
static void look(struct draft *d, const uint32_t *timeline, uint32_t n)
{
    index_until(d, timeline, n);
    d->kind = DRAFT_GOES_ON;
    for (uint32_t k = LONGEST; k >= SHORTEST && !d->from; k--) {
        uint32_t end = n > k ? *place(d, timeline, n, k) : 0;
        if (end < k || end >= n ||
            memcmp(timeline + end - k, timeline + n - k, k * sizeof(*timeline)) != 0)
            continue; /* another suffix of the same hash */
        d->from = end;
        d->kind = k == LONGEST ? DRAFT_LONG : DRAFT_SHORT;
    }
}

/* The next token was as guessed, or not, which ends that way through the text. */
static void count(struct draft *d, bool holds)
{
    d->held[d->kind] = d->held[d->kind] * fade + holds;
    d->failed[d->kind] = d->failed[d->kind] * fade + !holds;
    d->from = holds ? d->from + 1 : 0;
}

void draft_read(struct draft *d, const uint32_t *timeline, uint32_t n)
{
    for (uint32_t end = SHORTEST; d->ends && end < n; end++) {
        look(d, timeline, end);
        if (d->from)
            count(d, timeline[d->from] == timeline[end]);
    }
    for (int i = 0; i < DRAFT_KINDS; i++) {
        double weight = d->held[i] + d->failed[i];
        double part = weight > prompt_weight ? prompt_weight / weight : 1;
        d->held[i] *= part;
        d->failed[i] *= part;
    }
}

void draft_guess(struct draft *d, const uint32_t *timeline, uint32_t n)
{
    d->n = 0;
    if (!d->ends)
        return;
    look(d, timeline, n);
    for (uint32_t end = d->from; d->from && d->n < DRAFT_GUESSES; d->n++, end++)
        d->id[d->n] =
            end < n ? timeline[end] : d->id[end - n]; /* a repetition goes on into itself */
}

void draft_learn(struct draft *d, const uint32_t *picked, uint32_t n_picked)
{
    for (uint32_t i = 0; d->from && i < n_picked && i < d->n; i++)
        count(d, picked[i] == d->id[i]);
    d->n = 0;
}

double draft_hope(const struct draft *d)
{
    return d->held[d->kind] / (d->held[d->kind] + d->failed[d->kind]);
}

double draft_gain(const struct draft *d, uint32_t n)
{
    double p = draft_hope(d), holds = 1, gain = 0;
    for (uint32_t i = 0; i < n; i++) {
        holds *= p;
        gain += holds;
    }
    return gain;
}

/* A token is worth what one takes in the step as it is. */
uint32_t draft_rows(const struct draft *d, const struct pace *pace, const struct load *load,
                    double tokens, uint32_t pos, uint32_t most, double limit_ns)
{
    double now = pace_ns(pace, load), best = 0;
    struct load with = *load;
    uint32_t n = 0;
    most = most < d->n ? most : d->n;
    for (uint32_t k = 1; k <= most; k++) {
        load_add(&with, LOAD_DECODE, pos + k - 1, 1);
        double ns = pace_ns(pace, &with);
        double gain = draft_gain(d, k) * now / tokens - margin * (ns - now);
        if (ns > limit_ns)
            break;
        if (gain > best) {
            best = gain;
            n = k;
        }
    }
    return n;
}
