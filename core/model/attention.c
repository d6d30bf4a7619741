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

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t group_of(const struct hparams *h) { return h->n_heads / h->n_kv_heads; }

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

/* out = factor * in, turned by row r's position where the model does that. */
static void turn(const struct step *s, uint32_t r, const float *in, float factor, float *out)
{
    const struct hparams *h = &s->m->h;
    ops_scale(in, factor, out, h->head_dim);
    if (h->arch->pos == POS_ROPE_ADJACENT)
        ops_rope_pairs(out, s->a->turn + (size_t)r * h->rope_dims, h->rope_dims / 2);
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
    turn(s, r, k_of(s, r, kv_head), 1, k);
    if (s->kv->geometry.type == KV_F32) {
        for (uint32_t d = 0; d < dim; d++)
            ((float *)(void *)page_k)[(size_t)d * tokens + t] = k[d];
        memcpy(page_v + (size_t)t * dim * sizeof(float), v_of(s, r, kv_head), dim * sizeof(float));
    } else {
        uint16_t *half = (uint16_t *)(void *)s->scratch->floats;
        ops_to_half(k, half, dim);
        for (uint32_t d = 0; d < dim; d++)
            ((uint16_t *)(void *)page_k)[(size_t)d * tokens + t] = half[d];
        ops_to_half(v_of(s, r, kv_head), (uint16_t *)(void *)page_v + (size_t)t * dim, dim);
    }
}

/* The whole batch's keys and values, before anyone reads them. KV heads first, so that workers
 * write far from each other. */
static void store_all(const struct step *s, uint32_t layer)
{
    uint32_t begin, end, n_rows = s->batch->n_rows;
    worker_slice(s->worker, n_rows * s->m->h.n_kv_heads, &begin, &end);
    for (uint32_t i = begin; i < end; i++)
        store(s, layer, i % n_rows, i / n_rows);
    worker_barrier(s->worker);
}

