/* [14 sample] temperature: x_i = (x_i - max) / T. Below 1 the probable become more so; the
 * difference to the best keeps any T in range. */
#include "core/sample/chain.h"

#include <math.h>

void sampler_temperature(struct chain *ch)
{
    double t = ch->params->temperature;
    if (!(t > 0) || ch->n < 2)
        return;
    double max = (double)chain_best(ch);
    if (max == -INFINITY)
        return;
    for (uint32_t i = 0; i < ch->n; i++)
        ch->c[i].logit = (float)(((double)ch->c[i].logit - max) / t);
}
