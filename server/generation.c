/* [02 api] a generate request at work: a place, tokens, the engine, the answer.
 *
 *   TEXT       libuv's pool makes its text into tokens; of a long body it reads the JSON before
 *   TOKENISED  waits until earlier requests of its session are submitted, for they come in order
 *   RUNNING    submitted; events come
 *   FINISHED   the engine has said its last word, the place is free; perhaps bytes are still to be sent
 *
 * Until the answer's head is out (STARTED, or the first text in text/plain) an error has its true
 * status. After that libmicrohttpd's reader draws events from the engine's ring one at a time, so that a
 * token is a chunk, and a client that takes nothing stops its own request and no other. */
#include "server/generation.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "server/json.h"
#include "server/loop.h"
#include "server/reply.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum phase { GEN_TEXT, GEN_TOKENISED, GEN_RUNNING, GEN_FINISHED };

enum {
    READER_BLOCK = 4096,
    HEAVY_AT_ONCE = 2, /* long bodies with libuv's pool, of its four threads */
};

struct generation {
    struct server *server;
    struct generation *prev, *next; /* all that hold a place, in order of arrival */
    uint32_t refs;                  /* exchange, response, and the place */
    enum phase phase;
    struct exchange *x; /* NULL: nobody waits for it */
    struct MHD_Response *response;
    bool cancelled;
    bool head_out;

    uv_work_t work; /* the text role's */
    bool heavy, in_pool, is_read;
    bool unreadable;  /* the text role says so */
    atomic_bool stop; /* asks the text role to leave it */
    struct str body;  /* not read yet */
    size_t n_body;    /* of it that count as held */
    const struct text *vocabulary;
    struct generate spec;
    struct error error;
    struct request *request;
    struct stream stream;
    uint32_t prefilled, prompt_tokens;
    uint64_t t_spoken_ms, t_token_ns;

    /* for the log, which is written when all is over */
    char id[REQUEST_ID_MAX + 1], session[SESSION_ID_MAX + 1], error_name[32];
    const struct route *route;
    uint64_t t_begin_ns, t_start_ns, t_submit_ns;
    int status;
    bool has_result;
    struct request_result result;
};

/* ---- places ---- */

bool generation_has_place(const struct server *s, struct error *err)
{
    uint64_t places = s->config->max_running + s->config->queue;
    if (s->n_places < places)
        return true;
    error_set(err, ERR_BUSY, "the queue is full: %" PRIu64 " run, %" PRIu64 " wait",
              s->config->max_running, s->config->queue);
    return false;
}

static void take_place(struct generation *g)
{
    struct server *s = g->server;
    s->n_places++;
    g->prev = s->last;
    if (s->last)
        s->last->next = g;
    else
        s->first = g;
    s->last = g;
}

static void give_place(struct generation *g)
{
    struct server *s = g->server;
    s->n_places--;
    if (g->prev)
        g->prev->next = g->next;
    else
        s->first = g->next;
    if (g->next)
        g->next->prev = g->prev;
    else
        s->last = g->prev;
}

/* ---- the end ---- */

static void write_log(const struct generation *g)
{
    const struct request_result *r = &g->result;
    char session[160] = "", error[48] = "";
    if (g->session[0])
        snprintf(session, sizeof(session), " session=%s", g->session);
    if (g->error_name[0])
        snprintf(error, sizeof(error), " error=%s", g->error_name);
    log_line(LOG_INFO, "request",
             "id=%s route=%s method=POST status=%d tokens_in=%u cached=%u tokens_out=%u "
             "queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f finish=%s%s%s",
             g->id, g->route->path, g->status, r->prompt_tokens, r->cached_tokens,
             r->completion_tokens, r->queue_ms, r->ttft_ms,
             (double)(clock_ns() - g->t_begin_ns) / 1e6,
             g->has_result ? stream_finish_name(r->finish) : (g->cancelled ? "cancelled" : "error"),
             session, error);
    if (g->has_result && r->finish == FINISH_STOP && r->stop == STOP_EOS && !r->completion_tokens)
        log_line(LOG_WARN, "0 tokens: the model ended at once; a chat model expects \"messages\"",
                 "id=%s", g->id);
}

