/* [05 scheduler] the serving door: a thread that loads the model and then takes, tends and steps
 * until it is told to stop; and what the loop may ask of it. */
#include "core/engine.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/open.h"
#include "core/sched/queue.h"
#include "core/sched/scheduler.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { PROMPT_ROWS = 512 }; /* of a batch at most, where prefill_chunk does not say */

struct engine {
    struct engine_options options;
    char *model_path, *kv_type, *activations, *blas, *speculation; /* the options' strings */
    pthread_t thread;
    uint64_t n_submitted; /* the loop's */

    struct queue queue;
    struct ready ready;
    struct scheduler_books books;
    atomic_uint state; /* enum engine_state; stored after opened or failure */
    atomic_bool stop, busy;
    _Atomic uint64_t heartbeat;
    struct error failure;

    /* the engine thread's; constant parts may be read once READY */
    struct opened opened;
    struct scheduler scheduler;
};

static void run_forward(void *arg, const struct batch *b)
{
    struct engine *e = arg;
    model_forward(e->opened.model, b, e->opened.kv, e->opened.workers, e->opened.logits);
}

/* Each running request has one row of logits, and up to DRAFT_MAX more. */
static uint32_t most_logits(const struct engine_options *o, enum speculation speculation)
{
    uint64_t drafts = (uint64_t)o->max_running * DRAFT_MAX;
    if (speculation == SPECULATION_OFF)
        return o->max_running;
    return o->max_running + (drafts < DRAFT_ROWS ? (uint32_t)drafts : DRAFT_ROWS);
}

ON_ENGINE static int load(struct engine *e, struct error *err)
{
    const struct engine_options *eo = &e->options;
    enum speculation speculation;
    if (open_speculation(eo->speculation, &speculation, err))
        return -1;
    uint32_t max_logits = most_logits(eo, speculation);
    uint32_t prompt_rows = eo->prefill_chunk ? eo->prefill_chunk : PROMPT_ROWS;
    struct open_options open = {.engine = eo,
                                .max_rows = max_logits + prompt_rows,
                                .max_logits = max_logits,
                                .text = true,
                                .stop = &e->stop,
                                .heartbeat = &e->heartbeat};
    if (open_model(&e->opened, &open, err))
        return -1;
    const struct text *text = e->opened.text;
    struct scheduler_options o = {.kv = e->opened.kv,
                                  .text = text_has_tokenizer(text) ? text : NULL,
                                  .n_vocab = e->opened.info.n_vocab,
                                  .n_ctx = e->opened.info.context,
                                  .max_running = eo->max_running,
                                  .max_logits = e->opened.max_logits,
                                  .speculation = speculation,
                                  .max_rows = e->opened.max_rows,
                                  .prefill_chunk = eo->prefill_chunk,
                                  .step_ms = eo->step_ms,
                                  .sessions_auto_create = eo->sessions_auto_create,
                                  .workers = e->opened.workers,
                                  .logits = e->opened.logits,
                                  .forward = run_forward,
                                  .forward_arg = e};
    o.ends = text_ends(text, &o.n_ends);
    o.has_bos = text_bos(text, &o.bos);
    if (scheduler_open(&e->scheduler, &o, &e->ready, &e->books, err))
        return -1;
    scheduler_calibrate(&e->scheduler);
    return 0;
}

static void wake_loop(const struct engine *e)
{
    if (e->options.wake)
        e->options.wake(e->options.wake_arg);
}

/* Ends what came although no model is there. */
ON_ENGINE static void refuse(struct engine *e, struct queue_news *news, const struct error *err)
{
    struct request *r;
    while ((r = TAILQ_FIRST(&news->requests))) {
        TAILQ_REMOVE(&news->requests, r, wait_link);
        r->ready = &e->ready;
        r->result.finish = FINISH_ERROR;
        r->result.error = *err;
        r->finished = true;
        ready_touch(&e->ready, r);
    }
    for (struct session_command *c = news->commands, *next; c; c = next) {
        next = c->next;
        c->infos = NULL;
        c->n_infos = 0;
        c->err = *err;
        c->rc = -1;
        ready_answer(&e->ready, c);
    }
}

