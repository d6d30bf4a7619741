/* [08 qkv] makes of each row a query, a key and a value for every head.
 *
 * A query is what a token looks for, a key is what it offers to be found by, a value is what it
 * hands over to those that find it: q = h WQ^T + bq, k = h WK^T + bk, v = h WV^T + bv (Vaswani et
 * al. 2017, 3.2). h [n, dim], q [n, n_heads * head_dim]; k and v [n, n_kv_heads * head_dim]: with
 * fewer KV heads than heads a group of heads shares a key and a value (Ainslie et al. 2023). */
#include "core/kernel/panel.h"
#include "core/model/stages.h"

/* Panels [begin, end) of the stack. Matrix i has the panels from `at` and the columns from `column`
 * on. */
static void run_panels(const struct step *s, const struct stack *w, const struct matmul_input *in,
                       struct matmul_output *out, uint32_t begin, uint32_t end)
{
    float *qkv = out->y;
    const float *bias = w->bias;
    for (uint32_t i = 0, at = 0, column = 0; i < w->n; i++) {
        uint32_t n = w->w[i].n_panels, from = begin > at ? begin - at : 0;
        uint32_t to = end > at ? end - at : 0;
        to = to < n ? to : n;
        out->y = qkv + column;
        out->bias = bias ? bias + column : NULL;
        if (from < to)
            matmul_run_panels(&w->w[i], in, out, from, to, s->worker->id);
        at += n;
        column += w->w[i].n_out;
    }
    out->y = qkv;
}

/* The column that panel i of the stack begins with. */
static uint32_t column_of(const struct stack *w, uint32_t i)
{
    uint32_t column = 0;
    for (uint32_t m = 0; m < w->n; column += w->w[m].n_out, i -= w->w[m].n_panels, m++)
        if (i < w->w[m].n_panels)
            return column + i * PANEL_ROWS;
    return column;
}

/* The panel of the stack that has this column. */
static uint32_t panel_of(const struct stack *w, uint32_t column)
{
    uint32_t at = 0, m = 0;
    for (; column >= w->w[m].n_out; column -= w->w[m].n_out, m++)
        at += w->w[m].n_panels;
    return at + column / PANEL_ROWS;
}

/* The panels of K and V come first: while one worker writes what they made to its page, the other one
 * has queries to make. */
void qkv_project(const struct step *s, uint32_t layer)
{
    const struct layer *l = &s->m->w.layers[layer];
    const struct stack *w = &l->qkv;
    const uint32_t n_rows = s->batch->n_rows;
    const float *scale = norm_scale(s, n_rows);
    struct matmul_input in = norm_input(s, w, &l->attn.before, scale, n_rows);
    struct matmul_output out = {
        .y = s->a->qkv, .stride = w->n_out, .scale = scale, .fetch = &s->scratch->ahead.fetch};
    const uint32_t n = stack_panels(w), first = panel_of(w, s->m->h.n_heads * s->m->h.head_dim);
    struct share share = panels_share(s, w, n, n_rows);
    ahead_begin(s, layer, w);
    for (uint32_t begin, end; share_take(&share, &begin, &end);)
        for (uint32_t from, to; begin < end; begin += to - from) {
            from = (begin + first) % n;
            to = end - begin < n - from ? from + end - begin : n;
            run_panels(s, w, &in, &out, from, to);
            attention_keep(s, layer, column_of(w, from), column_of(w, to));
        }
    worker_barrier(s->worker);
}
