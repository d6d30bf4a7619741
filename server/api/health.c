/* [02 api] probes. None waits for the engine. */
#include "core/engine.h"
#include "server/reply.h"

void health_livez(struct exchange *x);
void health_readyz(struct exchange *x);
void health_get(struct exchange *x);

enum { STALE_MS = 30000 }; /* a layer of a long prefill, on a slow machine */

static ON_LOOP void say(struct exchange *x, const char *status)
{
    struct str body = {0};
    str_addf(&body, "{\"status\":\"%s\"}", status);
    reply_json(x, MHD_HTTP_OK, &body);
}

void health_livez(struct exchange *x)
{
    const struct server *s = x->server;
    struct engine_stats e = {0};
    struct error err;
    thread_assert_loop();
    if (s->engine)
        engine_stats(s->engine, &e);
    uint64_t silent_ms = uv_now(&s->loop) - s->beat_ms;
    if (e.busy && e.heartbeat == s->beat && silent_ms > STALE_MS) {
        error_set(&err, ERR_STALLED, "the engine is busy and has computed no layer for %llu ms",
                  (unsigned long long)silent_ms);
        reply_error(x, &err);
        return;
    }
    say(x, "alive");
}

void health_readyz(struct exchange *x)
{
    const struct server *s = x->server;
    struct error err;
    thread_assert_loop();
    if (s->phase != SERVER_RUNNING) {
        error_set(&err, ERR_DRAINING, NULL);
        reply_error(x, &err);
    } else if (!s->ready) {
        error_set(&err, ERR_LOADING, NULL);
        reply_error(x, &err);
    } else {
        say(x, "ready");
    }
}

void health_get(struct exchange *x)
{
    struct error err;
    thread_assert_loop();
    if (x->server->ready) {
        say(x, "ok");
        return;
    }
    error_set(&err, ERR_LOADING, NULL);
    reply_error(x, &err);
}
