/* [14 sample] bias: x_i += bias_i; -inf bans. So do the bans of the caller (end tokens before
 * min_tokens, or with ignore_eos). */
#include "core/sample/chain.h"

void sampler_bias(struct chain *ch)
{
    for (uint32_t i = 0; i < ch->params->n_biases; i++) {
        const struct logit_bias *b = &ch->params->biases[i];
        float x = logit_clean(ch->logits[b->id]) + b->bias;
        ch->logits[b->id] = logit_clean(x); /* -inf + inf: what is impossible stays so */
    }
    for (uint32_t i = 0; i < ch->n_banned; i++)
        if (ch->banned[i] < ch->n_vocab)
            ch->logits[ch->banned[i]] = -INFINITY;
}