static void unref(struct generation *g)
{
    if (--g->refs > 0)
        return;
    write_log(g);
    g->next = g->server->dead;
    g->server->dead = g;
}

void generations_bury(struct server *s)
{
    while (s->dead) {
        struct generation *g = s->dead;
        s->dead = g->next;
        generate_free(&g->spec);
        stream_free(&g->stream);
        free(g);
    }
}

static void measure(struct generation *g)
{
    struct metrics *m = &g->server->metrics;
    if (!g->has_result)
        return;
    double before_s = g->t_submit_ns ? (double)(g->t_submit_ns - g->t_begin_ns) / 1e9 : 0;
    metrics_observe(&m->queue_wait, before_s + g->result.queue_ms / 1e3);
    if (g->result.completion_tokens)
        metrics_observe(&m->first_token, before_s + g->result.ttft_ms / 1e3);
}

static void drop_body(struct generation *g)
{
    g->server->body_bytes -= g->n_body;
    g->n_body = 0;
    str_free(&g->body);
}

/* The one end: the engine (or the text role) is done with it. */
static ON_LOOP void finish(struct generation *g)
{
    if (g->phase == GEN_FINISHED)
        return;
    g->phase = GEN_FINISHED;
    measure(g);
    if (g->request)
        request_release(g->request);
    g->request = NULL;
    drop_body(g);
    give_place(g);
    unref(g);
}

static ON_LOOP void end_unseen(struct generation *g);
static ON_LOOP void enter_pool(struct generation *g);

/* Afterwards, submit_all: others of its session may have waited for it. */
static ON_LOOP void cancel(struct generation *g)
{
    bool again = g->cancelled;
    g->cancelled = true;
    if (g->phase == GEN_RUNNING && !again)
        engine_cancel(g->server->engine, g->request);
    if (g->phase >= GEN_RUNNING)
        return;
    bool must_read = g->x && !g->is_read; /* the body says in which form its client takes the end */
    if (!must_read && !g->in_pool) {
        end_unseen(g);
        return;
    }
    atomic_store(&g->stop, true);
    if (!g->in_pool)
        enter_pool(g);
    else if (!must_read) /* where it has begun, its end comes soon all the same */
        uv_cancel((uv_req_t *)&g->work);
}

static ON_LOOP bool take_event(struct generation *g);
static ON_LOOP void submit_all(struct server *s);

/* Nobody reads any more. Where the engine has already ended there will be no news to say so. */
static ON_LOOP void drain(struct generation *g)
{
    while (g->phase == GEN_RUNNING && take_event(g))
        ;
}

/* The exchange is over, or its client has left. */
static void on_leave(struct exchange *x)
{
    struct generation *g = x->work;
    thread_assert_loop();
    g->status = x->status ? x->status : METRICS_CLIENT_LEFT;
    snprintf(g->error_name, sizeof(g->error_name), "%s", x->error);
    g->x = NULL;
    if (g->phase != GEN_FINISHED)
        cancel(g);
    drain(g);
    submit_all(g->server);
    unref(g);
}

/* ---- the answer's head ---- */

static ON_LOOP void fail(struct generation *g, const struct error *err)
{
    if (!g->x)
        return;
    if (g->head_out)
        stream_fail(&g->stream, err);
    else
        reply_error(g->x, err);
    exchange_resume(g->x);
}

static ssize_t on_read(void *cls, uint64_t pos, char *to, size_t max);

static void on_response_free(void *cls) { unref(cls); }

static ON_LOOP void add_headers(struct generation *g, struct MHD_Response *r)
{
    char seed[32];
    snprintf(seed, sizeof(seed), "%" PRIu64, g->spec.params.sampling.seed);
    MHD_add_response_header(r, "X-Seed", seed);
    if (g->session[0])
        MHD_add_response_header(r, "X-Session-Id", g->session);
    if (g->spec.seen.header.n)
        MHD_add_response_header(r, "X-Warnings", g->spec.seen.header.s);
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
}

