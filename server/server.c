/* [00 main] the daemon: up in order, down in reverse.
 *
 * The listener is up and signals are heard before the model is loaded. A first SIGTERM or SIGINT
 * drains: no new work, what runs may end by itself; shortly before drain_ms is over it is asked to end, and
 * its answers end as `cancelled`; what is still there at drain_ms, or at a second signal, is cut. */
#include "server/server.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "server/conn.h"
#include "server/exchange.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/linger.h"
#include "server/listen.h"
#include "server/loop.h"
#include "server/options.h"
#include "server/watch.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SWEEP_MS = 100,
    DRAIN_SWEEP_MS = 20,
    LAST_WORDS_MS = 1000, /* of drain_ms, for answers to end as `cancelled`; at most a quarter */
    ENGINE_STOP_MS = 10000,
};

const char *server_example(const struct server *s)
{
    return s->ready && text_has_chat(engine_text(s->engine))
               ? "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of "
                 "France?\"}]}"
               : "{\"prompt\":\"Once upon a time\"}";
}

/* ---- the engine's state ---- */

static void name_model(struct server *s)
{
    const char *name = s->config->model_name;
    size_t n;
    if (!name[0])
        name = engine_model(s->engine)->file_name;
    snprintf(s->model_name, sizeof(s->model_name), "%s", name);
    n = strlen(s->model_name);
    if (!s->config->model_name[0] && n > 5 && strcmp(s->model_name + n - 5, ".gguf") == 0)
        s->model_name[n - 5] = '\0';
}

static void write_url(const struct server *s, const char *host, char *out, size_t n_out)
{
    bool v6 = strchr(host, ':') != NULL;
    snprintf(out, n_out, "http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", s->port);
}

static void say_ready(const struct server *s)
{
    const struct engine_model *m = engine_model(s->engine);
    const char *host = s->config->host;
    char url[300], command[700], name[300], path[600], types[200], quoted[800], blas[100];
    /* an address that means "all" is no address to connect to */
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        host = "::1";
    write_url(s, host, url, sizeof(url));
    snprintf(command, sizeof(command), "curl -N %s/generate -d '%s'", url, server_example(s));
    log_line(LOG_INFO, "model ready",
             "model=%s path=%s arch=%s types=%s params=%" PRIu64 " context=%u pages=%u "
             "page_tokens=%u kv=%s kv_token_bytes=%" PRIu64
             " threads=%u cpu=%s activations=%s blas=%s try=%s",
             log_quote(s->model_name, name, sizeof(name)), log_quote(m->path, path, sizeof(path)),
             m->arch, log_quote(m->types, types, sizeof(types)), m->n_params, m->context,
             m->n_pages, m->page_tokens, m->kv_type, m->kv_token_bytes, m->threads, m->cpu_level,
             m->activations, log_quote(m->blas_name[0] ? m->blas_name : "off", blas, sizeof(blas)),
             log_quote(command, quoted, sizeof(quoted)));
}

static void stop_with(struct server *s, const struct error *err)
{
    s->failed = true;
    s->failure = *err;
    uv_stop(&s->loop);
}

static void look_at_engine(struct server *s)
{
    struct error err;
    if (s->ready || s->failed || !s->engine)
        return;
    switch (engine_state(s->engine, &err)) {
    case ENGINE_LOADING:
        return;
    case ENGINE_READY:
        s->ready = true;
        name_model(s);
        say_ready(s);
        return;
    case ENGINE_FAILED:
        stop_with(s, &err);
    }
}

static void take_pulse(struct server *s)
{
    struct engine_stats e;
    if (!s->engine)
        return;
    engine_stats(s->engine, &e);
    if (!e.busy || e.heartbeat != s->beat)
        s->beat_ms = uv_now(&s->loop);
    s->beat = e.heartbeat;
}

/* ---- the way down ---- */

static ON_LOOP void close_all(struct server *s)
{
    s->phase = SERVER_CLOSING;
    s->t_close_ms = uv_now(&s->loop);
    generations_cancel(s);
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        conn_cut(c);
    }
}

/* The next phase, where it is time. */
static ON_LOOP void go_down(struct server *s)
{
    uint64_t now_ms = uv_now(&s->loop);
    bool idle = s->n_exchanges == 0 && s->n_places == 0;
    struct error err;
    if (s->phase == SERVER_DRAINING && now_ms >= s->t_cancel_ms) {
        s->phase = SERVER_CANCELLING;
        log_line(LOG_INFO, "cancelling", "requests=%u", s->n_places);
        generations_cancel(s);
    }
    if (s->phase != SERVER_CLOSING && (idle || now_ms >= s->t_close_ms))
        close_all(s);
    if (s->phase != SERVER_CLOSING)
        return;
    if (s->n_places == 0) {
        uv_stop(&s->loop);
    } else if (now_ms - s->t_close_ms > ENGINE_STOP_MS) {
        error_set(&err, ERR_INTERNAL, "the engine holds %u requests and does not stop",
                  s->n_places);
        stop_with(s, &err);
    }
}