/* Queries of a unit: of each row the heads of the group, times 1 / sqrt(head_dim). */
static struct attention queries(const struct step *s, const struct unit *u, uint32_t kv_head)
{
    const struct hparams *h = &s->m->h;
    const struct scratch *c = s->scratch;
    uint32_t group = group_of(h), n = 0;
    for (uint32_t r = u->row; r < u->row + u->n_rows; r++)
        for (uint32_t g = 0; g < group; g++, n++)
            turn(s, r, q_of(s, r, kv_head * group + g), 1 / sqrtf((float)h->head_dim),
                 c->q + (size_t)n * h->head_dim);
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

/* All queries of the unit over the pages of one split. */
static void attend_split(const struct step *s, const struct unit *u, const struct attention *a,
                         uint32_t layer, uint32_t kv_head, uint32_t split)
{
    const struct batch_row *row = &s->batch->rows[u->row];
    uint32_t tokens = a->page_tokens, group = group_of(&s->m->h), seen = 0;
    uint32_t page = split * s->m->plan.split_pages, last = row->pos / tokens; /* of all its rows */
    uint32_t end = page + s->m->plan.split_pages;
    attention_begin(a);
    for (; page < end && page <= last; page++) {
        for (uint32_t q = 0; q < a->n_q; q++) {
            uint32_t left = row->pos + q / group + 1 - page * tokens;
            s->scratch->n_keys[q] = left < tokens ? left : tokens;
            seen += s->scratch->n_keys[q];
        }
        uint32_t at = row->seq->pages[page];
        attention_page(a, kv_page_k(s->kv, at, layer, kv_head),
                       kv_page_v(s->kv, at, layer, kv_head), s->kv->geometry.type == KV_F16);
    }
    if (layer == 0 && kv_head == 0)
        atomic_fetch_add_explicit(&s->m->scores, seen / group, memory_order_relaxed);
}

/* A split's sums, kept for join_parts. */
static void keep_part(const struct step *s, const struct unit *u, const struct attention *a,
                      uint32_t kv_head)
{
    const struct hparams *h = &s->m->h;
    const struct plan *p = &s->m->plan;
    uint32_t group = group_of(h);
    for (uint32_t q = 0; q < a->n_q; q++) {
        size_t part = (size_t)p->part[u->row + q / group] + u->split_begin;
        size_t at = part * h->n_heads + (size_t)kv_head * group + q % group;
        p->part_ml[2 * at] = a->m[q];
        p->part_ml[2 * at + 1] = a->l[q];
        memcpy(p->part_o + at * h->head_dim, a->o + (size_t)q * h->head_dim,
               h->head_dim * sizeof(float));
    }
}

/* All splits, one after the other, and the result to ctx. */
static void attend_whole(const struct step *s, const struct unit *u, const struct attention *a,
                         uint32_t layer, uint32_t kv_head)
{
    const struct hparams *h = &s->m->h;
    const struct scratch *c = s->scratch;
    uint32_t group = group_of(h), dim = h->head_dim;
    for (uint32_t q = 0; q < a->n_q; q++) {
        c->all_m[q] = -FLT_MAX;
        c->all_l[q] = 0;
    }
    memset(c->all_o, 0, (size_t)a->n_q * dim * sizeof(float));
    for (uint32_t split = u->split_begin; split < u->split_end; split++) {
        attend_split(s, u, a, layer, kv_head, split);
        for (uint32_t q = 0; q < a->n_q; q++)
            attention_join(&c->all_m[q], &c->all_l[q], c->all_o + (size_t)q * dim, a->m[q], a->l[q],
                           a->o + (size_t)q * dim, dim);
    }
    for (uint32_t q = 0; q < a->n_q; q++) {
        size_t head =
            (size_t)(u->row + q / group) * h->n_heads + (size_t)kv_head * group + q % group;
        attention_end(c->all_l[q], c->all_o + (size_t)q * dim, s->a->ctx + head * dim, dim);
    }
}

static void attend_unit(const struct step *s, const struct unit *u, uint32_t layer,
                        uint32_t kv_head)
{
    const struct plan *p = &s->m->plan;
    uint32_t tokens = s->kv->geometry.page_tokens * p->split_pages;
    uint32_t own = s->batch->rows[u->row].pos / tokens; /* the split with the row's own key */
    if (!p->store_first && own >= u->split_begin && own < u->split_end)
        store(s, layer, u->row, kv_head);
    struct attention a = queries(s, u, kv_head);
    if (!u->parts) {
        attend_whole(s, u, &a, layer, kv_head);
        return;
    }
    attend_split(s, u, &a, layer, kv_head, u->split_begin);
    keep_part(s, u, &a, kv_head);
}

/* Parts of row r, in order, to ctx. */
static void join_parts(const struct step *s, uint32_t r)
{
    const struct hparams *h = &s->m->h;
    const struct plan *p = &s->m->plan;
    uint32_t n = s->batch->rows[r].pos / (s->kv->geometry.page_tokens * p->split_pages) + 1;
    for (uint32_t head = 0; head < h->n_heads; head++) {
        float m = -FLT_MAX, l = 0;
        float *o = s->a->ctx + ((size_t)r * h->n_heads + head) * h->head_dim;
        memset(o, 0, h->head_dim * sizeof(*o));
        for (uint32_t i = 0; i < n; i++) {
            size_t at = ((size_t)p->part[r] + i) * h->n_heads + head;
            attention_join(&m, &l, o, p->part_ml[2 * at], p->part_ml[2 * at + 1],
                           p->part_o + at * h->head_dim, h->head_dim);
        }
        attention_end(l, o, o, h->head_dim);
    }
}

void attention_apply(const struct step *s, uint32_t layer)
{
    const struct plan *p = &s->m->plan;
    uint32_t n_kv = s->m->h.n_kv_heads, n = p->n_units * n_kv, begin, end, i;
    if (p->store_first)
        store_all(s, layer);
    while ((i = atomic_fetch_add_explicit(&p->next[layer], 1, memory_order_relaxed)) < n)
        attend_unit(s, &p->units[(n - 1 - i) / n_kv], layer, i % n_kv);
    worker_barrier(s->worker);
    step_rows(s, s->batch->n_rows, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        if (p->part[r] >= 0)
            join_parts(s, r);
}