/* Status 200 and a body that comes as it is made. */
static ON_LOOP void send_head(struct generation *g)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, READER_BLOCK,
                                                               on_read, g, on_response_free);
    g->head_out = true;
    g->t_spoken_ms = uv_now(&g->server->loop);
    if (!r) {
        reply_stream(g->x, MHD_HTTP_OK, NULL);
        return;
    }
    g->refs++;
    g->response = r;
    MHD_add_response_header(r, "Content-Type", stream_content_type(g->stream.format));
    if (g->x->trailers && g->stream.format == FORMAT_TEXT)
        MHD_add_response_header(r, "Trailer", "X-Finish-Reason, X-Completion-Tokens");
    add_headers(g, r);
    reply_stream(g->x, MHD_HTTP_OK, r);
}

static ON_LOOP void send_document(struct generation *g)
{
    struct str body = g->stream.out;
    memset(&g->stream.out, 0, sizeof(g->stream.out));
    reply_json(g->x, MHD_HTTP_OK, &body);
    if (g->x->response)
        add_headers(g, g->x->response);
}

/* ---- events ---- */

static ON_LOOP void on_token(struct generation *g, const struct engine_event *e)
{
    if (g->t_token_ns)
        metrics_observe(&g->server->metrics.inter_token, (double)(e->at_ns - g->t_token_ns) / 1e9);
    g->t_token_ns = e->at_ns;
    if (g->x)
        stream_token(&g->stream, &e->choice, e->text, e->n_text);
}

/* The last text and the result. */
static ON_LOOP void say_end(struct generation *g, const struct request_result *r, const char *text,
                            size_t n_text)
{
    const struct request_params *p = g->request ? request_params(g->request) : &g->spec.params;
    struct stream_end end = {
        .id = g->id,
        .model = g->server->model_name,
        .seed = p->sampling.seed,
        .session = g->session,
        .warnings = str_text(&g->spec.seen.warnings),
        .result = r,
    };
    struct error err;
    g->result = *r;
    g->has_result = true;
    if (r->stop == STOP_WORD && r->stop_index >= 0 && (uint32_t)r->stop_index < p->n_stops) {
        end.stop_word = p->stops[r->stop_index];
        end.n_stop_word = p->n_stop[r->stop_index];
    }
    if (g->x && r->finish == FINISH_ERROR) {
        fail(g, &r->error);
    } else if (g->x) {
        stream_finish(&g->stream, text, n_text, &end);
        if (g->stream.failed) {
            error_set(&err, ERR_NO_MEMORY, NULL);
            fail(g, &err);
        }
    }
}

/* Takes one event off the ring. False: there is none. The last one finishes g. */
static ON_LOOP bool take_event(struct generation *g)
{
    struct engine_event e;
    request_poll(g->server->engine, g->request, &e);
    switch (e.kind) {
    case EVENT_NONE:
        return false;
    case EVENT_STARTED:
    case EVENT_PROGRESS:
        g->prefilled = e.prefilled;
        g->prompt_tokens = e.prompt_tokens;
        if (e.kind == EVENT_STARTED && g->x && !g->head_out &&
            (g->stream.format == FORMAT_NDJSON || g->stream.format == FORMAT_SSE))
            send_head(g);
        return true;
    case EVENT_TOKEN:
        on_token(g, &e);
        return true;
    case EVENT_DONE:
        say_end(g, e.result, e.text, e.n_text);
        finish(g);
        return true;
    }
    return false;
}

/* Cancelled before the engine has seen it. */
static ON_LOOP void end_unseen(struct generation *g)
{
    struct request_result r = {.finish = FINISH_CANCELLED};
    r.queue_ms = (double)(clock_ns() - g->t_begin_ns) / 1e6;
    g->server->n_cancelled++;
    say_end(g, &r, "", 0);
    if (g->x && !g->x->response && g->stream.format == FORMAT_DOCUMENT)
        send_document(g);
    else if (g->x && !g->x->response)
        send_head(g);
    finish(g);
}