void server_on_signal(struct server *s, int number)
{
    uint64_t now_ms = uv_now(&s->loop), last_ms = s->config->drain_ms / 4;
    if (number == SIGHUP) {
        log_line(LOG_INFO, "SIGHUP: settings are read at the start only", NULL);
        return;
    }
    if (s->phase != SERVER_RUNNING) {
        log_line(LOG_INFO, "second signal: stopping at once", "signal=%d", number);
        if (s->phase != SERVER_CLOSING)
            close_all(s);
        return;
    }
    log_line(LOG_INFO, "draining", "signal=%d requests=%u drain_ms=%" PRIu64, number, s->n_places,
             s->config->drain_ms);
    s->phase = SERVER_DRAINING;
    s->t_close_ms = now_ms + s->config->drain_ms;
    s->t_cancel_ms = s->t_close_ms - (last_ms < LAST_WORDS_MS ? last_ms : LAST_WORDS_MS);
    http_quiesce(s);
    loop_sweep(s, DRAIN_SWEEP_MS);
    go_down(s);
}

/* ---- the loop's calls ---- */

void server_on_wake(struct server *s)
{
    look_at_engine(s);
    if (!s->engine || s->failed)
        return;
    for (struct request *r; (r = engine_next_ready(s->engine));)
        generation_on_ready(r);
    if (s->phase != SERVER_RUNNING)
        go_down(s);
}

void server_on_sweep(struct server *s)
{
    uint64_t now_ms = uv_now(&s->loop);
    look_at_engine(s);
    take_pulse(s);
    conns_sweep(s, now_ms);
    generations_sweep(s, now_ms);
    generations_bury(s);
    if (s->phase != SERVER_RUNNING)
        go_down(s);
    else if (s->ready && !s->n_conns && !s->n_places && !s->dead)
        uv_timer_stop(&s->sweep);
}

/* The engine's call, from its thread. */
static void wake(void *arg)
{
    struct server *s = arg;
    uv_async_send(&s->wake);
}

/* ---- the way up ---- */

static ON_LOOP int start_engine(struct server *s, struct error *err)
{
    struct engine_options options;
    options_engine(s->config, &options);
    options.wake = wake;
    options.wake_arg = s;
    s->beat_ms = uv_now(&s->loop);
    s->engine = engine_open(&options, err);
    return s->engine ? 0 : -1;
}

static ON_LOOP int start_listening(struct server *s, struct error *err)
{
    const struct config *c = s->config;
    s->max_conns = listen_room((uint32_t)c->max_connections);
    if (s->max_conns < c->max_connections)
        log_line(LOG_WARN, "fewer connections than max_connections, for want of open files",
                 "connections=%u max_connections=%" PRIu64, s->max_conns, c->max_connections);
    s->listen_fd = listen_open(c->host, (uint16_t)c->port, &s->port, err);
    if (s->listen_fd < 0 || watch_open(s, err) < 0 || http_start(s, err) < 0 ||
        loop_watch(s, err) < 0)
        return -1;
    loop_pump(s);
    return 0;
}

static ON_LOOP int start(struct server *s, void (*on_listening)(void *arg), void *arg,
                         struct error *err)
{
    char url[300];
    signal(SIGPIPE, SIG_IGN);
    if (start_listening(s, err) < 0)
        return -1;
    write_url(s, s->config->host, url, sizeof(url));
    printf("listening on %s\n", url);
    fflush(stdout);
    log_line(LOG_INFO, "listening", "url=%s pid=%ld", url, (long)getpid());
    if (on_listening)
        on_listening(arg);
    loop_sweep(s, SWEEP_MS);
    return start_engine(s, err);
}

/* False: the engine did not stop, and s must stay for its thread. */
static ON_LOOP bool stop(struct server *s)
{
    for (struct conn *c = s->conns; c; c = c->next)
        conn_cut(c);
    loop_pump(s);
    loop_unwatch(s);
    http_stop(s);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    linger_end_all(s);
    if (s->n_places > 0)
        return false;
    engine_close(s->engine);
    generations_bury(s);
    loop_close(s);
    watch_close(s);
    return true;
}

int server_run(const struct config *c, void (*on_listening)(void *arg), void *arg,
               struct error *err)
{
    if (!c->model[0])
        return error_set_field(err, ERR_USAGE, "model",
                               "no model: attend serve FILE, or ATTEND_MODEL=FILE");
    struct server *s = mem_new(1, sizeof(*s));
    if (!s)
        return error_set(err, ERR_NO_MEMORY, NULL);
    s->config = c;
    s->listen_fd = s->watch_fd = -1;
    thread_enter_loop();
    thread_name("attend-loop");
    if (loop_open(s, err) < 0) {
        free(s);
        return -1;
    }
    int rc = start(s, on_listening, arg, err);
    if (rc == 0) {
        uv_run(&s->loop, UV_RUN_DEFAULT);
        log_line(LOG_INFO, "stopped", NULL);
    }
    bool stopped = stop(s);
    if (s->failed) {
        *err = s->failure;
        rc = -1;
    }
    if (stopped)
        free(s);
    return rc;
}
