/* [14 sample] temperature 0: the best candidate, of equal ones the lowest id. */
#include "core/sample/chain.h"

void sampler_greedy(struct chain *ch)
{
    uint32_t best = 0;
    if (ch->params->temperature > 0)
        return;
    for (uint32_t i = 1; i < ch->n; i++)
        if (candidate_before(ch->c[i], ch->c[best]))
            best = i;
    ch->c[0] = ch->c[best];
    ch->n = 1;
    ch->sorted = true;
}
