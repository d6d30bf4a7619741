/* [01 http] connections: made, watched, timed out, closed. */
#include "server/conn.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "server/exchange.h"
#include "server/loop.h"
#include "server/watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    SEND_BUFFER = 65536, /* plenty for tokens; the kernel's default grows to 4 MB a slow client */
    SWEEP_MS = 100,
    LOOK_MS = 1000,
    TICK_MS = 20, /* the kernel's clock of arrivals is coarse */
};

static void set_options(int fd)
{
    int on = 1, idle_s = 30, every_s = 5, tries = 3, buffer = SEND_BUFFER;
    unsigned int vanished_ms = 30000;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanished_ms, sizeof(vanished_ms));
}

static ON_LOOP void begin(struct server *s, struct MHD_Connection *mhd, void **slot)
{
    struct conn *c = mem_new(1, sizeof(*c));
    if (!c)
        return; /* its requests are refused: see conn_of's callers */
    c->server = s;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->t_idle_ms = uv_now(&s->loop);
    set_options(c->fd);
    watch_add(c);
    c->next = s->conns;
    if (s->conns)
        s->conns->prev = c;
    s->conns = c;
    c->over = ++s->n_conns > s->max_conns;
    *slot = c;
    loop_sweep(s, SWEEP_MS);
}

static ON_LOOP void end(struct conn *c)
{
    struct server *s = c->server;
    watch_remove(c);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->n_conns--;
    free(c);
}

void conn_notify(void *cls, struct MHD_Connection *mhd, void **slot,
                 enum MHD_ConnectionNotificationCode what)
{
    struct server *s = cls;
    thread_assert_loop();
    s->progress++;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        begin(s, mhd, slot);
        return;
    }
    s->need_run = true; /* at the limit the listener comes back only with the next MHD_run */
    if (*slot)
        end(*slot);
    *slot = NULL;
}

struct conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

void *conn_on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    (void)cls;
    thread_assert_loop();
    struct conn *c = conn_of(mhd);
    if (!c)
        return NULL;
    c->bad_uri = strstr(uri, "%00") != NULL;
    if (!c->arriving)
        c->t_arriving_ms = uv_now(&c->server->loop);
    c->arriving = true;
    c->t_idle_ms = 0;
    return NULL; /* anything else would become the request's context */
}

void conn_received(struct conn *c)
{
    c->arriving = false;
    c->t_idle_ms = 0;
}

void conn_idle(struct conn *c)
{
    c->arriving = false;
    c->t_idle_ms = uv_now(&c->server->loop);
    c->t_look_ms = c->t_idle_ms + LOOK_MS;
}

void conn_gone(struct conn *c)
{
    c->gone = true;
    if (c->x)
        exchange_abandon(c->x);
}

void conn_doom(struct conn *c)
{
    /* With a timeout of its own it is in a list that every MHD_run walks. The value must differ from
     * the daemon's. */
    unsigned int doom_s = c->server->config->idle_s == 1 ? 2 : 1;
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, doom_s);
    c->server->need_run = true;
}

void conn_cut(struct conn *c)
{
    conn_gone(c);
    shutdown(c->fd, SHUT_RDWR);
    conn_doom(c);
}

/* Bytes of a next request came since the last answer: it has begun. libmicrohttpd tells us only
 * when the first line is whole, the kernel says when something last arrived. */
static void look_for_request(struct conn *c, uint64_t now_ms)
{
    struct tcp_info info;
    socklen_t n = sizeof(info);
    c->t_look_ms = now_ms + LOOK_MS;
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
        return;
    uint64_t last_ms = now_ms - info.tcpi_last_data_recv;
    if (info.tcpi_last_data_recv <= now_ms && last_ms > c->t_idle_ms + TICK_MS) {
        c->arriving = true;
        c->t_arriving_ms = last_ms;
        c->t_idle_ms = 0;
    }
}

/* The client has closed its sending side, nothing of it is unread, and there is nothing to answer.
 * libmicrohttpd sees most of these, but not a FIN that came with the last bytes. */
static bool is_over(const struct conn *c, uint64_t now_ms)
{
    int n_unread = 0;
    if (c->x ? c->x->received || c->x->queued : c->t_idle_ms && now_ms - c->t_idle_ms < LOOK_MS)
        return false;
    return ioctl(c->fd, FIONREAD, &n_unread) == 0 && n_unread == 0;
}

static ON_LOOP void sweep(struct conn *c, uint64_t now_ms)
{
    const struct config *config = c->server->config;
    if (c->gone)
        return;
    if (c->fin && now_ms >= c->t_probe_ms && is_over(c, now_ms)) {
        conn_cut(c);
        return;
    }
    if (c->t_idle_ms && now_ms >= c->t_look_ms)
        look_for_request(c, now_ms);
    if (c->arriving && now_ms - c->t_arriving_ms > config->receive_ms) {
        log_line(LOG_INFO, "request too slow", "receive_ms=%llu",
                 (unsigned long long)config->receive_ms);
        conn_cut(c);
        return;
    }
    if (c->x && exchange_writes(c->x) && now_ms - c->t_progress_ms > config->stall_ms) {
        log_line(LOG_INFO, "client reads nothing", "id=%s stall_ms=%llu", c->x->id,
                 (unsigned long long)config->stall_ms);
        conn_cut(c);
        return;
    }
    if (c->fin && c->x && now_ms >= c->t_probe_ms)
        watch_probe(c);
}

void conns_sweep(struct server *s, uint64_t now_ms)
{
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next; /* a cut closes nothing before the next MHD_run */
        sweep(c, now_ms);
    }
}
