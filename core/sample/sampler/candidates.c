/* [14 sample] candidates: every id with its logit; or, where only the k best count (top_k, at
 * temperature 0 the best), fewer that these are among, found without sorting a vocabulary: if t is
 * the k-th largest of the maxima of blocks, at least k logits are t or more, so what is less is not
 * among the k best. What the later stages choose is the same. */
#include "core/sample/chain.h"

#include <string.h>

enum { LANES = 4, PAIR = 2 * LANES, LINE = 16, AHEAD = 12 }; /* floats, floats, blocks */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t mask __attribute__((vector_size(LANES * sizeof(int32_t))));

static lanes load(const float *x)
{
    lanes v;
    memcpy(&v, x, sizeof(v));
    return v;
}

/* The larger ones; b's where a's are NaN. */
static lanes larger(lanes a, lanes b)
{
    mask is = a > b;
    return (lanes)(((mask)a & is) | ((mask)b & ~is));
}

/* The maximum of a whole block; NaN is less than all. Half of the logits were just written by other
 * processors: some blocks ahead are fetched from there. */
static float peak_of(const float *x) /* [CHAIN_PEAK] */
{
    lanes m[2] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                  {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    for (size_t i = 0; i < CHAIN_PEAK; i += LINE)
        __builtin_prefetch(x + (size_t)AHEAD * CHAIN_PEAK + i);
    for (size_t i = 0; i < CHAIN_PEAK; i += PAIR) {
        m[0] = larger(load(x + i), m[0]);
        m[1] = larger(load(x + i + LANES), m[1]);
    }
    m[0] = larger(m[0], m[1]);
    float peak = m[0][0];
    for (int l = 1; l < LANES; l++)
        peak = m[0][l] > peak ? m[0][l] : peak;
    return peak;
}

static uint32_t block_end(const struct chain *ch, uint32_t block)
{
    uint32_t end = (block + 1) * CHAIN_PEAK;
    return end < ch->n_vocab ? end : ch->n_vocab;
}

/* Returns the number of blocks. */
static uint32_t find_peaks(struct chain *ch)
{
    uint32_t n_whole = ch->n_vocab / CHAIN_PEAK, n = n_whole + (ch->n_vocab % CHAIN_PEAK != 0);
    for (uint32_t block = 0; block < n_whole; block++)
        ch->peak[block] = peak_of(ch->logits + (size_t)block * CHAIN_PEAK);
    if (n == n_whole)
        return n;
    ch->peak[n_whole] = -INFINITY;
    for (uint32_t id = n_whole * CHAIN_PEAK; id < ch->n_vocab; id++)
        if (ch->logits[id] > ch->peak[n_whole])
            ch->peak[n_whole] = ch->logits[id];
    return n;
}

/* The k-th largest of n peaks; at most FLT_MAX, for which +inf stands too. */
static float threshold(struct chain *ch, uint32_t n, uint32_t k)
{
    for (uint32_t block = 0; block < n; block++)
        ch->c[block] = (struct candidate){.id = block, .logit = ch->peak[block]};
    ch->n = n;
    chain_keep(ch, k);
    ch->sorted = false;
    return logit_clean(ch->c[k - 1].logit);
}

static void take_all(struct chain *ch)
{
    for (uint32_t id = 0; id < ch->n_vocab; id++)
        ch->c[id] = (struct candidate){.id = id, .logit = logit_clean(ch->logits[id])};
    ch->n = ch->n_vocab;
}

void sampler_candidates(struct chain *ch)
{
    uint32_t k = ch->params->temperature > 0 ? ch->params->top_k : 1;
    uint32_t n = k && k <= ch->n_vocab / CHAIN_PEAK ? find_peaks(ch) : 0;
    float t = n ? threshold(ch, n, k) : -INFINITY;
    if (t == -INFINITY) { /* no such bound: k is many, or fewer blocks have anything possible */
        take_all(ch);
        return;
    }
    ch->n = 0;
    for (uint32_t block = 0; block < n; block++)
        for (uint32_t id = block * CHAIN_PEAK; ch->peak[block] >= t && id < block_end(ch, block);
             id++)
            if (ch->logits[id] >= t)
                ch->c[ch->n++] = (struct candidate){.id = id, .logit = logit_clean(ch->logits[id])};
}
