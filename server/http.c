/* [01 http] the life of a request, as libmicrohttpd's callbacks tell it:
 *
 *   first call    begin: the header is here. What can be refused now is refused now.
 *   calls of body take_body
 *   last call     dispatch: the route's handler answers, or begins work and answers later
 *   call again    wait: suspended until there is an answer. Not in the call before: libmicrohttpd would
 *                 read from the connection when resumed, and drop a client that has closed its
 *                 sending side.
 *   completed     the one end
 */
#include "server/http.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "server/accept.h"
#include "server/auth.h"
#include "server/check.h"
#include "server/generation.h"
#include "server/linger.h"
#include "server/reply.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    POOL_BYTES = 32768,     /* a connection's memory, after its first request */
    SPARE_CONNECTIONS = 64, /* above max_connections, to say 503 to */
    SWALLOW_BYTES =
        65536,         /* bodies up to this are read before an error, and the connection lives */
    BODIES_FACTOR = 8, /* all bodies being received: at most so many of the largest ... */
    BODIES_LEAST = 256 << 20, /* ... or this */
};

/* ---- exchange: what work sees of a request ---- */

void exchange_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    x->server->need_run = true;
    MHD_resume_connection(x->mhd);
}

void exchange_suspend(struct exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->mhd);
}

void exchange_leave(struct exchange *x)
{
    void (*leave)(struct exchange *) = x->leave;
    x->leave = NULL;
    if (leave)
        leave(x);
    x->work = NULL;
    x->generation = NULL;
}

void exchange_abandon(struct exchange *x)
{
    x->over = true;
    exchange_leave(x);
    exchange_resume(x);
}

/* ---- begin ---- */

static void make_id(struct exchange *x)
{
    const char *given = exchange_header(x, "X-Request-Id");
    unsigned char random[12];
    if (given && check_name(given, strlen(given), REQUEST_ID_MAX, "._~:+=@-")) {
        snprintf(x->id, sizeof(x->id), "%s", given);
        return;
    }
    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
        memcpy(random, &x->t_begin_ns, 8);
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(x->id + 2 * i, 3, "%02x", random[i]);
}

static ON_LOOP struct exchange *make(struct server *s, struct MHD_Connection *mhd,
                                     const char *method, const char *version)
{
    struct conn *c = conn_of(mhd);
    struct exchange *x = c ? mem_new(1, sizeof(*x)) : NULL;
    if (!x)
        return NULL;
    x->server = s;
    x->conn = c;
    x->mhd = mhd;
    x->t_begin_ns = clock_ns();
    x->http10 = strcmp(version, "HTTP/1.0") == 0;
    x->head = strcmp(method, "HEAD") == 0;
    x->trailers = !x->http10 && accept_trailers(exchange_header(x, "TE"));
    snprintf(x->method, sizeof(x->method), "%s", method);
    make_id(x);
    c->x = x;
    s->n_exchanges++;
    return x;
}

/* Refusals that need no body. 0 = go on. */
static ON_LOOP int admit(struct exchange *x, struct error *err)
{
    const struct server *s = x->server;
    const char *coding = exchange_header(x, "Content-Encoding");
    if (x->conn->over)
        return error_set(err, ERR_CONNECTIONS, "more than %u connections", s->max_conns);
    if (s->phase != SERVER_RUNNING && !(x->route->flags & ROUTE_OPEN))
        return error_set(err, ERR_DRAINING, NULL);
    if (s->config->api_key[0] && !(x->route->flags & ROUTE_OPEN) &&
        !auth_bearer(exchange_header(x, "Authorization"), s->config->api_key))
        return error_set(err, ERR_AUTH, NULL);
    if (x->has_body && !accept_body_type(exchange_header(x, "Content-Type")))
        return error_set(err, ERR_MEDIA_TYPE,
                         "Content-Type %.100s is not taken; use application/json",
                         exchange_header(x, "Content-Type"));
    if (x->has_body && coding && strcmp(coding, "identity") != 0)
        return error_set(err, ERR_MEDIA_TYPE, "Content-Encoding %.100s is not taken", coding);
    if ((x->route->flags & ROUTE_MODEL) && !s->ready)
        return error_set(err, ERR_LOADING, NULL);
    if ((x->route->flags & ROUTE_PLACE) && !generation_has_place(s, err))
        return -1;
    return 0;
}

