/* [14 sample] draw: candidate i with probability exp(x_i - max) / sum_j exp(x_j - max), by the
 * random number of this seed and position. Sums by blocks, so that the second pass finds its
 * block at once. */
#include "core/sample/chain.h"
#include "core/sample/rng.h"

#include <math.h>

static double weight(const struct chain *ch, uint32_t i, double max)
{
    return exp((double)ch->c[i].logit - max);
}

static uint32_t block_end(const struct chain *ch, uint32_t block)
{
    uint32_t end = (block + 1) * CHAIN_BLOCK;
    return end < ch->n ? end : ch->n;
}

/* The first candidate at which the running sum exceeds `at`; where rounding leaves none, the last
 * possible one. */
static uint32_t find(const struct chain *ch, double at, double max)
{
    uint32_t chosen = 0, found = 0;
    double before = 0, sum = 0;
    for (uint32_t block = 0; block * CHAIN_BLOCK < ch->n && sum <= at; block++)
        if (ch->block[block] > 0) {
            chosen = block;
            before = sum;
            sum += ch->block[block];
        }
    for (uint32_t i = chosen * CHAIN_BLOCK; i < block_end(ch, chosen); i++) {
        double w = weight(ch, i, max);
        if (w == 0)
            continue;
        found = i;
        before += w;
        if (before > at)
            break;
    }
    return found;
}

void sampler_draw(struct chain *ch)
{
    double max = (double)chain_best(ch), total = 0;
    if (ch->n < 2 || max == -INFINITY)
        return;
    for (uint32_t block = 0; block * CHAIN_BLOCK < ch->n; block++) {
        double sum = 0;
        for (uint32_t i = block * CHAIN_BLOCK; i < block_end(ch, block); i++)
            sum += weight(ch, i, max);
        ch->block[block] = sum;
        total += sum;
    }
    double at = rng_uniform(ch->params->seed, ch->pos) * total;
    ch->c[0] = ch->c[find(ch, at, max)];
    ch->n = 1;
}
