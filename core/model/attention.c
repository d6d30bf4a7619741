/* [09 attention] each row looks back and gathers the values whose keys fit its query.
 *
 * o = softmax(q K^T / sqrt(head_dim)) V over the keys of positions 0 .. pos, its own among them:
 * the causal mask (Vaswani et al. 2017, 3.2.1). q [head_dim], K and V [pos + 1, head_dim], per
 * head; o goes to ctx [n, n_heads * head_dim]. First k, turned, and v are written into their
 * page, rounded to the KV type; attention reads pages only, also for rows of this batch.
 *
 * Splits of the keys lie at absolute positions and are joined in order, whoever computes them, so
 * that prefill and decode, alone or in company, on any number of workers, do the same sums. */
#include "core/kernel/attention.h"

#include "core/base/mem.h"
#include "core/kernel/ops.h"
#include "core/model/stages.h"

#include <math.h>
#include <string.h>

static uint32_t group_of(const struct hparams *h) { return h->n_heads / h->n_kv_heads; }

/* Row r's ctx of the heads of a group, or NULL: it is not wanted of the last layer. */
static float *ctx_of(const struct step *s, uint32_t layer, uint32_t r, uint32_t kv_head)
{
    const struct hparams *h = &s->m->h;
    int32_t slot = slot_of(s, layer, r);
    size_t head = (size_t)slot * h->n_heads + (size_t)kv_head * group_of(h);
    return slot < 0 ? NULL : s->a->ctx.x + head * h->head_dim;
}

/* Row r's first value of q; k and v of a KV head. */
static const float *q_of(const struct step *s, uint32_t r, uint32_t head)
{
    const struct hparams *h = &s->m->h;
    size_t width = (size_t)(h->n_heads + 2 * h->n_kv_heads) * h->head_dim;
    return s->a->qkv + r * width + (size_t)head * h->head_dim;
}

static const float *k_of(const struct step *s, uint32_t r, uint32_t kv_head)
{
    return q_of(s, r, s->m->h.n_heads + kv_head);
}

static const float *v_of(const struct step *s, uint32_t r, uint32_t kv_head)
{
    return q_of(s, r, s->m->h.n_heads + s->m->h.n_kv_heads + kv_head);
}

/* out = factor * in, n heads of row r, turned by its position where the model does that. */
static void turn(const struct step *s, uint32_t r, const float *in, float factor, float *out,
                 uint32_t n)
{
    const struct hparams *h = &s->m->h;
    if (h->arch->pos == POS_ROPE_ADJACENT)
        ops_rope_pairs(in, factor, s->a->turn + (size_t)r * h->rope_dims, h->rope_dims / 2, out, n,
                       h->head_dim);
    else
        ops_scale(in, factor, out, (size_t)n * h->head_dim);
}

/* Writes k and v of one row and KV head to where its position lies: K in column t, V in row t. */
static void store(const struct step *s, uint32_t layer, uint32_t r, uint32_t kv_head)
{
    const struct batch_row *row = &s->batch->rows[r];
    uint32_t dim = s->m->h.head_dim, tokens = s->kv->geometry.page_tokens;
    uint32_t page = row->seq->pages[row->pos / tokens], t = row->pos % tokens;
    uint8_t *page_k = kv_page_k(s->kv, page, layer, kv_head);
    uint8_t *page_v = kv_page_v(s->kv, page, layer, kv_head);
    float *k = s->scratch->q; /* not needed yet */
    turn(s, r, k_of(s, r, kv_head), 1, k, 1);
    attention_store(s->kv->geometry.type, k, v_of(s, r, kv_head), t, page_k, page_v, dim, tokens);
}

/* Whoever brings the last of a KV head's k and v writes them to their pages. */
void attention_keep(const struct step *s, uint32_t layer, uint32_t begin, uint32_t end)
{
    const struct hparams *h = &s->m->h;
    uint32_t at = h->n_heads * h->head_dim;
    for (uint32_t i = 0; i < 2 * h->n_kv_heads && at < end; i++, at += h->head_dim) {
        uint32_t kv_head = i % h->n_kv_heads, from = begin > at ? begin : at;
        uint32_t to = least(at + h->head_dim, end);
        atomic_uint *left = &s->m->plan.unstored[kv_head];
        if (from >= to || atomic_fetch_sub(left, to - from) != to - from)
            continue;
        atomic_store(left, 2 * h->head_dim); /* for the next layer */
        for (uint32_t r = 0; r < s->batch->n_rows; r++)
            store(s, layer, r, kv_head);
    }
}

/* Queries of a unit: of each row the heads of the group, times 1 / sqrt(head_dim). */
static struct attention queries(const struct step *s, const struct unit *u, uint32_t kv_head)
{
    const struct hparams *h = &s->m->h;
    const struct scratch *c = s->scratch;
    uint32_t group = group_of(h), n = 0;
    for (uint32_t r = u->row; r < u->row + u->n_rows; r++, n += group)
        turn(s, r, q_of(s, r, kv_head * group), 1 / sqrtf((float)h->head_dim),
             c->q + (size_t)n * h->head_dim, group);
    return (struct attention){
        .n_q = n,
        .head_dim = h->head_dim,
        .page_tokens = s->kv->geometry.page_tokens,
        .q = c->q,
        .n_keys = c->n_keys,
        .s = c->s,
        .m = c->m,
        .l = c->l,
        .decay = c->decay,
        .o = c->o,
        .floats = c->floats,
    };
}