ON_ENGINE static void take(struct engine *e, struct queue_news *news)
{
    struct request *r;
    while ((r = TAILQ_FIRST(&news->requests))) {
        TAILQ_REMOVE(&news->requests, r, wait_link);
        scheduler_take(&e->scheduler, r);
    }
    for (struct session_command *c = news->commands, *next; c; c = next) {
        next = c->next;
        scheduler_command(&e->scheduler, c);
    }
}

/* Without a model: answers with why, until it is told to stop. */
ON_ENGINE static void run_failed(struct engine *e)
{
    struct queue_news news;
    do {
        queue_take(&e->queue, &news, true, 0);
        refuse(e, &news, &e->failure);
        ready_publish(&e->ready);
    } while (!news.stop);
}

ON_ENGINE static void run_ready(struct engine *e)
{
    struct scheduler *s = &e->scheduler;
    struct queue_news news;
    struct error draining;
    bool computed = true;
    error_set(&draining, ERR_DRAINING, NULL);
    for (;;) {
        atomic_store(&e->busy, computed);
        queue_take(&e->queue, &news, !computed, scheduler_deadline(s));
        atomic_store(&e->busy, true);
        atomic_fetch_add(&e->heartbeat, 1);
        if (news.stop)
            break;
        take(e, &news);
        scheduler_tend(s);
        ready_publish(&e->ready);
        computed = scheduler_step(s);
        ready_publish(&e->ready);
    }
    refuse(e, &news, &draining);
    scheduler_end(s);
    ready_publish(&e->ready);
}

static void *engine_main(void *arg)
{
    struct engine *e = arg;
    struct error err = {0};
    thread_name("attend-worker-0");
    thread_enter_engine();
    atomic_store(&e->busy, true);
    bool failed = load(e, &err) != 0;
    e->failure = err;
    atomic_store(&e->state, failed ? ENGINE_FAILED : ENGINE_READY);
    wake_loop(e);
    atomic_store(&e->busy, false);
    if (failed)
        run_failed(e);
    else
        run_ready(e);
    atomic_store(&e->busy, false);
    scheduler_close(&e->scheduler);
    open_close(&e->opened);
    return NULL;
}

/* NULL (the default) stays NULL. */
static int copy_string(char **to, const char *from, struct error *err)
{
    *to = from ? strdup(from) : NULL;
    if (from && !*to)
        return error_set(err, ERR_NO_MEMORY, "no memory for the engine's options");
    return 0;
}

static int copy_options(struct engine *e, const struct engine_options *o, struct error *err)
{
    if (copy_string(&e->model_path, o->model, err) || copy_string(&e->kv_type, o->kv_type, err) ||
        copy_string(&e->activations, o->activations, err) || copy_string(&e->blas, o->blas, err) ||
        copy_string(&e->speculation, o->speculation, err))
        return -1;
    e->options = *o;
    e->options.model = e->model_path;
    e->options.kv_type = e->kv_type;
    e->options.activations = e->activations;
    e->options.blas = e->blas;
    e->options.speculation = e->speculation;
    if (!o->max_running)
        return error_set_field(err, ERR_USAGE, "max_running", "max_running must be at least 1");
    return 0;
}

static void engine_free(struct engine *e)
{
    free(e->model_path);
    free(e->kv_type);
    free(e->activations);
    free(e->blas);
    free(e->speculation);
    free(e);
}

