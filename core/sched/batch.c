/* [05 scheduler] the rows of the next step. */
#include "core/sched/batch.h"

#include "core/base/mem.h"

#include <string.h>

int plan_open(struct plan *p, uint32_t max_rows, uint32_t max_running, struct error *err)
{
    *p = (struct plan){.max_rows = max_rows};
    p->rows = mem_new(max_rows, sizeof(*p->rows));
    p->members = mem_new(max_running, sizeof(struct request *));
    p->n_rows_of = mem_new(max_running, sizeof(*p->n_rows_of));
    p->wanted = mem_new(max_running, sizeof(struct request *));
    p->prompts = mem_new(max_running, sizeof(struct request *));
    p->grants = mem_new(max_running, sizeof(*p->grants));
    if (!p->rows || !p->members || !p->n_rows_of || !p->wanted || !p->prompts || !p->grants) {
        plan_close(p);
        return error_set(err, ERR_NO_MEMORY, "no memory for batches of %u rows", max_rows);
    }
    return 0;
}

void plan_close(struct plan *p)
{
    free(p->rows);
    free(p->members);
    free(p->n_rows_of);
    free(p->wanted);
    free(p->prompts);
    free(p->grants);
    *p = (struct plan){0};
}

/* Tokens of the timeline that are in no page yet. */
static uint32_t n_left(const struct request *r) { return r->n_timeline - r->seq.n_tokens; }

/* The next n rows of r and those of its draft; the last of its timeline, and these, give logits where
 * a token is to be chosen. */
static void add(struct plan *p, struct request *r, uint32_t n, struct kv_pool *kv)
{
    uint32_t begin = r->seq.n_tokens, end = begin + n;
    seq_cover(&r->seq, kv, end + r->n_draft);
    load_add(&p->load, request_in_prompt(r) ? LOAD_PROMPT : LOAD_DECODE, begin, n + r->n_draft);
    bool wanted = end == r->n_timeline && r->n_max;
    r->logits_row = p->n_logits;
    for (uint32_t pos = begin; pos < end + r->n_draft; pos++)
        p->rows[p->n_rows++] = (struct batch_row){
            .token = r->timeline[pos],
            .pos = pos,
            .seq = &r->seq,
            .logits_row = wanted && pos + 1 >= end ? (int32_t)p->n_logits++ : -1};
    if (wanted)
        p->wanted[p->n_wanted++] = r;
    p->members[p->n_members] = r;
    p->n_rows_of[p->n_members++] = n;
}

/* Is another request, earlier in line, at the very page that r would compute next? */
static bool computed_by(const struct request *other, const struct request *r, uint32_t page_tokens)
{
    uint32_t n_pages = r->seq.n_pages, begin = r->seq.n_tokens;
    return other->root == r->root && other->seq.n_tokens >= begin &&
           other->seq.n_tokens < begin + page_tokens && other->n_timeline >= begin + page_tokens &&
           (!n_pages || other->seq.pages[n_pages - 1] == r->seq.pages[n_pages - 1]) &&
           !memcmp(other->timeline + begin, r->timeline + begin, page_tokens * sizeof(uint32_t));
}

/* At a page's end: takes what others have published meanwhile. False: waits for one that is at it. */
static bool catch_up(struct plan *p, struct request *r, uint32_t n_prompts, struct kv_pool *kv,
                     struct prefix *prefix)
{
    uint32_t n = kv->geometry.page_tokens, limit = r->n_timeline - 1;
    if (r->root == PREFIX_NONE || r->seq.n_tokens % n)
        return true;
    r->result.cached_tokens += prefix_share(prefix, r->root, r->timeline, limit, &r->seq);
    if (r->seq.n_tokens + n > limit)
        return true;
    for (uint32_t i = 0; i < n_prompts; i++)
        if (computed_by(p->prompts[i], r, n))
            return false;
    return true;
}

/* Prompts in the order of running; the oldest (and of highest priority) is first. */
static uint32_t collect(struct plan *p, struct request **running, uint32_t n_running,
                        struct kv_pool *kv, struct prefix *prefix)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_running; i++)
        if (request_in_prompt(running[i]) && catch_up(p, running[i], n, kv, prefix))
            p->prompts[n++] = running[i];
    return n;
}

