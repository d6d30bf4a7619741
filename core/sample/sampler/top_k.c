/* [14 sample] top-k: the k best candidates (A. Fan and others, 2018). 0 = off. */
#include "core/sample/chain.h"

void sampler_top_k(struct chain *ch)
{
    if (ch->params->top_k && ch->params->top_k < ch->n_vocab)
        chain_keep(ch, ch->params->top_k);
}