struct engine *engine_open(const struct engine_options *options, struct error *err)
{
    struct engine *e = aligned_alloc(_Alignof(struct engine), sizeof(*e));
    sigset_t before;
    if (!e) {
        error_set(err, ERR_NO_MEMORY, "no memory for the engine");
        return NULL;
    }
    memset(e, 0, sizeof(*e));
    if (copy_options(e, options, err) || queue_open(&e->queue, err)) {
        engine_free(e);
        return NULL;
    }
    ready_open(&e->ready, options->wake, options->wake_arg);
    matmul_blas_prepare();
    thread_block_signals(&before);
    int rc = pthread_create(&e->thread, NULL, engine_main, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        error_set(err, ERR_NO_MEMORY, "cannot start the engine's thread: %s", strerror(rc));
        ready_close(&e->ready);
        queue_close(&e->queue);
        engine_free(e);
        return NULL;
    }
    return e;
}

void engine_close(struct engine *e)
{
    struct session_command *c;
    if (!e)
        return;
    thread_assert_loop();
    atomic_store(&e->stop, true);
    queue_stop(&e->queue);
    pthread_join(e->thread, NULL);
    while (ready_next(&e->ready)) /* the loop releases them without us */
        continue;
    while ((c = ready_next_answer(&e->ready)))
        c->done(c);
    ready_close(&e->ready);
    queue_close(&e->queue);
    engine_free(e);
}

enum engine_state engine_state(const struct engine *e, struct error *err)
{
    enum engine_state state = (enum engine_state)atomic_load(&e->state);
    if (state == ENGINE_FAILED && err)
        *err = e->failure;
    return state;
}

const struct engine_model *engine_model(const struct engine *e) { return &e->opened.info; }

const struct text *engine_text(const struct engine *e) { return e->opened.text; }

void engine_submit(struct engine *e, struct request *r)
{
    r->number = e->n_submitted++;
    r->submitted_ns = clock_ns();
    queue_put(&e->queue, r);
}

void engine_cancel(struct engine *e, struct request *r)
{
    atomic_store(&r->cancel, true);
    queue_wake(&e->queue);
}

void request_poll(struct engine *e, struct request *r, struct engine_event *event)
{
    bool wake_engine;
    request_next_event(r, event, &wake_engine);
    if (wake_engine)
        queue_wake(&e->queue);
}

struct request *engine_next_ready(struct engine *e)
{
    struct session_command *c;
    while ((c = ready_next_answer(&e->ready)))
        c->done(c);
    return ready_next(&e->ready);
}

void engine_session(struct engine *e, struct session_command *c)
{
    queue_put_command(&e->queue, c);
}

void engine_stats(const struct engine *e, struct engine_stats *stats)
{
    const struct scheduler_books *b = &e->books;
    bool ready = atomic_load(&e->state) == ENGINE_READY;
    *stats = (struct engine_stats){.steps = atomic_load(&b->steps),
                                   .rows = atomic_load(&b->rows),
                                   .tokens_in = atomic_load(&b->tokens_in),
                                   .tokens_out = atomic_load(&b->tokens_out),
                                   .tokens_cached = atomic_load(&b->tokens_cached),
                                   .tokens_drafted = atomic_load(&b->tokens_drafted),
                                   .drafts_held = atomic_load(&b->drafts_held),
                                   .requests_cancelled = atomic_load(&b->requests_cancelled),
                                   .running = atomic_load(&b->running),
                                   .waiting = atomic_load(&b->waiting),
                                   .pages_total = ready ? e->opened.info.n_pages : 0,
                                   .pages_used = atomic_load(&b->pages_used),
                                   .pages_cached = atomic_load(&b->pages_cached),
                                   .pages_free = atomic_load(&b->pages_free),
                                   .pages_reserved = atomic_load(&b->pages_reserved),
                                   .sessions = atomic_load(&b->sessions),
                                   .scores = ready ? model_scores(e->opened.model) : 0,
                                   .blas_calls = matmul_blas_calls(),
                                   .heartbeat = atomic_load(&e->heartbeat),
                                   .last_step_ms = atomic_load(&b->last_step_ms),
                                   .longest_step_ms = atomic_load(&b->longest_step_ms),
                                   .busy = atomic_load(&e->busy)};
}
