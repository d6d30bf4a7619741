/* [06 embed] a token's row of the embedding matrix, and where it stands.
 *
 * The embedding matrix E [n_vocab, dim] has a vector for each token: the meaning it brings before
 * any context. Attention alone is blind to order, so the position comes in here: learned vectors
 * P [n_ctx, dim] are added, x = E[token] + P[pos] (Radford et al. 2019), or the angles are made
 * by which stage [09] turns q and k: pos * theta^(-2i / rope_dims) (Su et al. 2021). */
#include "core/kernel/ops.h"
#include "core/model/stages.h"

static void embed_row(const struct step *s, uint32_t r)
{
    const struct model *m = s->m;
    const struct batch_row *row = &s->batch->rows[r];
    uint32_t dim = m->h.dim, dims = m->h.rope_dims;
    float *x = s->a->x + (size_t)r * dim;
    matrix_row(&m->w.embed, row->token, x);
    if (m->h.arch->pos == POS_LEARNED) {
        matrix_row(&m->w.position, row->pos, s->scratch->row);
        ops_add(x, s->scratch->row, dim);
    } else {
        ops_rope_turn(s->a->turn + (size_t)r * dims, row->pos, m->freq, dims / 2);
    }
}

void embed_rows(const struct step *s)
{
    const struct layer *first = &s->m->w.layers[0];
    struct into into = branch_into(&first->attn, &first->qkv);
    uint32_t begin, end;
    struct share share = share_begin(s->worker, s->batch->n_rows, 1);
    while (share_take(&share, &begin, &end)) {
        for (uint32_t r = begin; r < end; r++)
            embed_row(s, r);
        norm_rows(s, &into, s->batch->n_rows, begin, end);
    }
    worker_barrier(s->worker);
}
