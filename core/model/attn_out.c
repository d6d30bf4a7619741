/* [10 attn_out] mixes what the heads brought back into the space of the residual stream.
 *
 * Each head worked in a subspace of its own: y = concat(o_1 .. o_heads) WO^T + bo (Vaswani et al.
 * 2017, 3.2.2). ctx [n, n_heads * head_dim], WO [dim, n_heads * head_dim], y [n, dim]. */
#include "core/model/stages.h"

void attn_out_project(const struct step *s, uint32_t layer)
{
    const struct layer *w = &s->m->w.layers[layer];
    struct ending e = {&w->out, &s->a->ctx, &w->attn, branch_into(&w->ffn, &w->up)};
    block_join(s, &e, layer);
}
