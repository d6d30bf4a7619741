/* [14 sample] What the stages of sampling work on: the candidates for one position, and whose
 * they are. */
#pragma once

#include "core/sample/sample.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct candidate {
    uint32_t id;
    float logit; /* never NaN, never +inf */
};

enum {
    CHAIN_BLOCK = 256, /* candidates */
    CHAIN_PEAK = 64,   /* logits */
};

struct chain {
    const struct sample_params *params;
    float *logits;       /* [n_vocab] as they came, until `candidates` */
    struct candidate *c; /* [n] left, from `candidates` on; room for n_vocab */
    uint32_t n;
    bool sorted; /* best first */
    uint32_t n_vocab, pos;
    const uint32_t *timeline, *banned;
    uint32_t n_timeline, n_banned;
    uint32_t *count; /* [n_vocab] zeros between calls; NULL without penalties */
    double *block;   /* [n_vocab / CHAIN_BLOCK + 1] sums of blocks of candidates */
    float *peak;     /* [n_vocab / CHAIN_PEAK + 1] maxima of blocks of logits */
};

/* A logit as the stages take it: NaN is impossible, and no difference of two is NaN. */
static inline float logit_clean(float x)
{
    return isnan(x) ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}

#define SAMPLER(id) void sampler_##id(struct chain *ch);
#include "core/sample/sampler.def"
#undef SAMPLER

/* a stands before b: by logit, of equal ones the lowest id. A total order. */
static inline bool candidate_before(struct candidate a, struct candidate b)
{
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/* Keeps the k best (1 <= k), sorted. */
void chain_keep(struct chain *ch, uint32_t k);

/* The best candidate's logit. */
float chain_best(const struct chain *ch);

/* Puts the candidates in an order of which chain_next takes the best one off, one by one: the whole
 * costs O(n + taken * log n). */
void chain_heapify(struct chain *ch);
struct candidate chain_next(struct chain *ch, uint32_t taken); /* the (taken + 1)-th best */

/* After m were taken: they are the candidates, sorted. */
void chain_taken(struct chain *ch, uint32_t m);
