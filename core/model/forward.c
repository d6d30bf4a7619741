/* [12 block] forward: a batch through all stages, and the plan and the room that they share. */
#include "core/base/mem.h"
#include "core/kernel/attention.h"
#include "core/kernel/panel.h"
#include "core/model/model.h"
#include "core/model/stages.h"

#include <math.h>
#include <string.h>

enum {
    PART_ROWS = 4,      /* rows whose keys are read in parts, of the longest timelines */
    SPLIT_TOKENS = 256, /* keys of a split, in whole pages: never by rows or workers */
    LEAST_SPLIT = 128,  /* what is left of that with any page size */
    UNIT_QUERIES = 96,  /* rows of a unit times heads of a group, at least one row */
    MAX_PAGE_TOKENS = 256,
    SMALL_ROWS = 16,       /* rows at most, for which */
    PART_BYTES = 512 << 10 /* so much of a slice may be taken at once: some 25 us */
};

/* ---- room ---- */

static uint32_t unit_rows(const struct hparams *h)
{
    ASSERT(h->n_kv_heads > 0 && h->n_heads >= h->n_kv_heads);
    uint32_t group = h->n_heads / h->n_kv_heads;
    return group < UNIT_QUERIES ? UNIT_QUERIES / group : 1;
}

/* The next n elements of size bytes at a cache line's begin; NULL while only counting. */
static void *take(uint8_t *base, size_t *used, size_t n, size_t size)
{
    void *p = base ? base + *used : NULL;
    *used += (n * size + 63) / 64 * 64;
    return p;
}

/* fine: a stack may read 16 bits of it where activations are int8. */
static uint8_t *layout_planes(const struct model *m, uint32_t n_in, bool fine, uint8_t *base,
                              size_t *used)
{
    enum activations a = fine && m->room == ACTIVATIONS_INT8 ? ACTIVATIONS_INT16 : m->room;
    return take(base, used, matmul_input_bytes(m->max_rows, n_in, a), 1);
}

/* Last what many models do without: together, so that no page of it is ever touched then. */
static void layout_act(const struct model *m, struct act *a, uint8_t *base, size_t *used)
{
    const struct hparams *h = &m->h;
    size_t rows = m->max_rows, panels = h->dim / PANEL_ROWS + 1;
    uint32_t all_heads = h->n_heads * h->head_dim;
    a->x = take(base, used, rows * h->dim, sizeof(float));
    a->square = take(base, used, rows * panels, sizeof(float));
    a->turn = take(base, used, rows * h->rope_dims, sizeof(float));
    a->qkv = take(base, used, rows * (h->n_heads + 2 * h->n_kv_heads) * h->head_dim, sizeof(float));
    a->h.planes = layout_planes(m, h->dim, true, base, used);
    a->ctx.x = take(base, used, rows * all_heads, sizeof(float));
    a->ctx.planes = layout_planes(m, all_heads, false, base, used);
    a->mid.planes = layout_planes(m, h->ff_dim, true, base, used);
    a->y = take(base, used, rows * h->dim, sizeof(float));
    a->h.x = take(base, used, rows * h->dim, sizeof(float));
    a->mid.x = take(base, used, rows * h->ff_dim, sizeof(float));
}

static void layout_scratch(const struct model *m, struct scratch *c, uint8_t *base, size_t *used)
{
    size_t n = (size_t)unit_rows(&m->h) * (m->h.n_heads / m->h.n_kv_heads), dim = m->h.head_dim;
    c->tile = take(base, used, (size_t)2 * m->max_rows * TILE_PANELS * PANEL_ROWS, sizeof(float));
    c->scale = take(base, used, m->max_rows, sizeof(float));
    c->least = take(base, used, m->max_rows, sizeof(float));
    c->fine = take(base, used, matmul_fine_bytes(m->max_rows, m->h.dim), 1);
    c->row = take(base, used, m->h.dim, sizeof(float));
    c->q = take(base, used, n * dim, sizeof(float));
    c->o = take(base, used, n * dim, sizeof(float));
    c->all_o = take(base, used, n * dim, sizeof(float));
    c->s = take(base, used, (size_t)ATTENTION_BLOCK * MAX_PAGE_TOKENS, sizeof(float));
    c->m = take(base, used, n, sizeof(float));
    c->l = take(base, used, n, sizeof(float));
    c->decay = take(base, used, n, sizeof(float));
    c->all_m = take(base, used, n, sizeof(float));
    c->all_l = take(base, used, n, sizeof(float));
    c->n_keys = take(base, used, n, sizeof(uint32_t));
    c->floats = take(base, used, 2 * dim * MAX_PAGE_TOKENS, sizeof(float));
}

