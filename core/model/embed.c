/* [06 embed] a token's row of the embedding matrix, and where it stands.
 *
 * The embedding matrix E [n_vocab, dim] has a vector for each token: the meaning it brings before
 * any context. Attention alone is blind to order, so the position comes in here: learned vectors
 * P [n_ctx, dim] are added, x = E[token] + P[pos] (Radford et al. 2019), or the angles are made
 * by which stage [09] turns q and k: pos * theta^(-2i / rope_dims) (Su et al. 2021). */
#include "core/kernel/ops.h"
#include "core/model/stages.h"

void embed_rows(const struct step *s)
{
    const struct model *m = s->m;
    const struct act *a = s->a;
    const struct layer *first = &m->w.layers[0];
    struct into into = branch_into(&first->attn, &first->qkv);
    uint32_t begin, end, dim = m->h.dim;
    worker_slice(s->worker, s->batch->n_rows, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const struct batch_row *row = &s->batch->rows[r];
        float *x = a->x + (size_t)r * dim;
        matrix_row(&m->w.embed, row->token, x);
        if (m->h.arch->pos == POS_LEARNED) {
            matrix_row(&m->w.position, row->pos, s->scratch->row);
            ops_add(x, s->scratch->row, dim);
        } else {
            ops_rope_turn(a->turn + (size_t)r * m->h.rope_dims, row->pos, m->freq,
                          m->h.rope_dims / 2);
        }
    }
    norm_rows(s, &into, s->batch->n_rows, begin, end);
    worker_barrier(s->worker);
}
