/* [14 sample] candidates: every id with its logit; or, where only the k best count (top_k, at
 * temperature 0 the best), fewer that these are among, found without sorting a vocabulary: if t is
 * the k-th largest of the maxima of blocks, at least k logits are t or more, so what is less is not
 * among the k best. What the later stages choose is the same. */
#include "core/sample/chain.h"

enum { LANES = 16 };

/* Maxima of whole blocks; NaN is less than all. In lanes, which any compiler makes vectors of. */
static float peak_of(const float *x) /* [CHAIN_PEAK] */
{
    float m[LANES];
    for (int l = 0; l < LANES; l++)
        m[l] = -INFINITY;
    for (int i = 0; i < CHAIN_PEAK; i += LANES)
        for (int l = 0; l < LANES; l++)
            m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            m[l] = m[l + half] > m[l] ? m[l + half] : m[l];
    return m[0];
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
