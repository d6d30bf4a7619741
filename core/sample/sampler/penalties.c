/* [14 sample] penalties, for each token that occurs in the last repeat_last_n of the timeline, n
 * times:
 *
 *   x = x > 0 ? x / repeat : x * repeat        (N. Keskar and others, CTRL, 2019)
 *   x = x - n * frequency - presence           (OpenAI) */
#include "core/sample/chain.h"

static float penalise(const struct sample_params *p, float logit, uint32_t n)
{
    double x = (double)logit_clean(logit);
    x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
    x -= n * p->frequency_penalty + p->presence_penalty;
    if (isnan(x))
        return -INFINITY;
    return x > (double)FLT_MAX ? FLT_MAX : (float)x;
}

void sampler_penalties(struct chain *ch)
{
    const struct sample_params *p = ch->params;
    if (!ch->count)
        return;
    uint32_t window = p->repeat_last_n < 0 || (uint32_t)p->repeat_last_n > ch->n_timeline
                          ? ch->n_timeline
                          : (uint32_t)p->repeat_last_n;
    const uint32_t *ids = ch->timeline + (ch->n_timeline - window);
    for (uint32_t i = 0; i < window; i++)
        if (ids[i] < ch->n_vocab)
            ch->count[ids[i]]++;
    for (uint32_t i = 0; i < window; i++) {
        uint32_t id = ids[i];
        if (id >= ch->n_vocab || ch->count[id] == 0)
            continue;
        ch->logits[id] = penalise(p, ch->logits[id], ch->count[id]);
        ch->count[id] = 0; /* once, and clean for the next call */
    }
}
