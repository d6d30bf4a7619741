/* [12 block] one layer: attention, then the MLP, each a branch that adds to the residual stream.
 *
 * x [n, dim] is the stream: layers only ever add to it, so that every one can read what all
 * before it wrote (He et al. 2016). x += attention(norm(x)); x += mlp(norm(x)), with norms where
 * arch.h says. */
#include "core/kernel/ops.h"
#include "core/model/stages.h"

/* Ends a branch: x = after(x + on(y)). */
void block_join(const struct step *s, const struct branch *w)
{
    uint32_t begin, end, dim = s->m->h.dim;
    step_rows(s, s->batch->n_rows, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *x = s->a->x + (size_t)r * dim, *h = s->a->h + (size_t)r * dim;
        const float *y = s->a->y + (size_t)r * dim;
        if (w->on.gain) {
            norm_row(s->m, &w->on, y, h);
            y = h;
        }
        ops_add(x, y, dim);
        if (w->after.gain)
            norm_row(s->m, &w->after, x, x);
    }
}

void block_forward(const struct step *s, uint32_t layer)
{
    const struct layer *w = &s->m->w.layers[layer];
    norm_apply(s, &w->attn.before); /* x -> h */
    qkv_project(s, w);              /* h -> q, k, v */
    attention_apply(s, layer);      /* q, k, v, pages -> ctx */
    attn_out_project(s, w);         /* ctx -> y */
    block_join(s, &w->attn);        /* x += y */
    norm_apply(s, &w->ffn.before);  /* x -> h */
    mlp_forward(s, w);              /* h -> y */
    block_join(s, &w->ffn);         /* x += y */
}
