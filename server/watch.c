/* [01 http] the disconnect watch. */
#include "server/watch.h"

#include "core/base/mem.h"
#include "server/exchange.h"
#include "server/generation.h"
#include "server/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROBE_MS = 1000, BATCH = 64 };

static ON_LOOP void on_event(struct conn *c, uint32_t events)
{
    if (events & (EPOLLHUP | EPOLLERR)) {
        conn_gone(c);
    } else if ((events & EPOLLRDHUP) && !c->fin) {
        c->fin = true;
        c->t_probe_ms = uv_now(&c->server->loop) + PROBE_MS;
        if (c->x)
            watch_probe(c);
    }
}

static void on_watch(uv_poll_t *handle, int status, int events)
{
    struct server *s = handle->data;
    struct epoll_event list[BATCH];
    int n;
    (void)status;
    (void)events;
    thread_assert_loop();
    do {
        n = epoll_wait(s->watch_fd, list, BATCH, 0);
        for (int i = 0; i < n; i++)
            on_event(list[i].data.ptr, list[i].events);
    } while (n == BATCH);
    loop_pump(s);
}

int watch_open(struct server *s, struct error *err)
{
    s->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->watch_fd < 0)
        return error_set(err, ERR_IO, "cannot make an epoll set: %s", strerror(errno));
    s->watch_poll.data = s;
    int rc = uv_poll_init(&s->loop, &s->watch_poll, s->watch_fd);
    if (rc == 0)
        rc = uv_poll_start(&s->watch_poll, UV_READABLE, on_watch);
    if (rc < 0)
        return error_set(err, ERR_IO, "cannot watch connections: %s", uv_strerror(rc));
    return 0;
}

void watch_close(struct server *s)
{
    if (s->watch_fd >= 0)
        close(s->watch_fd);
    s->watch_fd = -1;
}

void watch_add(struct conn *c)
{
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    epoll_ctl(c->server->watch_fd, EPOLL_CTL_ADD, c->fd, &e);
}

void watch_remove(struct conn *c) { epoll_ctl(c->server->watch_fd, EPOLL_CTL_DEL, c->fd, NULL); }

/* Nothing of the answer is out: an interim response is skipped by every client of HTTP/1.1. To one
 * of HTTP/1.0 nothing can be sent, so its FIN counts as leaving. */
static ON_LOOP void probe_raw(struct conn *c)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->x->http10 ||
        (send(c->fd, interim, sizeof(interim) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
         errno != EAGAIN))
        conn_gone(c);
}

void watch_probe(struct conn *c)
{
    struct exchange *x = c->x;
    c->t_probe_ms = uv_now(&c->server->loop) + PROBE_MS;
    if (c->gone || !x->received || !x->leave)
        return; /* not at work: libmicrohttpd itself reads or writes */
    if (!x->queued)
        probe_raw(c);
    else if (x->generation)
        generation_probe(x->generation);
}
