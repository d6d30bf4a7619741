/* [05 scheduler] what a request must be before it may wait: its whole timeline built and checked.
 * After this its errors are over, unless the memory for its sampler (big, so only those that run
 * have one) runs out. */
#include "core/base/mem.h"
#include "core/sched/queue.h"
#include "core/sched/scheduler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The timeline before the answer: what the session has, BOS where that is nothing, the prompt. */
struct parts {
    const uint32_t *old; /* [n_old] */
    uint32_t n_old;
    bool bos;
    uint64_t n; /* in all */
};

static struct parts parts_of(const struct scheduler *s, const struct request *r)
{
    struct parts p = {0};
    if (r->session && r->params.mode == TIMELINE_APPEND) {
        p.old = r->session->ids;
        p.n_old = r->session->n_ids;
    }
    bool has = r->prompt.n && r->prompt.id[0] == s->o.bos;
    bool wanted = r->params.add_bos || !r->prompt.n; /* the empty prompt is BOS alone */
    p.bos = !p.n_old && wanted && s->o.has_bos && !has;
    p.n = (uint64_t)p.n_old + p.bos + r->prompt.n;
    return p;
}

static int check(const struct scheduler *s, const struct request *r, const struct parts *p,
                 struct error *err)
{
    if (!p->n)
        return error_set_field(err, ERR_INVALID, "prompt",
                               "the prompt is empty, and the model has no BOS token to begin with");
    for (uint32_t i = 0; i < r->prompt.n; i++)
        if (r->prompt.id[i] >= s->o.n_vocab)
            return error_set_field(err, ERR_INVALID, "prompt",
                                   "token %u of the prompt is %u, the model has ids below %u", i,
                                   r->prompt.id[i], s->o.n_vocab);
    if (p->n > s->o.n_ctx)
        return error_set_context(err, p->n, s->o.n_ctx);
    return sampler_check(&r->params.sampling, s->o.n_vocab, err);
}

/* A prompt of more pages than there are could wait for ever. */
static int check_pool(const struct scheduler *s, const struct request *r, uint32_t n_prompt,
                      struct error *err)
{
    const struct kv_pool *kv = s->o.kv;
    uint64_t pool = (uint64_t)kv->n_pages * kv->geometry.page_tokens;
    if (kv_pages_of(kv, n_prompt + r->n_max) <= kv->n_pages)
        return 0;
    return error_set_field(err, ERR_INVALID, "max_tokens",
                           "prompt and max_tokens need %u tokens of KV cache, all of it holds "
                           "%" PRIu64,
                           n_prompt + r->n_max, pool);
}

ON_ENGINE static int build_timeline(struct scheduler *s, struct request *r, const struct parts *p,
                                    struct error *err)
{
    uint32_t n = (uint32_t)p->n, *at;
    r->cap_timeline = n + r->n_max;
    if (r->session && sessions_room(&s->sessions, r->cap_timeline, err))
        return -1;
    r->timeline = at = mem_new(r->cap_timeline, sizeof(*r->timeline));
    if (!at)
        return error_set(err, ERR_NO_MEMORY, "no memory for a timeline of %u tokens",
                         r->cap_timeline);
    if (p->n_old)
        memcpy(at, p->old, p->n_old * sizeof(*at));
    at += p->n_old;
    if (p->bos)
        *at++ = s->o.bos;
    if (r->prompt.n)
        memcpy(at, r->prompt.id, r->prompt.n * sizeof(*at));
    r->n_timeline = n;
    return 0;
}

/* Shared: of the salt. Private: of the session, which always finds its own again. */
static int choose_root(struct scheduler *s, struct request *r, struct error *err)
{
    char name[PREFIX_NAME_MAX];
    if (r->params.cache)
        snprintf(name, sizeof(name), "salt %s", r->params.cache_salt);
    else if (r->session)
        snprintf(name, sizeof(name), "session %" PRIu64, r->session->number);
    else
        return 0;
    r->root = prefix_root(s->prefix, name, err);
    return r->root == PREFIX_NONE ? -1 : 0;
}

static int open_text(struct scheduler *s, struct request *r, const struct parts *p,
                     struct error *err)
{
    struct detok_stop *stops = mem_new(r->params.n_stops, sizeof(*stops));
    bool first = p->n == 0 || (p->n == 1 && s->o.has_bos && r->timeline[0] == s->o.bos);
    if (!stops)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u stop strings", r->params.n_stops);
    for (uint32_t i = 0; i < r->params.n_stops; i++)
        stops[i] = (struct detok_stop){r->params.stops[i], r->params.n_stop[i]};
    r->detok = detok_open(s->o.text, stops, r->params.n_stops, first, err);
    free(stops);
    return r->detok ? 0 : -1;
}

ON_ENGINE static int prepare(struct scheduler *s, struct request *r, struct error *err)
{
    struct parts p = parts_of(s, r);
    if (check(s, r, &p, err))
        return -1;
    uint32_t n = (uint32_t)p.n, left = s->o.n_ctx - n;
    r->n_max = r->params.max_tokens < left ? r->params.max_tokens : left;
    atomic_store(&r->n_prompt, n);
    r->result.prompt_tokens = n;
    if (check_pool(s, r, n, err) || build_timeline(s, r, &p, err) || choose_root(s, r, err) ||
        seq_open(&r->seq, s->o.kv, r->cap_timeline, err))
        return -1;
    return s->o.text ? open_text(s, r, &p, err) : 0;
}

void scheduler_admit(struct scheduler *s, struct request *r)
{
    struct error err = {0};
    if (prepare(s, r, &err)) {
        scheduler_fail(s, r, &err);
        return;
    }
    ids_free(&r->prompt); /* is in the timeline now */
    r->state = STATE_WAITING;
    atomic_store(&r->started, true);
    queue_insert(&s->waiting, r);
    ready_touch(s->ready, r);
}
