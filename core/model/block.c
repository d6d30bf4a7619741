/* [12 block] one layer: attention, then the MLP, each a branch that adds to the residual stream.
 *
 * x [n, dim] is the stream: layers only ever add to it, so that every one can read what all
 * before it wrote (He et al. 2016). x += attention(norm(x)); x += mlp(norm(x)), with norms where
 * arch.h says. */
#include "core/kernel/ops.h"
#include "core/kernel/panel.h"
#include "core/model/stages.h"

#include <string.h>

struct into branch_into(const struct branch *w, const struct stack *to)
{
    return (struct into){&w->before, to};
}

struct into next_into(const struct step *s, uint32_t layer)
{
    const struct weights *w = &s->m->w;
    if (layer + 1 < s->m->h.n_layers)
        return branch_into(&w->layers[layer + 1].attn, &w->layers[layer + 1].qkv);
    return (struct into){&w->output_norm, &w->head};
}

/* The last layer's attention leaves only the wanted rows: they move up in x, here the columns of
 * panels [begin, end). */
static void move_up(const struct step *s, uint32_t layer, uint32_t begin, uint32_t end)
{
    uint32_t dim = s->m->h.dim, k = begin * PANEL_ROWS;
    uint32_t n = (end * PANEL_ROWS < dim ? end * PANEL_ROWS : dim) - k;
    for (uint32_t i = 0; i < rows_after(s, layer) && layer + 1 == s->m->h.n_layers; i++)
        memmove(s->a->x + (size_t)i * dim + k, s->a->x + (size_t)s->m->plan.wanted[i] * dim + k,
                n * sizeof(float));
}

/* x = after(x + on(y)) of one row. */
static void join_row(const struct step *s, const struct branch *w, uint32_t r)
{
    uint32_t dim = s->m->h.dim;
    float *x = s->a->x + (size_t)r * dim, *y = s->a->y + (size_t)r * dim;
    if (w->on.gain)
        norm_row(s->m, &w->on, y, y);
    ops_add(x, y, dim);
    if (w->after.gain)
        norm_row(s->m, &w->after, x, x);
}

/* Rows [begin, end): to the stream, and normed for what comes next. */
static void join_rows(const struct step *s, const struct ending *e, uint32_t n_rows, uint32_t begin,
                      uint32_t end)
{
    for (uint32_t r = begin; r < end; r++)
        join_row(s, e->norms, r);
    norm_rows(s, &e->next, n_rows, begin, end);
}

/* Counts n panels of y as computed. True, once per branch: these were the last. The counter is ready for
 * the next branch then, before which all meet. */
static bool brings_last(const struct step *s, uint32_t n, uint32_t n_panels)
{
    atomic_uint *left = s->m->plan.unjoined;
    if (atomic_fetch_sub(left, n) != n)
        return false;
    atomic_store(left, n_panels);
    return true;
}

void block_join(const struct step *s, const struct ending *e, uint32_t layer)
{
    const struct matrix *w = &e->w->w[0];
    uint32_t begin, end, n_rows = rows_after(s, layer);
    bool late = norm_is_late(s->m), first = e->in == &s->a->ctx, few = n_rows <= JOINED_BY_ONE;
    struct matmul_input in = feed_input(s, e->w, e->in, n_rows);
    struct matmul_output out = {.y = late ? s->a->x : s->a->y,
                                .stride = s->m->h.dim,
                                .bias = e->w->bias,
                                .store = late ? MATMUL_ADD : MATMUL_SET,
                                .fetch = &s->scratch->ahead.fetch};
    struct share share = panels_share(s, e->w, w->n_panels, n_rows);
    while (share_take(&share, &begin, &end)) {
        if (first)
            move_up(s, layer, begin, end);
        matmul_run_panels(w, &in, &out, begin, end, s->worker->id);
        if (late)
            norm_panels(s, &e->next, n_rows, begin, end);
        else if (few && brings_last(s, end - begin, w->n_panels))
            join_rows(s, e, n_rows, 0, n_rows);
    }
    worker_barrier(s->worker);
    if (late || few)
        return;
    share = share_begin(s->worker, n_rows, 1);
    while (share_take(&share, &begin, &end))
        join_rows(s, e, n_rows, begin, end);
    worker_barrier(s->worker);
}

void block_forward(const struct step *s, uint32_t layer)
{
    qkv_project(s, layer); /* h -> q, k, v */
    if (rows_after(s, layer) == 0)
        return;
    attention_apply(s, layer);  /* q, k, v, pages -> ctx */
    attn_out_project(s, layer); /* ctx -> y; x += y; norm -> h */
    mlp_forward(s, layer);      /* h -> y; x += y; norm -> h */
}