/* Whether an error must not wait for the body. */
static bool is_urgent(const struct exchange *x, enum error_code code, uint64_t length)
{
    if (!x->has_body)
        return false;
    return code == ERR_TOO_LARGE || code == ERR_BUSY || code == ERR_AUTH || length == 0 ||
           length > SWALLOW_BYTES || exchange_header(x, "Expect");
}

static ON_LOOP void find_route(struct exchange *x, const char *url, uint64_t length)
{
    struct error err;
    char allow[64];
    bool options = strcmp(x->method, "OPTIONS") == 0;
    x->route = routes_find(x->method, url, x->arg, sizeof(x->arg), allow, sizeof(allow), &err);
    if (!x->route) {
        x->early = is_urgent(x, err.code, length);
        if (options && allow[0])
            reply_options(x, allow);
        else if (err.code == ERR_METHOD)
            reply_method(x, &err, allow);
        else
            reply_error(x, &err);
        return;
    }
    int rc = admit(x, &err);
    if (rc == 0 && length > x->server->config->body_limit)
        rc = error_set(&err, ERR_TOO_LARGE, "the body has %llu bytes, at most %llu are taken",
                       (unsigned long long)length,
                       (unsigned long long)x->server->config->body_limit);
    if (rc < 0) {
        x->early = is_urgent(x, err.code, length);
        reply_error(x, &err);
    }
}

/* Queues the answer. */
static ON_LOOP enum MHD_Result queue(struct exchange *x)
{
    x->queued = true;
    x->conn->t_progress_ms = uv_now(&x->server->loop);
    return MHD_queue_response(x->mhd, (unsigned int)x->status, x->response);
}

static ON_LOOP enum MHD_Result begin(struct server *s, struct MHD_Connection *mhd, const char *url,
                                     const char *const *words, void **slot)
{
    struct error err;
    uint64_t length;
    struct exchange *x = make(s, mhd, words[0], words[1]);
    if (!x)
        return MHD_NO;
    *slot = x;
    if (check_header(x, words[1], &length, &err) < 0) {
        x->early = true; /* what follows may be anything */
        reply_error(x, &err);
    } else {
        find_route(x, url, length);
    }
    if (!x->early)
        return MHD_YES;
    conn_received(x->conn);
    return x->response ? queue(x) : MHD_NO;
}

/* ---- body ---- */

static ON_LOOP enum MHD_Result take_body(struct exchange *x, const char *data, size_t *n_data)
{
    struct server *s = x->server;
    struct error err;
    size_t n = *n_data, all = (size_t)s->config->body_limit * BODIES_FACTOR;
    *n_data = 0;
    if (x->response) /* an error that lets the client finish */
        return MHD_YES;
    if (all < BODIES_LEAST)
        all = BODIES_LEAST;
    if (x->body.n + n > s->config->body_limit) {
        error_set(&err, ERR_TOO_LARGE, "the body has more than %llu bytes",
                  (unsigned long long)s->config->body_limit);
    } else if (s->body_bytes + n > all) {
        error_set(&err, ERR_BUSY, "too many bytes of requests are arriving");
    } else {
        str_add(&x->body, data, n);
        s->body_bytes += n;
        if (!x->body.failed)
            return MHD_YES;
        error_set(&err, ERR_NO_MEMORY, NULL);
    }
    reply_raw(x, &err);
    linger_start(s, x->conn->fd);
    return MHD_NO;
}

static void drop_body(struct exchange *x)
{
    x->server->body_bytes -= x->body.n;
    str_free(&x->body);
}

/* ---- dispatch and wait ---- */

static ON_LOOP void dispatch(struct exchange *x)
{
    struct error err;
    x->received = true;
    conn_received(x->conn);
    if (!x->response && admit(x, &err) < 0) /* again: things may have changed while the body came */
        reply_error(x, &err);
    if (!x->response)
        x->route->handle(x);
    drop_body(x);
    if (!x->response && !x->leave && !x->over) {
        error_set(&err, ERR_INTERNAL, "%s %s gave no answer", x->method, x->route->path);
        reply_error(x, &err);
    }
    if (x->leave && x->conn->fin)
        x->conn->t_probe_ms = 0; /* the next sweep asks whether it is there */
}

