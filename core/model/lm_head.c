/* [13 lm_head] how well each token of the vocabulary would come next: the logits.
 *
 * logits = norm(x) W^T + b. x [n, dim], W [n_vocab, dim], logits [n_logits, n_vocab]. W is often
 * the embedding matrix itself (tied: Press and Wolf 2017): then a token is likely where its own
 * vector points the way x points. Only for rows whose logits are wanted: W is the largest matrix
 * there is. */
#include "core/model/stages.h"

void lm_head(const struct step *s, float *logits)
{
    const struct stack *w = &s->m->w.head;
    uint32_t n = s->m->plan.n_wanted;
    if (n == 0)
        return;
    const float *scale = norm_scale(s, n);
    struct matmul_input in = norm_input(s, w, &s->m->w.output_norm, scale, n);
    struct matmul_output out = {.y = logits, .stride = w->n_out, .scale = scale, .bias = w->bias};
    struct share share = panels_share(s, w, w->w[0].n_panels, n);
    for (uint32_t begin, end; share_take(&share, &begin, &end);)
        matmul_run_panels(&w->w[0], &in, &out, begin, end, s->worker->id);
}
