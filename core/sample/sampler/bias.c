/* [14 sample] bias: x_i += bias_i; -inf bans. So do the bans of the caller (end tokens before
 * min_tokens, or with ignore_eos). */
#include "core/sample/chain.h"

#include <float.h>
#include <math.h>

void sampler_bias(struct chain *ch)
{
    for (uint32_t i = 0; i < ch->params->n_biases; i++) {
        const struct logit_bias *b = &ch->params->biases[i];
        float x = ch->c[b->id].logit + b->bias;
        if (isnan(x)) /* -inf + inf: what is impossible stays so */
            x = -INFINITY;
        ch->c[b->id].logit = x > FLT_MAX ? FLT_MAX : x;
    }
    for (uint32_t i = 0; i < ch->n_banned; i++)
        if (ch->banned[i] < ch->n_vocab)
            ch->c[ch->banned[i]].logit = -INFINITY;
}