/* The prompt with the fewest rows left that has no grant yet, but for the first; n: none. */
static uint32_t nearest(const struct plan *p, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 1; i < n; i++)
        if (!p->grants[i] && (best == n || n_left(p->prompts[i]) < n_left(p->prompts[best])))
            best = i;
    return best;
}

/* What may still join the step. */
struct budget {
    const struct pace *pace; /* NULL: rows alone */
    struct load load;        /* what has */
    double ns;               /* of the whole step */
    uint32_t rows;
};

static uint32_t grant(struct budget *b, uint32_t pos, uint32_t most)
{
    most = most < b->rows ? most : b->rows;
    uint32_t n = b->pace ? pace_rows(b->pace, &b->load, pos, most, b->ns) : most;
    load_add(&b->load, LOAD_PROMPT, pos, n);
    b->rows -= n;
    return n;
}

/* Half of the budget, for those that are nearest to their first token. */
static void share_half(struct plan *p, uint32_t n, struct budget *b)
{
    double ns = b->pace ? (pace_ns(b->pace, &b->load) + b->ns) / 2 : 0;
    struct budget half = {b->pace, b->load, ns, b->rows / 2};
    for (uint32_t i; (i = nearest(p, n)) < n;) {
        const struct request *r = p->prompts[i];
        uint32_t got = grant(&half, r->seq.n_tokens, n_left(r));
        if (!got)
            break;
        p->grants[i] = got;
        b->rows -= got;
    }
    b->load = half.load;
}

/* Shares the budget among n prompts: half for the nearest ones, the rest for the first. */
static void share(struct plan *p, uint32_t n, struct budget *b)
{
    const struct request *first = p->prompts[0];
    memset(p->grants, 0, n * sizeof(*p->grants));
    share_half(p, n, b);
    p->grants[0] = grant(b, first->seq.n_tokens, n_left(first));
    for (uint32_t i = 1; i < n; i++) { /* what the first leaves, in the order of arrival */
        const struct request *r = p->prompts[i];
        p->grants[i] += grant(b, r->seq.n_tokens + p->grants[i], n_left(r) - p->grants[i]);
    }
    uint32_t total = 0, most = n_left(first) < BATCH_LEAST ? n_left(first) : BATCH_LEAST;
    for (uint32_t i = 0; i < n; i++)
        total += p->grants[i];
    if (total < most && b->pace) /* b->rows bounds what the batch can hold */
        p->grants[0] += most - total < b->rows ? most - total : b->rows;
}

/* Nanoseconds that the whole step may take, which so far has the rows of streams, with their drafts. */
static double whole_step(const struct plan_limits *limits, const struct load *decode)
{
    double streams = BATCH_STRETCH * pace_ns(limits->pace, decode);
    return load_rows(decode) && streams < limits->step_ns ? streams : limits->step_ns;
}

void plan_fill(struct plan *p, struct request **running, uint32_t n_running,
               const struct plan_limits *limits, struct kv_pool *kv, struct prefix *prefix)
{
    p->n_rows = p->n_members = p->n_wanted = p->n_prompt_rows = p->n_logits = 0;
    p->load = (struct load){0};
    for (uint32_t i = 0; i < n_running; i++)
        if (!request_in_prompt(running[i]) && !running[i]->blocked)
            add(p, running[i], 1, kv);
    uint32_t n = collect(p, running, n_running, kv, prefix), n_decode = p->n_rows;
    struct budget b = {.load = p->load, .rows = p->max_rows - n_decode};
    if (!n)
        return;
    if (limits->prompt_rows) {
        b.rows = limits->prompt_rows < b.rows ? limits->prompt_rows : b.rows;
    } else {
        b.pace = limits->pace;
        b.ns = whole_step(limits, &p->load);
    }
    share(p, n, &b);
    for (uint32_t i = 0; i < n; i++)
        if (p->grants[i])
            add(p, p->prompts[i], p->grants[i], kv);
    p->n_prompt_rows = p->n_rows - n_decode;
}