/* The answer, or suspended until there is one. */
static ON_LOOP enum MHD_Result answer(struct exchange *x)
{
    if (x->over || x->conn->gone)
        return MHD_NO;
    if (x->response)
        return queue(x);
    if (!x->leave) /* the work ended without memory for an answer */
        return MHD_NO;
    if (x->waited)
        exchange_suspend(x);
    x->waited = true;
    return MHD_YES;
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd says how many parameters */
static ON_LOOP enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                          const char *method, const char *version, const char *data,
                                          size_t *n_data, void **slot)
{
    struct server *s = cls;
    struct exchange *x = *slot;
    thread_assert_loop();
    s->progress++;
    if (!x)
        return begin(s, mhd, url, (const char *const[]){method, version}, slot);
    if (*n_data)
        return take_body(x, data, n_data);
    if (!x->received)
        dispatch(x);
    return answer(x);
}

/* ---- end ---- */

static void log_exchange(const struct exchange *x)
{
    bool quiet = x->route && (x->route->flags & ROUTE_QUIET) && x->status < 400;
    char method[64], error[64] = "";
    if (x->error[0])
        snprintf(error, sizeof(error), " error=%s", x->error);
    log_line(quiet ? LOG_DEBUG : LOG_INFO, "request",
             "id=%s route=%s method=%s status=%d total_ms=%.1f%s", x->id,
             x->route ? x->route->path : "none", log_quote(x->method, method, sizeof(method)),
             x->status, (double)(clock_ns() - x->t_begin_ns) / 1e6, error);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **slot,
                         enum MHD_RequestTerminationCode how)
{
    struct server *s = cls;
    (void)mhd;
    struct exchange *x = *slot;
    thread_assert_loop();
    s->progress++;
    *slot = NULL;
    if (!x)
        return;
    if (!x->status)
        x->status = METRICS_CLIENT_LEFT;
    x->suspended = false;
    exchange_leave(x);
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK || x->http10 || x->early)
        conn_doom(x->conn);
    if (x->early && how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        linger_start(s, x->conn->fd);
    metrics_request(&s->metrics, x->route, x->status, (double)(clock_ns() - x->t_begin_ns) / 1e9);
    if (!x->logged)
        log_exchange(x);
    if (x->response)
        MHD_destroy_response(x->response);
    drop_body(x);
    x->conn->x = NULL;
    conn_idle(x->conn);
    s->n_exchanges--;
    free(x);
}

/* ---- daemon ---- */

__attribute__((format(printf, 2, 0))) static void on_log(void *cls, const char *fmt, va_list ap)
{
    char text[512], quoted[600];
    (void)cls;
    vsnprintf(text, sizeof(text), fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    log_line(LOG_DEBUG, "libmicrohttpd", "says=%s", log_quote(text, quoted, sizeof(quoted)));
}

int http_start(struct server *s, struct error *err)
{
    unsigned int flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    /* 0.9.75 calls "strict" what closes without an answer; lenient -1 alone refuses spaces before a
     * colon. From 1.0 on the words mean what they say. */
    int strict = MHD_get_version()[0] == '0' ? -1 : 1;
    s->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s,
        MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned int)s->max_conns + SPARE_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned int)s->config->idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_STRICT_FOR_CLIENT, strict,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, conn_notify, s,
        MHD_OPTION_URI_LOG_CALLBACK, conn_on_uri, s, MHD_OPTION_END);
    if (!s->mhd)
        return error_set(err, ERR_IO, "libmicrohttpd %s does not start", MHD_get_version());
    return 0;
}

void http_quiesce(struct server *s)
{
    int fd = MHD_quiesce_daemon(s->mhd);
    if (fd >= 0)
        close(fd);
    s->listen_fd = -1;
}

void http_stop(struct server *s)
{
    if (!s->mhd)
        return;
    if (s->listen_fd >= 0)
        http_quiesce(s);
    MHD_stop_daemon(s->mhd);
    s->mhd = NULL;
}
