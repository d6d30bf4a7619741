/* [14 sample] top-p, nucleus: the fewest of the best whose probabilities sum to p at least
 * (A. Holtzman and others, 2020). At least one; 1 = off. */
#include "core/sample/chain.h"

#include <math.h>

void sampler_top_p(struct chain *ch)
{
    double p = ch->params->top_p, total = 0, sum = 0;
    uint32_t m = 0;
    if (p >= 1 || ch->n < 2)
        return;
    double max = (double)chain_best(ch);
    if (max == -INFINITY)
        return;
    for (uint32_t i = 0; i < ch->n; i++)
        total += exp((double)ch->c[i].logit - max);
    chain_heapify(ch);
    do
        sum += exp((double)chain_next(ch, m++).logit - max);
    while (sum < p * total && m < ch->n);
    chain_taken(ch, m);
}
