/* [14 sample] min-p: candidates at least min_p times as probable as the best, which is to say
 * x_i >= max + ln(min_p) (M. Nguyen and others, 2024). 0 = off. */
#include "core/sample/chain.h"

#include <math.h>

void sampler_min_p(struct chain *ch)
{
    double p = ch->params->min_p;
    uint32_t n = 0;
    if (!(p > 0) || ch->n < 2)
        return;
    double least = (double)chain_best(ch) + log(p < 1 ? p : 1);
    for (uint32_t i = 0; i < ch->n; i++)
        if ((double)ch->c[i].logit >= least)
            ch->c[n++] = ch->c[i]; /* keeps their order */
    ch->n = n;
}
