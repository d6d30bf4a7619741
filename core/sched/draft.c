/* [05 scheduler] what may come next, from the text itself. */
#include "core/sched/draft.h"

#include "core/base/mem.h"

#include <string.h>

enum { LONGEST = 3, SHORTEST = 2, ENDS_MAX = 1 << 15 };

/* A guess's weight after each later one; what is believed before any; how much more than its price a
 * row must promise, for the price is an estimate. */
static const double fade = 0.95, held_before = 0.5, failed_before = 1.5, margin = 1.25;

void draft_open(struct draft *d, uint32_t cap)
{
    *d = (struct draft){.n_ends = 64};
    while (d->n_ends < 2 * (uint64_t)cap && d->n_ends < ENDS_MAX)
        d->n_ends *= 2;
    d->ends = mem_new(d->n_ends, sizeof(*d->ends));
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

static void index_until(struct draft *d, const uint32_t *timeline, uint32_t n)
{
    if (d->n_indexed < SHORTEST)
        d->n_indexed = SHORTEST;
    for (; d->n_indexed < n; d->n_indexed++)
        for (uint32_t k = SHORTEST; k <= LONGEST && k <= d->n_indexed; k++)
            *place(d, timeline, d->n_indexed, k) = d->n_indexed;
}

void draft_guess(struct draft *d, const uint32_t *timeline, uint32_t n)
{
    d->n = 0;
    if (!d->ends)
        return;
    index_until(d, timeline, n); /* all suffixes but the last, which is looked for */
    for (uint32_t k = LONGEST; k >= SHORTEST && !d->n; k--) {
        uint32_t end = n > k ? *place(d, timeline, n, k) : 0;
        if (end < k || end >= n ||
            memcmp(timeline + end - k, timeline + n - k, k * sizeof(*timeline)) != 0)
            continue;                            /* another suffix of the same hash */
        for (uint32_t i = 0; i < DRAFT_MAX; i++) /* a repetition goes on into the guess itself */
            d->id[i] = end + i < n ? timeline[end + i] : d->id[end + i - n];
        d->n = DRAFT_MAX;
        d->suffix = k - SHORTEST;
    }
}

void draft_learn(struct draft *d, const uint32_t *picked, uint32_t n_picked, uint32_t n_rows)
{
    uint32_t n_tried = n_rows ? n_rows : 1, i = 0;
    double *held = &d->held[d->suffix], *failed = &d->failed[d->suffix];
    for (bool holds = true; d->n && holds && i < n_picked && i < n_tried; i++) {
        holds = picked[i] == d->id[i];
        *held = *held * fade + holds;
        *failed = *failed * fade + !holds;
    }
    d->n = 0;
}

double draft_hope(const struct draft *d)
{
    double held = d->held[d->suffix] + held_before, failed = d->failed[d->suffix] + failed_before;
    return held / (held + failed);
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