static void layout_plan(const struct model *m, struct plan *p, uint8_t *base, size_t *used)
{
    const struct hparams *h = &m->h;
    p->cap_parts = PART_ROWS * (m->max_context / LEAST_SPLIT + 1);
    p->cap_units = m->max_rows + p->cap_parts;
    p->units = take(base, used, p->cap_units, sizeof(*p->units));
    p->part = take(base, used, m->max_rows, sizeof(*p->part));
    p->wanted = take(base, used, m->max_rows, sizeof(*p->wanted));
    p->slot = take(base, used, m->max_rows, sizeof(*p->slot));
    p->left = take(base, used, m->max_rows, sizeof(*p->left));
    p->unjoined = take(base, used, 1, sizeof(*p->unjoined));
    p->unstored = take(base, used, h->n_kv_heads, sizeof(*p->unstored));
    p->part_m = take(base, used, (size_t)p->cap_parts * h->n_heads, sizeof(float));
    p->part_l = take(base, used, (size_t)p->cap_parts * h->n_heads, sizeof(float));
    p->part_o = take(base, used, (size_t)p->cap_parts * h->n_heads * h->head_dim, sizeof(float));
}

size_t model_layout(struct model *m, uint8_t *base)
{
    const struct hparams *h = &m->h;
    size_t used = 0;
    struct scratch one;
    layout_act(m, &m->act, base, &used);
    m->freq = take(base, &used, h->rope_dims / 2, sizeof(*m->freq));
    layout_plan(m, &m->plan, base, &used);
    m->scratch = take(base, &used, m->n_workers, sizeof(*m->scratch));
    for (uint32_t i = 0; i < m->n_workers; i++) {
        layout_scratch(m, &one, base, &used);
        if (base)
            m->scratch[i] = one;
    }
    return used;
}

int model_buffers_open(struct model *m, struct error *err)
{
    m->memory_bytes = model_layout(m, NULL);
    m->memory = mem_big_new(m->memory_bytes, MEM_ACTIVATIONS);
    if (!m->memory)
        return error_set(err, ERR_NO_MEMORY, "no memory for activations of %u rows: %zu bytes",
                         m->max_rows, m->memory_bytes);
    model_layout(m, m->memory);
    for (uint32_t i = 0; i < m->h.rope_dims / 2; i++)
        m->freq[i] = pow((double)m->h.rope_theta, -2.0 * i / m->h.rope_dims);
    return 0;
}

void model_buffers_close(struct model *m)
{
    mem_big_free(m->memory, m->memory_bytes, MEM_ACTIVATIONS);
    m->memory = NULL;
}

/* ---- plan ---- */

static void check_row(const struct model *m, const struct batch_row *row, const struct kv_pool *kv)
{
    ASSERT(row->token < m->h.n_vocab);
    ASSERT(row->pos / kv->geometry.page_tokens < row->seq->n_pages);
    ASSERT(m->h.arch->pos != POS_LEARNED || row->pos < m->w.position.n_out);
}

/* Rows from `row` on that can share a unit: one timeline, one page. */
static uint32_t run_of(const struct model *m, const struct batch *b, uint32_t row, uint32_t tokens)
{
    uint32_t n = 1, most = least(unit_rows(&m->h), b->n_rows - row);
    const struct batch_row *first = &b->rows[row];
    while (n < most && b->rows[row + n].seq == first->seq &&
           b->rows[row + n].pos / tokens == first->pos / tokens)
        n++;
    return n;
}

/* One unit, or where there is room, and a row has much to read, one for each split. */
static void plan_units(const struct model *m, struct plan *p, const struct batch *b, uint32_t row,
                       uint32_t n)
{
    uint32_t n_splits = splits_of(p, b->rows[row].pos);
    bool parts = n == 1 && n_splits > 1 && p->n_parts + n_splits <= p->cap_parts;
    for (uint32_t r = row; r < row + n; r++)
        p->part[r] = -1;
    if (parts) {
        p->part[row] = (int64_t)p->n_parts;
        p->n_parts += n_splits;
    }
    atomic_store_explicit(&p->left[row], (parts ? n_splits : 1) * m->h.n_kv_heads,
                          memory_order_relaxed);
    for (uint32_t split = 0; split < (parts ? n_splits : 1); split++) {
        ASSERT(p->n_units < p->cap_units);
        p->units[p->n_units++] = (struct unit){.row = row,
                                               .n_rows = n,
                                               .split_begin = parts ? split : 0,
                                               .split_end = parts ? split + 1 : n_splits,
                                               .parts = parts};
    }
}

static void plan_wanted(struct plan *p, const struct batch *b)
{
    p->n_wanted = 0;
    for (uint32_t r = 0; r < b->n_rows; r++) {
        p->slot[r] = b->rows[r].logits_row;
        ASSERT(p->slot[r] < 0 || (uint32_t)p->slot[r] == p->n_wanted);
        if (p->slot[r] >= 0)
            p->wanted[p->n_wanted++] = r;
    }
    ASSERT(p->n_wanted == b->n_logits);
}