/* Units of a layer are shared out from the last to the first, all heads of one before the next: whoever
 * has them reads on where it is in a page. */
struct work {
    uint32_t layer;
    struct share share;
    uint32_t begin, end;   /* items, not begun yet */
    struct unit_head next; /* begun when the one at hand is done, and on its way meanwhile */
};

static bool is_wanted(const struct step *s, const struct unit *u, uint32_t layer)
{
    for (uint32_t r = u->row; r < u->row + u->n_rows; r++)
        if (slot_of(s, layer, r) >= 0)
            return true;
    return false;
}

struct unit_head unit_head(const struct step *s, uint32_t item)
{
    const struct plan *p = &s->m->plan;
    const uint32_t n_heads = s->m->h.n_kv_heads;
    return (struct unit_head){&p->units[p->n_units - 1 - item / n_heads], item % n_heads};
}

uint32_t unit_last_page(const struct step *s, const struct unit *u)
{
    const uint32_t end = s->batch->rows[u->row].pos / s->kv->geometry.page_tokens;
    return least(u->split_end * s->m->plan.split_pages - 1, end); /* of all its rows */
}

/* u NULL: no more */
static struct unit_head take(const struct step *s, struct work *w)
{
    while (w->begin < w->end || share_take(&w->share, &w->begin, &w->end)) {
        const struct unit_head h = unit_head(s, w->begin++);
        if (is_wanted(s, h.u, w->layer))
            return h;
    }
    return (struct unit_head){NULL, 0};
}

static uint32_t first_page(const struct step *s, const struct unit *u)
{
    return s->batch->rows[u->row].seq->pages[(size_t)u->split_begin * s->m->plan.split_pages];
}

/* A page for the kernel, and the one after it: of the next unit where it is this one's last. */
static struct attention_page page_of(const struct step *s, uint32_t layer,
                                     const struct unit_head *t, uint32_t page,
                                     const struct unit_head *after, uint32_t page_after)
{
    const struct kv_pool *kv = s->kv;
    uint8_t *k = kv_page_k(kv, page, layer, t->kv_head);
    uint8_t *v = kv_page_v(kv, page, layer, t->kv_head);
    return (struct attention_page){
        .type = kv->geometry.type,
        .k = k,
        .v = v,
        .k_scales = kv_page_scales(kv, k),
        .v_scales = kv_page_scales(kv, v),
        .next_k = kv_page_k(kv, page_after, layer, after->kv_head),
        .next_v = kv_page_v(kv, page_after, layer, after->kv_head),
    };
}

/* Keys of a page that the unit's queries may see, from its first row's position; their sum. */
static uint32_t count_keys(const struct unit *u, uint32_t group, uint32_t pos, uint32_t page,
                           uint32_t tokens, uint32_t *n_keys)
{
    uint32_t seen = 0;
    for (uint32_t r = 0; r < u->n_rows; r++) {
        uint32_t left = pos + r + 1 - page * tokens, n = left < tokens ? left : tokens;
        for (uint32_t g = 0; g < group; g++)
            *n_keys++ = n;
        seen += n;
    }
    return seen;
}

/* All queries of the unit over the pages of one split. Before the last page of the unit the next
 * unit is taken, so that its first page is on its way when this one ends. */
static void attend_split(const struct step *s, const struct unit_head *t, const struct attention *a,
                         uint32_t split, struct work *w)
{
    const struct unit *u = t->u;
    const struct batch_row *row = &s->batch->rows[u->row];
    const uint32_t *pages = row->seq->pages, split_pages = s->m->plan.split_pages;
    uint32_t tokens = a->page_tokens, group = group_of(&s->m->h), seen = 0;
    uint32_t last = unit_last_page(s, u);
    uint32_t end = least((split + 1) * split_pages, last + 1);
    attention_begin(a);
    for (uint32_t page = split * split_pages; page < end; page++) {
        const struct unit_head *after = t;
        uint32_t page_after = pages[least(page + 1, last)];
        if (page == last) {
            w->next = take(s, w);
            if (w->next.u) {
                after = &w->next;
                page_after = first_page(s, w->next.u);
            }
        }
        struct attention_page p = page_of(s, w->layer, t, pages[page], after, page_after);
        seen += count_keys(u, group, row->pos, page, tokens, s->scratch->n_keys);
        attention_page(a, &p);
    }
    if (w->layer == 0 && t->kv_head == 0)
        atomic_fetch_add_explicit(&s->m->scores, seen, memory_order_relaxed);
}