/* Draws events until the answer's head can leave. */
static ON_LOOP void before_head(struct generation *g)
{
    const struct stream *st = &g->stream;
    while (g->x && !g->x->response && g->phase == GEN_RUNNING) {
        if (!take_event(g))
            return;
        if (!g->x || g->x->response || st->format == FORMAT_DOCUMENT)
            continue;
        if (!g->head_out && (stream_has(st) || (st->ended && !st->failed)))
            send_head(g);
    }
    if (g->x && !g->x->response && st->format == FORMAT_DOCUMENT && st->ended && !st->failed)
        send_document(g);
}

void generation_on_ready(struct request *r)
{
    struct generation *g = request_owner(r);
    if (g->x && !g->head_out)
        before_head(g);
    else if (g->x)
        exchange_resume(g->x);
    if (!g->x)
        drain(g);
}

/* ---- libmicrohttpd's reader ---- */

static void add_trailers(struct generation *g)
{
    char count[16];
    if (!g->x->trailers || g->stream.format != FORMAT_TEXT || !g->has_result)
        return;
    snprintf(count, sizeof(count), "%u", g->result.completion_tokens);
    MHD_add_response_footer(g->response, "X-Finish-Reason", stream_finish_name(g->result.finish));
    MHD_add_response_footer(g->response, "X-Completion-Tokens", count);
}

