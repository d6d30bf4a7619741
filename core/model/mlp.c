/* [11 mlp] thinks about each row alone: a wide hidden layer, where most of what a model knows lies.
 *
 * Plain: y = act(h W1^T + b1) W2^T + b2 (Vaswani et al. 2017, 3.3; GPT-2 with GELU).
 * Gated: y = (act(h Wg^T + bg) * (h Wu^T + bu)) Wd^T + bd (Shazeer 2020; Llama with SiLU).
 * h, y [n, dim]; hidden [n, ff_dim], ff_dim from the file. */
#include "core/kernel/ops.h"
#include "core/model/stages.h"

static void activate(const struct model *m, const float *x, const float *up, float *out)
{
    if (m->h.arch->act == ACT_SILU)
        ops_silu(x, up, out, m->h.ff_dim);
    else
        ops_gelu_tanh(x, up, out, m->h.ff_dim);
}

void mlp_forward(const struct step *s, const struct layer *w)
{
    const struct model *m = s->m;
    const struct act *a = s->a;
    bool gated = m->h.arch->flags & ARCH_GATED_MLP;
    uint32_t begin, end, n = s->batch->n_rows;
    stack_run(s, &w->up, a->h, n, a->ff); /* h -> gate | up */
    step_rows(s, n, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const float *ff = a->ff + (size_t)r * w->up.n_out;
        activate(m, ff, gated ? ff + m->h.ff_dim : NULL, a->mid + (size_t)r * m->h.ff_dim);
    }
    stack_run(s, &w->down, a->mid, n, a->y);
}