/* A split's sums, kept for join_parts. */
static void keep_part(const struct step *s, const struct unit_head *t, const struct attention *a)
{
    const struct hparams *h = &s->m->h;
    const struct plan *p = &s->m->plan;
    const struct unit *u = t->u;
    uint32_t group = group_of(h), q = 0;
    for (uint32_t r = u->row; r < u->row + u->n_rows; r++, q += group) {
        size_t at = ((size_t)p->part[r] + u->split_begin) * h->n_heads + (size_t)t->kv_head * group;
        memcpy(p->part_m + at, a->m + q, group * sizeof(float));
        memcpy(p->part_l + at, a->l + q, group * sizeof(float));
        memcpy(p->part_o + at * h->head_dim, a->o + (size_t)q * h->head_dim,
               (size_t)group * h->head_dim * sizeof(float));
    }
}

/* All splits, one after the other, and the result to ctx. */
static void attend_whole(const struct step *s, const struct unit_head *t, const struct attention *a,
                         struct work *w)
{
    const struct hparams *h = &s->m->h;
    const struct scratch *c = s->scratch;
    const struct unit *u = t->u;
    uint32_t group = group_of(h), dim = h->head_dim, q = 0;
    struct attention all = *a; /* the first split is joined to nothing: it is the sum so far */
    all.m = c->all_m;
    all.l = c->all_l;
    all.o = c->all_o;
    attend_split(s, t, &all, u->split_begin, w);
    for (uint32_t split = u->split_begin + 1; split < u->split_end; split++) {
        attend_split(s, t, a, split, w);
        attention_join(a->n_q, all.m, all.l, all.o, a->m, a->l, a->o, dim);
    }
    for (uint32_t r = u->row; r < u->row + u->n_rows; r++, q += group) {
        float *ctx = ctx_of(s, w->layer, r, t->kv_head);
        if (ctx)
            attention_end(group, all.l + q, all.o + (size_t)q * dim, ctx, dim);
    }
}

/* Parts of row r and the heads of a group, in order, to ctx. */
static void join_parts(const struct step *s, uint32_t layer, uint32_t r, uint32_t kv_head)
{
    const struct hparams *h = &s->m->h;
    const struct plan *p = &s->m->plan;
    const struct scratch *c = s->scratch;
    uint32_t n = splits_of(p, s->batch->rows[r].pos);
    uint32_t group = group_of(h), dim = h->head_dim;
    size_t head = (size_t)kv_head * group, at = (size_t)p->part[r] * h->n_heads + head;
    float *o = ctx_of(s, layer, r, kv_head);
    memcpy(c->all_m, p->part_m + at, group * sizeof(float));
    memcpy(c->all_l, p->part_l + at, group * sizeof(float));
    memcpy(o, p->part_o + at * dim, (size_t)group * dim * sizeof(float));
    for (uint32_t i = 1; i < n; i++) {
        at += h->n_heads;
        attention_join(group, c->all_m, c->all_l, o, p->part_m + at, p->part_l + at,
                       p->part_o + at * dim, dim);
    }
    attention_end(group, c->all_l, o, o, dim);
}

/* The last unit of some rows is done: their ctx, joined and quantised for the next product. */
static void finish_rows(const struct step *s, const struct unit *u, uint32_t layer)
{
    const struct plan *p = &s->m->plan;
    const struct stack *out = &s->m->w.layers[layer].out;
    struct matmul_input in = feed_input(s, out, &s->a->ctx, rows_after(s, layer));
    for (uint32_t r = u->row; r < u->row + u->n_rows; r++) {
        int32_t slot = slot_of(s, layer, r);
        if (slot < 0)
            continue;
        for (uint32_t kv_head = 0; p->part[r] >= 0 && kv_head < s->m->h.n_kv_heads; kv_head++)
            join_parts(s, layer, r, kv_head);
        matmul_quantise(&in, (uint32_t)slot, (uint32_t)slot + 1);
    }
}

static void attend_unit(const struct step *s, const struct unit_head *t, struct work *w)
{
    const struct unit *u = t->u;
    atomic_uint *left = &s->m->plan.left[u->row];
    struct attention a = queries(s, u, t->kv_head);
    if (u->parts) {
        attend_split(s, t, &a, u->split_begin, w);
        keep_part(s, t, &a);
    } else {
        attend_whole(s, t, &a, w);
    }
    if (atomic_fetch_sub(left, 1) == 1) {
        uint32_t n_units = u->parts ? splits_of(&s->m->plan, s->batch->rows[u->row].pos) : 1;
        atomic_store(left, n_units * s->m->h.n_kv_heads); /* for the next layer */
        finish_rows(s, u, w->layer);
    }
}

void attention_apply(const struct step *s, uint32_t layer)
{
    struct work w = {.layer = layer,
                     .share = share_begin(s->worker, s->m->plan.n_units * s->m->h.n_kv_heads, 1)};
    ahead_end(s);
    for (struct unit_head t = take(s, &w); t.u; t = w.next)
        attend_unit(s, &t, &w);
    worker_barrier(s->worker);
}