void plan_batch(struct model *m, const struct batch *b, const struct kv_pool *kv)
{
    struct plan *p = &m->plan;
    uint32_t tokens = kv->geometry.page_tokens;
    ASSERT(b->n_rows <= m->max_rows && tokens <= MAX_PAGE_TOKENS);
    p->n_units = p->n_parts = 0;
    p->split_pages = tokens < SPLIT_TOKENS ? SPLIT_TOKENS / tokens : 1;
    p->split_tokens = tokens * p->split_pages;
    for (uint32_t i = 0; i < m->h.n_kv_heads; i++)
        atomic_store_explicit(&p->unstored[i], 2 * m->h.head_dim, memory_order_relaxed);
    atomic_store_explicit(p->unjoined, m->w.layers[0].out.w[0].n_panels, memory_order_relaxed);
    for (uint32_t r = 0; r < b->n_rows; r++) {
        check_row(m, &b->rows[r], kv);
        ASSERT(!r || b->rows[r].seq != b->rows[r - 1].seq ||
               b->rows[r].pos == b->rows[r - 1].pos + 1);
    }
    plan_wanted(p, b);
    for (uint32_t r = 0, n; r < b->n_rows; r += n) {
        n = run_of(m, b, r, tokens);
        plan_units(m, p, b, r, n);
    }
}

/* ---- step ---- */

struct step step_begin(struct model *m, const struct worker *worker, const struct batch *batch,
                       const struct kv_pool *kv)
{
    m->scratch[worker->id].ahead = (struct ahead){.end = 0};
    return (struct step){m, worker, batch, kv, &m->act, &m->scratch[worker->id]};
}

uint32_t rows_after(const struct step *s, uint32_t layer)
{
    return layer + 1 < s->m->h.n_layers ? s->batch->n_rows : s->m->plan.n_wanted;
}

int32_t slot_of(const struct step *s, uint32_t layer, uint32_t r)
{
    return layer + 1 < s->m->h.n_layers ? (int32_t)r : s->m->plan.slot[r];
}

uint32_t stack_panels(const struct stack *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->w[i].n_panels;
    return n;
}

/* What a stack reads of its input. */
static enum activations stack_activations(const struct step *s, const struct stack *w)
{
    if (s->m->activations == ACTIVATIONS_INT8 && w->fine < INFINITY)
        return ACTIVATIONS_INT16;
    return s->m->activations;
}

struct matmul_input feed_input(const struct step *s, const struct stack *w, const struct feed *feed,
                               uint32_t n_rows)
{
    return (struct matmul_input){.x = feed->x,
                                 .n_rows = n_rows,
                                 .n_in = w->w[0].n_in,
                                 .activations = stack_activations(s, w),
                                 .buffer = w->quantised ? feed->planes : NULL};
}

bool feed_floats(const struct step *s, const struct stack *w)
{
    return w->floats || s->m->activations == ACTIVATIONS_FLOAT;
}

struct share panels_share(const struct step *s, const struct stack *w, uint32_t n, uint32_t n_rows)
{
    bool many = n_rows >= MATMUL_BLAS_ROWS && !w->quantised;
    struct share share = share_begin(s->worker, n, many ? TILE_PANELS : 1);
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n_bytes += w->w[i].n_bytes;
    size_t parts = n_bytes / s->worker->n / PART_BYTES + 1;
    if (n_rows <= SMALL_ROWS && parts < share.parts)
        share.parts = (uint32_t)parts;
    return share;
}

/* ---- forward ---- */

struct pass {
    struct model *m;
    const struct batch *batch;
    const struct kv_pool *kv;
    float *logits;
};

static void forward_worker(const struct worker *worker, void *arg)
{
    const struct pass *p = arg;
    struct step s = step_begin(p->m, worker, p->batch, p->kv);
    embed_rows(&s);
    for (uint32_t layer = 0; layer < p->m->h.n_layers; layer++) {
        block_forward(&s, layer);
        if (worker->id == 0 && p->m->heartbeat)
            atomic_fetch_add_explicit(p->m->heartbeat, 1, memory_order_relaxed);
    }
    lm_head(&s, p->logits);
}

void model_forward(struct model *m, const struct batch *b, const struct kv_pool *kv,
                   struct workers *workers, float *logits)
{
    struct pass p = {m, b, kv, logits};
    if (b->n_rows == 0)
        return;
    ASSERT(workers_count(workers) == m->n_workers);
    plan_batch(m, b, kv);
    workers_run(workers, forward_worker, &p);
}
