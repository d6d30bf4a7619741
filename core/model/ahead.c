/* [09 attention] keys and values on their way while matrices are multiplied.
 *
 * With some sequences at once a layer's products wait for arithmetic and its attention waits for memory,
 * each while the other resource idles. So what a worker's slice of the attention will read is fetched to
 * its cache during the products before it: of Q, K and V, and where their weights are few, which pass
 * through the same cache, of the end of the layer before. */
#include "core/model/stages.h"

/* With fewer rows products wait for memory themselves; after more bytes of weights what was fetched has
 * left a second-level cache of 1 or 2 MB. */
enum { LEAST_ROWS = 4, MOST_BYTES = 1 << 20 };

/* Bytes of K, or V, that a row reads of a page. */
static size_t read_bytes(const struct step *s, uint32_t n_keys, bool values)
{
    const struct kv_geometry *g = &s->kv->geometry;
    uint32_t n = values ? n_keys : (n_keys + KV_COLUMNS - 1) / KV_COLUMNS * KV_COLUMNS;
    return (size_t)n * g->head_dim * kv_value_bytes(g->type);
}

static void next_item(struct ahead *a)
{
    const struct step *s = a->step;
    if (++a->item < a->end)
        a->page = unit_head(s, a->item).u->split_begin * s->m->plan.split_pages;
}

/* The next range: of a decoded row K of a page, then V, page after page. */
static bool more(struct matmul_fetch *f)
{
    struct ahead *a = (struct ahead *)(void *)f;
    const struct step *s = a->step;
    const uint32_t tokens = s->kv->geometry.page_tokens;
    for (; a->item < a->end; next_item(a)) {
        const struct unit_head h = unit_head(s, a->item);
        const struct batch_row *row = &s->batch->rows[h.u->row];
        if (h.u->n_rows > 1 || a->page > unit_last_page(s, h.u))
            continue;
        const uint32_t n = least(row->pos + 1 - a->page * tokens, tokens);
        const uint32_t page = row->seq->pages[a->page];
        f->at = a->values ? kv_page_v(s->kv, page, a->layer, h.kv_head)
                          : kv_page_k(s->kv, page, a->layer, h.kv_head);
        f->end = f->at + read_bytes(s, n, a->values);
        a->page += a->values;
        a->values = !a->values;
        return true;
    }
    return false;
}

static size_t stack_bytes(const struct stack *w)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->w[i].n_bytes;
    return n;
}

/* What weights pass a worker from w, a stack of this layer or the one before, to the attention. */
static size_t bytes_before(const struct step *s, uint32_t layer, const struct stack *w)
{
    const struct layer *l = &s->m->w.layers[layer];
    size_t n = stack_bytes(&l->qkv);
    if (w != &l->qkv) {
        n += stack_bytes(&l[-1].down);
        n += w == &l[-1].down ? 0 : stack_bytes(&l[-1].up);
    }
    return n / s->worker->n;
}

void ahead_begin(const struct step *s, uint32_t layer, const struct stack *w)
{
    const struct plan *p = &s->m->plan;
    struct ahead *a = &s->scratch->ahead;
    if (layer >= s->m->h.n_layers || s->batch->n_rows < LEAST_ROWS ||
        (a->step == s && a->layer == layer) || bytes_before(s, layer, w) > MOST_BYTES)
        return;
    *a = (struct ahead){.fetch.more = more, .step = s, .layer = layer};
    worker_slice(s->worker, p->n_units * s->m->h.n_kv_heads, &a->item, &a->end);
    a->item--; /* before the first */
    next_item(a);
}

void ahead_end(const struct step *s)
{
    s->scratch->ahead.fetch = (struct matmul_fetch){NULL, NULL, NULL};
}
