/* [11 mlp] thinks about each row alone: a wide hidden layer, where most of what a model knows lies.
 *
 * Plain: y = act(h W1^T + b1) W2^T + b2 (Vaswani et al. 2017, 3.3; GPT-2 with GELU).
 * Gated: y = (act(h Wg^T + bg) * (h Wu^T + bu)) Wd^T + bd (Shazeer 2020; Llama with SiLU).
 * h, y [n, dim]; hidden [n, ff_dim], ff_dim from the file. */
#include "core/kernel/ops.h"
#include "core/kernel/panel.h"
#include "core/model/stages.h"

#include <string.h>

static void activate(const struct model *m, float *x, const float *up, size_t n)
{
    if (m->h.arch->act == ACT_SILU)
        ops_silu(x, up, x, n);
    else
        ops_gelu_tanh(x, up, x, n);
}

/* Panels [begin, end) of the hidden layer: of the gate and of what it lets through, then both as the
 * next matrix reads them. */
static void run_panels(const struct step *s, const struct layer *w, const struct matmul_input *in,
                       const struct matmul_input *next, const float *scale, uint32_t begin,
                       uint32_t end)
{
    uint32_t ff = s->m->h.ff_dim, k = begin * PANEL_ROWS, width = (end - begin) * PANEL_ROWS;
    float *tile = s->scratch->tile, *up = tile + (size_t)in->n_rows * width;
    const float *bias = w->up.bias;
    for (uint32_t i = 0; i < w->up.n; i++) {
        struct matmul_output out = {.y = i ? up : tile,
                                    .stride = width,
                                    .first = begin,
                                    .scale = scale,
                                    .bias = bias ? bias + (size_t)i * ff : NULL,
                                    .fetch = &s->scratch->ahead.fetch};
        matmul_run_panels(&w->up.w[i], in, &out, begin, end, s->worker->id);
    }
    activate(s->m, tile, w->up.n > 1 ? up : NULL, (size_t)in->n_rows * width);
    uint32_t n = ff - k < width ? ff - k : width;
    struct planes_part done = {.x = tile, .stride = width, .n_rows = in->n_rows, .k = k, .n = n};
    matmul_quantise_part(next, &done);
    for (uint32_t r = 0; r < in->n_rows && feed_floats(s, &w->down); r++)
        memcpy(s->a->mid.x + (size_t)r * ff + k, tile + (size_t)r * width, n * sizeof(*tile));
}

void mlp_forward(const struct step *s, uint32_t layer)
{
    const struct layer *w = &s->m->w.layers[layer];
    uint32_t n_rows = rows_after(s, layer), n_panels = w->up.w[0].n_panels;
    const float *scale = norm_scale(s, n_rows);
    struct matmul_input in = norm_input(s, &w->up, &w->ffn.before, scale, n_rows);
    struct matmul_input next = feed_input(s, &w->down, &s->a->mid, n_rows);
    struct ending e = {&w->down, &s->a->mid, &w->ffn, next_into(s, layer)};
    struct share share = panels_share(s, &w->up, n_panels, n_rows);
    ahead_begin(s, layer + 1, &w->up);
    for (uint32_t begin, end; share_take(&share, &begin, &end);)
        for (uint32_t n; begin < end; begin += n) {
            n = least(end - begin, share.least);
            run_panels(s, w, &in, &next, scale, begin, begin + n);
        }
    worker_barrier(s->worker);
    ahead_begin(s, layer + 1, &w->down);
    block_join(s, &e, layer);
}
