/* [13 lm_head] how well each token of the vocabulary would come next: the logits.
 *
 * logits = norm(x) W^T + b. x [n, dim], W [n_vocab, dim], logits [n_logits, n_vocab]. W is often
 * the embedding matrix itself (tied: Press and Wolf 2017): then a token is likely where its own
 * vector points the way x points. Only for rows whose logits are wanted: W is the largest matrix
 * there is. */
#include "core/model/stages.h"

void lm_head(const struct step *s, float *logits)
{
    const struct model *m = s->m;
    const struct act *a = s->a;
    uint32_t begin, end, n = s->batch->n_logits;
    if (n == 0)
        return;
    step_share(s); /* a wanted row may be another worker's */
    step_rows(s, n, &begin, &end);
    for (uint32_t i = begin; i < end; i++)
        norm_row(m, &m->w.output_norm, a->x + (size_t)m->plan.wanted[i] * m->h.dim,
                 a->h + (size_t)i * m->h.dim);
    stack_run(s, &m->w.head, a->h, n, logits);
}
