/* [05 scheduler] one step: plan, forward, sample, emit. Sampling runs on the workers, a row each;
 * what follows a choice (text, stops, limits, events) is serial and cheap. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/sched/scheduler.h"

#include <string.h>

/* For the token of the answer after so many. */
static bool ends_are_banned(const struct request *r, uint32_t n_completion)
{
    return r->params.ignore_eos || n_completion < r->params.min_tokens;
}

/* One token, and as long as it is what the draft says the next: each as if it were alone. */
static void sample(const struct scheduler *s, struct request *r)
{
    uint32_t n_completion = atomic_load(&r->n_completion);
    for (uint32_t i = 0; i <= r->n_draft; i++) {
        bool banned = ends_are_banned(r, n_completion + i);
        uint32_t n = r->n_timeline + i;
        float *logits = s->o.logits + (size_t)(r->logits_row + i) * s->o.n_vocab;
        sampler_pick(r->sampler, logits, n, r->timeline, n, banned ? s->o.ends : NULL,
                     banned ? s->o.n_ends : 0, &r->choices[i]);
        r->n_choices = i + 1;
        if (i < r->n_draft && r->choices[i].id != r->timeline[n])
            return;
    }
}

/* The requests' rows are their own; which worker takes them changes nothing. */
struct sampling {
    const struct scheduler *s;
    atomic_uint next;
};

static void sample_rows(const struct worker *w, void *arg)
{
    struct sampling *job = arg;
    const struct scheduler *s = job->s;
    (void)w;
    for (uint32_t i; (i = atomic_fetch_add(&job->next, 1)) < s->plan.n_wanted;)
        sample(s, s->plan.wanted[i]);
}

static void push(struct request *r, const struct sample_choice *choice, uint64_t now)
{
    size_t n = request_text_chunk(r);
    ring_push(&r->ring, choice, str_text(&r->text), n, now);
    if (n < r->text.n)
        memmove(r->text.s, r->text.s + n, r->text.n - n);
    r->text.n -= n;
    if (r->text.s)
        r->text.s[r->text.n] = '\0';
}

/* One token chosen: into the timeline, to the client, and is it the last? */
ON_ENGINE static void emit(struct scheduler *s, struct request *r,
                           const struct sample_choice *choice, uint64_t now)
{
    static const struct error no_memory = {.code = ERR_NO_MEMORY,
                                           .text = "no memory for the answer's text"};
    uint32_t n = atomic_load(&r->n_completion);
    int stop = -1;
    r->last_ns = now;
    if (!r->first_ns) {
        r->first_ns = now;
        atomic_store(&r->phase, PHASE_DECODE);
    }
    ASSERT(r->n_timeline < r->cap_timeline);
    r->timeline[r->n_timeline++] = choice->id;
    if (scheduler_is_end(s, choice->id) && !ends_are_banned(r, n)) {
        scheduler_finish(s, r, FINISH_STOP, STOP_EOS);
        return;
    }
    if (r->detok)
        stop = detok_push(r->detok, choice->id, &r->text);
    push(r, choice, now);
    atomic_store(&r->n_completion, ++n);
    atomic_fetch_add(&s->books->tokens_out, 1);
    ready_touch(s->ready, r);
    r->result.stop_index = stop;
    if (r->text.failed)
        scheduler_fail(s, r, &no_memory);
    else if (stop >= 0)
        scheduler_finish(s, r, FINISH_STOP, STOP_WORD);
    else if (n == r->n_max)
        scheduler_finish(s, r, FINISH_LENGTH, STOP_LIMIT);
}

/* Rows of this step are in the pages: complete ones become findable. */
ON_ENGINE static void advance(struct scheduler *s, struct request *r, uint32_t n_rows, uint64_t now)
{
    uint32_t page = s->o.kv->geometry.page_tokens, n_complete = r->seq.n_tokens / page;
    r->seq.n_tokens += n_rows;
    if (r->seq.n_tokens / page > n_complete)
        prefix_publish(s->prefix, r->root, r->timeline, &r->seq);
    if (r->first_ns)
        return;
    r->result.prefilled_tokens += n_rows;
    atomic_fetch_add(&s->books->tokens_in, n_rows);
    atomic_store(&r->prefilled_ns, now);
    atomic_store(&r->n_prefilled, r->seq.n_tokens);
    ready_touch(s->ready, r);
    if (r->seq.n_tokens < r->n_timeline)
        return;
    atomic_fetch_add(&s->books->tokens_cached, r->result.cached_tokens);
    if (!r->n_max)
        scheduler_finish(s, r, FINISH_LENGTH, STOP_LIMIT);
}

/* What was chosen in this step, one after the other as if each had a step of its own: what comes
 * behind the end of an answer, or of a draft that did not hold, was never there. */
ON_ENGINE static void answer(struct scheduler *s, struct request *r, uint64_t now)
{
    uint32_t n_draft = r->n_draft, ids[1 + DRAFT_MAX];
    for (uint32_t i = 0; i < r->n_choices; i++)
        ids[i] = r->choices[i].id;
    draft_learn(&r->draft, ids, r->n_choices);
    atomic_fetch_add(&s->books->tokens_drafted, n_draft);
    atomic_fetch_add(&s->books->drafts_held, r->n_choices - 1);
    r->n_draft = 0;
    for (uint32_t i = 0; i < r->n_choices && !r->finished; i++) {
        if (i)
            advance(s, r, 1, now); /* the row of the choice before */
        emit(s, r, &r->choices[i], now);
    }
}

/* Rows whose ring is full stay out until it is half empty. */
static void look_at_rings(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        if (!r->blocked && ring_room(&r->ring))
            continue;
        atomic_store(&r->wants_room, true);
        r->blocked = !ring_half_empty(&r->ring);
        if (!r->blocked)
            atomic_store(&r->wants_room, false);
    }
}

static void forward(struct scheduler *s)
{
    const struct plan *p = &s->plan;
    struct batch batch = {.rows = p->rows, .n_rows = p->n_rows, .n_logits = p->n_logits};
    struct sampling job = {.s = s};
    s->o.forward(s->o.forward_arg, &batch);
    if (p->n_wanted > 1)
        workers_run(s->o.workers, sample_rows, &job);
    else
        sample_rows(NULL, &job);
}

static void learn(struct scheduler *s, uint64_t ns)
{
    double ms = (double)ns / 1e6;
    pace_learn(&s->pace, &s->plan.load, (double)ns);
    atomic_fetch_add(&s->books->steps, 1);
    atomic_fetch_add(&s->books->rows, s->plan.n_rows);
    atomic_store(&s->books->last_step_ms, ms);
    if (ms > atomic_load(&s->books->longest_step_ms))
        atomic_store(&s->books->longest_step_ms, ms);
}

bool scheduler_step(struct scheduler *s)
{
    struct plan *p = &s->plan;
    struct plan_limits limits = {s->o.prefill_chunk, s->o.step_ms * 1e6, &s->pace};
    look_at_rings(s);
    scheduler_speculate(s);
    plan_fill(p, s->running, s->n_running, &limits, s->o.kv, s->prefix);
    if (!p->n_rows)
        return false;
    uint64_t begin = clock_ns();
    forward(s);
    uint64_t now = clock_ns();
    learn(s, now - begin);
    for (uint32_t i = 0; i < p->n_members; i++)
        advance(s, p->members[i], p->n_rows_of[i], now);
    for (uint32_t i = 0; i < p->n_wanted; i++)
        answer(s, p->wanted[i], now);
    return true;
}
