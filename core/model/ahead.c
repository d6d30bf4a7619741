/* [09 attention] keys and values on their way while matrices are multiplied.
 *
 * With some sequences at once a layer's products wait for arithmetic and its attention waits for memory,
 * each while the other resource idles. So what a worker's slice of the attention will read is fetched to
 * its cache during the products before it: the end of this layer, and Q, K and V of the next. */
#include "core/model/stages.h"

/* With fewer rows products wait for memory themselves. */
enum { LEAST_ROWS = 4 };

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

void ahead_begin(const struct step *s, uint32_t layer)
{
    const struct plan *p = &s->m->plan;
    struct ahead *a = &s->scratch->ahead;
    *a = (struct ahead){.fetch.more = more, .step = s, .layer = layer};
    if (layer >= s->m->h.n_layers || s->batch->n_rows < LEAST_ROWS)
        return;
    worker_slice(s->worker, p->n_units * s->m->h.n_kv_heads, &a->item, &a->end);
    a->item--; /* before the first */
    next_item(a);
}