static ssize_t on_read(void *cls, uint64_t pos, char *to, size_t max)
{
    struct generation *g = cls;
    (void)pos;
    thread_assert_loop();
    g->server->progress++;
    for (;;) {
        if (!g->x || g->x->over)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        size_t n = stream_take(&g->stream, to, max);
        if (n) {
            g->t_spoken_ms = g->x->conn->t_progress_ms = uv_now(&g->server->loop);
            return (ssize_t)n;
        }
        if (g->stream.ended && g->stream.broken)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (g->stream.ended) {
            add_trailers(g);
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        if (g->phase != GEN_RUNNING || !take_event(g)) {
            exchange_suspend(g->x);
            return 0;
        }
    }
}

/* ---- text role ---- */

/* Whether the timeline would begin with two BOS. */
static bool begins_with_bos(const struct generation *g)
{
    uint32_t bos;
    return g->spec.ids.n && text_bos(g->vocabulary, &bos) && g->spec.ids.id[0] == bos;
}

static int decide_bos(struct generation *g, struct error *err)
{
    struct generate *spec = &g->spec;
    uint32_t bos;
    bool has = text_bos(g->vocabulary, &bos);
    bool empty = spec->ids.n == 0;
    if (spec->add_bos == ASKED_YES && !has)
        return error_set_field(err, ERR_INVALID, "add_bos",
                               "add_bos is true, but the model has no BOS token");
    spec->params.add_bos = spec->add_bos == ASKED_YES || (spec->add_bos == ASKED_NOT && has &&
                                                          (empty || text_add_bos(g->vocabulary)));
    if (empty && !spec->params.add_bos && !spec->params.session[0])
        return error_set_field(
            err, ERR_INVALID, "prompt",
            has ? "prompt is empty and add_bos is false: nothing to begin with"
                : "prompt is empty, and the model has no BOS token to begin with");
    if (begins_with_bos(g))
        spec->params.add_bos = false;
    return 0;
}

static int tokenise(struct generation *g)
{
    struct generate *spec = &g->spec;
    if (spec->kind != PROMPT_IDS && !text_has_tokenizer(g->vocabulary))
        return error_set_field(&g->error, ERR_UNSUPPORTED,
                               spec->kind == PROMPT_CHAT ? "messages" : "prompt",
                               "the model file has no tokenizer: send prompt as token ids");
    if (spec->kind == PROMPT_TEXT && text_encode(g->vocabulary, spec->prompt, spec->n_prompt,
                                                 spec->special, &spec->ids, &g->error) < 0)
        return -1;
    if (spec->kind == PROMPT_CHAT &&
        text_render_chat(g->vocabulary, spec->turns, spec->n_turns, &spec->ids, &g->error) < 0)
        return -1;
    return decide_bos(g, &g->error);
}

static int read_body(struct generation *g)
{
    const struct server *s = g->server; /* what is read of it is constant by now */
    int rc = generate_read(&g->spec, str_text(&g->body), g->body.n, engine_model(s->engine),
                           s->config, &g->error);
    str_free(&g->body);
    return rc;
}

/* On a thread of libuv's pool. */
static void on_text_work(uv_work_t *work)
{
    static atomic_int n_threads;
    static _Thread_local bool named;
    struct generation *g = work->data;
    if (!named) {
        sigset_t before;
        thread_block_signals(&before); /* they are the loop's */
        thread_name("attend-text-%d", atomic_fetch_add(&n_threads, 1));
    }
    named = true;
    g->error.code = ERR_NONE;
    g->unreadable = !g->is_read && read_body(g) < 0; /* to its end: cancel() may have to know it */
    g->spec.ids.stop = &g->stop;
    if (!g->unreadable && !atomic_load(&g->stop) && tokenise(g) < 0 && g->error.code == ERR_NONE)
        error_set(&g->error, ERR_INTERNAL, "the prompt could not be made into tokens");
    g->spec.ids.stop = NULL;
    generate_drop_body(&g->spec); /* it may be large, and take long to free */
}

static ON_LOOP void submit(struct generation *g)
{
    struct error err;
    struct request_params *p = &g->spec.params;
    g->t_submit_ns = clock_ns();
    uint64_t spent_ms = (g->t_submit_ns - g->t_start_ns) / 1000000;
    if (p->deadline_ms)
        p->deadline_ms = p->deadline_ms > spent_ms ? p->deadline_ms - spent_ms : 1;
    g->request = request_new(p, &err);
    g->spec.params.stops = NULL; /* the request's now, also where it could not be made */
    g->spec.params.n_stop = NULL;
    g->spec.params.n_stops = 0;
    g->spec.params.sampling.biases = NULL;
    if (!g->request) {
        fail(g, &err);
        finish(g);
        return;
    }
    request_set_ids(g->request, &g->spec.ids);
    request_set_owner(g->request, g);
    g->phase = GEN_RUNNING;
    engine_submit(g->server->engine, g->request);
}

/* Whether an earlier request of the same session (or of one not known yet) is still on its way to the
 * engine. */
static bool must_wait(const struct generation *g)
{
    if (!g->session[0])
        return false;
    for (const struct generation *o = g->prev; o; o = o->prev)
        if (o->phase <= GEN_TOKENISED && (!o->is_read || strcmp(o->session, g->session) == 0))
            return true;
    return false;
}

static ON_LOOP void submit_all(struct server *s)
{
    for (struct generation *g = s->first, *next; g; g = next) {
        next = g->next;
        if (g->phase == GEN_TOKENISED && !must_wait(g))
            submit(g);
    }
}

/* The body has been read. */
static ON_LOOP void know_body(struct generation *g)
{
    g->is_read = true;
    g->stream.format = g->spec.format;
    g->stream.logprobs = g->spec.params.sampling.n_logprobs >= 0;
    snprintf(g->session, sizeof(g->session), "%s", g->spec.params.session);
    snprintf(g->spec.params.id, sizeof(g->spec.params.id), "%s", g->id);
}

static ON_LOOP void feed_pool(struct server *s);

static void on_text_done(uv_work_t *work, int status)
{
    struct generation *g = work->data;
    struct server *s = g->server;
    thread_assert_loop();
    g->phase = GEN_TOKENISED;
    g->in_pool = false;
    s->n_heavy -= g->heavy;
    drop_body(g);
    if (!g->is_read && status == 0 && !g->unreadable)
        know_body(g);
    g->is_read = true;
    if (g->cancelled && !g->unreadable) {
        end_unseen(g);
    } else if (g->error.code != ERR_NONE) {
        fail(g, &g->error);
        finish(g);
    }
    submit_all(s);
    feed_pool(s);
    loop_pump(s); /* a refusal leaves now */
}

static void enter_pool(struct generation *g)
{
    g->in_pool = true;
    g->server->n_heavy += g->heavy;
    g->work.data = g;
    uv_queue_work(&g->server->loop, &g->work, on_text_work, on_text_done);
}

/* Sends to the text role those that may go now: of long bodies only a few, so that there are always
 * threads for short ones. */
static void feed_pool(struct server *s)
{
    for (struct generation *g = s->first; g; g = g->next) {
        bool waits = g->phase == GEN_TEXT && !g->in_pool;
        if (waits && (!g->heavy || s->n_heavy < HEAVY_AT_ONCE))
            enter_pool(g);
    }
}

/* ---- start ---- */

static ON_LOOP void take_body(struct generation *g, struct exchange *x)
{
    g->body = x->body;
    g->n_body = x->body.n; /* counted as held until it is read */
    memset(&x->body, 0, sizeof(x->body));
}

static void token_bytes(const void *arg, uint32_t id, struct str *out)
{
    text_token_bytes(arg, id, false, true, out);
}

void generation_start(struct exchange *x, struct generate *spec, bool is_read)
{
    struct server *s = x->server;
    struct generation *g = mem_new(1, sizeof(*g));
    struct error err;
    if (!g) {
        generate_free(spec);
        error_set(&err, ERR_NO_MEMORY, NULL);
        reply_error(x, &err);
        return;
    }
    g->server = s;
    g->vocabulary = engine_text(s->engine);
    g->spec = *spec;
    memset(spec, 0, sizeof(*spec));
    g->stream.format = g->spec.format;
    g->stream.token_bytes = token_bytes;
    g->stream.token_arg = g->vocabulary;
    snprintf(g->id, sizeof(g->id), "%s", x->id);
    g->heavy = x->body.n > GENERATE_QUICK_BYTES;
    if (is_read)
        know_body(g);
    else
        take_body(g, x);
    g->route = x->route;
    g->t_begin_ns = x->t_begin_ns;
    g->t_start_ns = clock_ns();
    g->t_spoken_ms = uv_now(&s->loop);
    g->x = x;
    x->work = g;
    x->generation = g;
    x->leave = on_leave;
    x->logged = true;
    g->refs = 2; /* the exchange's and the place's */
    take_place(g);
    feed_pool(s);
}

/* ---- from outside ---- */

static ON_LOOP void speak(struct generation *g)
{
    if (!g->x || g->stream.ended)
        return;
    if (!g->head_out && g->phase == GEN_RUNNING && g->stream.format != FORMAT_TEXT &&
        g->stream.format != FORMAT_DOCUMENT)
        send_head(g);
    if (!g->head_out || !g->x->suspended)
        return;
    stream_progress(&g->stream, g->prefilled, g->prompt_tokens);
    if (stream_has(&g->stream))
        exchange_resume(g->x);
}

void generation_probe(struct generation *g)
{
    if (g->head_out)
        speak(g);
}

void generations_sweep(struct server *s, uint64_t now_ms)
{
    for (struct generation *g = s->first; g; g = g->next)
        if (now_ms - g->t_spoken_ms >= s->config->keepalive_ms)
            speak(g);
}

void generations_cancel(struct server *s)
{
    for (struct generation *g = s->first, *next; g; g = next) {
        next = g->next;
        cancel(g);
    }
    submit_all(s);
}

uint32_t generations_cancel_id(struct server *s, const char *id)
{
    uint32_t n = 0;
    for (struct generation *g = s->first, *next; g; g = next) {
        next = g->next;
        if (strcmp(g->id, id) == 0) {
            cancel(g);
            n++;
        }
    }
    submit_all(s);
    return n;
}

void generations_list(const struct server *s, struct str *out)
{
    static const char *const names[] = {"queued", "prefill", "decode"};
    for (const struct generation *g = s->first; g; g = g->next) {
        struct request_info info = {.phase = PHASE_QUEUED};
        if (g->phase == GEN_RUNNING)
            request_info(g->request, &info);
        str_adds(out, g == s->first ? "{\"id\":" : ",{\"id\":");
        json_add_text(out, g->id);
        str_addf(out,
                 ",\"state\":\"%s\",\"prompt_tokens\":%u,\"prefilled\":%u,"
                 "\"completion_tokens\":%u,\"age_ms\":%.1f,\"session\":",
                 names[info.phase], info.prompt_tokens, info.prefilled, info.completion_tokens,
                 (double)(clock_ns() - g->t_begin_ns) / 1e6);
        if (g->session[0])
            json_add_text(out, g->session);
        else
            str_adds(out, "null");
        str_add(out, "}", 1);
    }
}
