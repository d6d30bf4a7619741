/* [05 scheduler] who runs: requests in, turns in sessions, slots and pages, the end of all. */
#include "core/sched/scheduler.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <string.h>

int scheduler_open(struct scheduler *s, const struct scheduler_options *o, struct ready *ready,
                   struct scheduler_books *books, struct error *err)
{
    *s = (struct scheduler){.o = *o, .books = books, .ready = ready};
    TAILQ_INIT(&s->live);
    TAILQ_INIT(&s->waiting);
    pace_open(&s->pace);
    probe_open(&s->probe);
    s->prefix = prefix_open(o->kv, err);
    s->running = mem_new(o->max_running, sizeof(struct request *));
    if (s->prefix && !s->running)
        error_set(err, ERR_NO_MEMORY, "no memory for %u running requests", o->max_running);
    if (!s->prefix || !s->running || plan_open(&s->plan, o->max_rows, o->max_running, err)) {
        prefix_close(s->prefix);
        free(s->running);
        *s = (struct scheduler){0};
        return -1;
    }
    sessions_open(&s->sessions, s->prefix, kv_token_bytes(&o->kv->geometry));
    return 0;
}

void scheduler_close(struct scheduler *s)
{
    if (!s->prefix)
        return;
    ASSERT(TAILQ_EMPTY(&s->live));
    sessions_close(&s->sessions);
    plan_close(&s->plan);
    prefix_close(s->prefix);
    free(s->running);
    *s = (struct scheduler){0};
}

ON_ENGINE static int join_session(struct scheduler *s, struct request *r, struct error *err)
{
    const char *id = r->params.session;
    struct session *session = sessions_find(&s->sessions, id);
    if (!session && !s->o.sessions_auto_create)
        return error_set_field(err, ERR_NO_SESSION, "session", "no session \"%s\"", id);
    if (!session) {
        session = sessions_create(&s->sessions, id, err);
        if (!session)
            return -1;
        r->result.session_created = true;
    }
    r->session = session;
    TAILQ_INSERT_TAIL(&session->line, r, line_link);
    return 0;
}

void scheduler_take(struct scheduler *s, struct request *r)
{
    struct error err = {0};
    r->ready = s->ready;
    r->state = STATE_LINE;
    TAILQ_INSERT_TAIL(&s->live, r, live_link);
    s->n_waiting++;
    if (r->params.session[0] && join_session(s, r, &err))
        scheduler_fail(s, r, &err);
}

void scheduler_command(struct scheduler *s, struct session_command *c)
{
    sessions_command(&s->sessions, c);
    ready_answer(s->ready, c);
}

static uint64_t deadline_of(const struct request *r) /* 0 = none */
{
    uint64_t ms = r->params.deadline_ms;
    return ms && ms < UINT64_MAX / 2000000 ? r->submitted_ns + ms * 1000000 : 0;
}

static bool has_turn(const struct request *r)
{
    return r->state == STATE_LINE && (!r->session || TAILQ_FIRST(&r->session->line) == r);
}

/* Returns whether a request ended: then another's turn may have come. */
ON_ENGINE static bool sweep(struct scheduler *s, uint64_t now)
{
    uint32_t n_ended = 0;
    for (struct request *r = TAILQ_FIRST(&s->live), *next; r; r = next) {
        next = TAILQ_NEXT(r, live_link);
        if (atomic_load(&r->cancel))
            scheduler_finish(s, r, FINISH_CANCELLED, STOP_NONE);
        else if (deadline_of(r) && deadline_of(r) <= now)
            scheduler_finish(s, r, FINISH_DEADLINE, STOP_NONE);
        else if (has_turn(r))
            scheduler_admit(s, r);
        n_ended += r->finished;
    }
    return n_ended > 0;
}

ON_ENGINE static void run(struct scheduler *s, struct request *r)
{
    uint32_t i = s->n_running++;
    TAILQ_REMOVE(&s->waiting, r, wait_link);
    s->n_waiting--;
    for (; i > 0; i--) {
        const struct request *before = s->running[i - 1];
        if (before->params.priority > r->params.priority ||
            (before->params.priority == r->params.priority && before->number < r->number))
            break;
        s->running[i] = s->running[i - 1];
    }
    s->running[i] = r;
    r->state = STATE_RUNNING;
    r->ran = true;
    r->start_ns = clock_ns();
    atomic_store(&r->phase, PHASE_PREFILL);
}

/* What others have computed is shared, the rest reserved to the last token that it may generate;
 * false: not enough pages now. */
ON_ENGINE static bool start(struct scheduler *s, struct request *r)
{
    uint32_t limit = r->n_timeline - 1; /* the last token is computed: its logits are wanted */
    prefix_share(s->prefix, r->root, r->timeline, limit, &r->seq);
    if (!seq_reserve(&r->seq, s->o.kv, r->cap_timeline)) {
        seq_clear(&r->seq, s->o.kv);
        return false;
    }
    prefix_copy(s->prefix, r->root, r->timeline, limit, &r->seq);
    r->result.cached_tokens = r->seq.n_tokens;
    atomic_store(&r->prefilled_ns, clock_ns());
    atomic_store(&r->n_prefilled, r->seq.n_tokens);
    run(s, r);
    ready_touch(s->ready, r);
    return true;
}

static bool open_sampler(struct request *r, uint32_t n_vocab, struct error *err)
{
    if (!r->sampler)
        r->sampler = sampler_open(&r->params.sampling, n_vocab, err);
    return r->sampler;
}

static void keep_books(struct scheduler *s)
{
    struct kv_count c;
    kv_count(s->o.kv, &c);
    atomic_store(&s->books->running, s->n_running);
    atomic_store(&s->books->waiting, s->n_waiting);
    atomic_store(&s->books->sessions, s->sessions.n);
    atomic_store(&s->books->pages_used, c.n_used);
    atomic_store(&s->books->pages_cached, c.n_cached);
    atomic_store(&s->books->pages_free, c.n_free);
    atomic_store(&s->books->pages_reserved, c.n_reserved);
}

void scheduler_tend(struct scheduler *s)
{
    struct request *r;
    struct error err;
    while (sweep(s, clock_ns()))
        continue;
    while ((r = TAILQ_FIRST(&s->waiting)) && s->n_running < s->o.max_running) {
        if (!open_sampler(r, s->o.n_vocab, &err))
            scheduler_fail(s, r, &err);
        else if (!start(s, r))
            break;
    }
    keep_books(s);
}

uint64_t scheduler_deadline(const struct scheduler *s)
{
    uint64_t least = 0;
    const struct request *r;
    TAILQ_FOREACH(r, &s->live, live_link)
    {
        uint64_t d = deadline_of(r);
        if (d && (!least || d < least))
            least = d;
    }
    return least;
}

void scheduler_end(struct scheduler *s)
{
    struct error err;
    error_set(&err, ERR_DRAINING, NULL);
    for (struct request *r; (r = TAILQ_FIRST(&s->live));) {
        if (r->state == STATE_RUNNING)
            scheduler_finish(s, r, FINISH_CANCELLED, STOP_NONE);
        else
            scheduler_fail(s, r, &err);
    }
    keep_books(s);
}
