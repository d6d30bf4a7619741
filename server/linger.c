/* [01 http] lingering close. */
#include "server/linger.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINGER_MS = 2000, LINGER_BYTES = 64 << 20, LINGER_MAX = 256 };

struct lingering {
    struct server *server;
    uv_poll_t poll;
    uv_timer_t timer;
    int fd, n_open; /* handles that are open */
    size_t n_dropped;
    struct lingering *prev, *next;
};

static void on_closed(uv_handle_t *handle)
{
    struct lingering *l = handle->data;
    if (--l->n_open > 0)
        return;
    close(l->fd);
    free(l);
}

static void end(struct lingering *l)
{
    struct server *s = l->server;
    if (uv_is_closing((uv_handle_t *)&l->poll))
        return;
    if (l->prev)
        l->prev->next = l->next;
    else
        s->lingers = l->next;
    if (l->next)
        l->next->prev = l->prev;
    s->n_lingers--;
    uv_close((uv_handle_t *)&l->poll, on_closed);
    uv_close((uv_handle_t *)&l->timer, on_closed);
}

static void on_bytes(uv_poll_t *handle, int status, int events)
{
    static char trash[65536];
    struct lingering *l = handle->data;
    (void)events;
    ssize_t n = status < 0 ? 0 : recv(l->fd, trash, sizeof(trash), MSG_DONTWAIT);
    if (n > 0)
        l->n_dropped += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        end(l);
    if (n > 0 && l->n_dropped > LINGER_BYTES)
        end(l);
}

static void on_timeout(uv_timer_t *handle) { end(handle->data); }

void linger_start(struct server *s, int fd)
{
    if (s->n_lingers >= LINGER_MAX)
        return;
    struct lingering *l = mem_new(1, sizeof(*l));
    int copy = l ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (copy < 0) {
        free(l);
        return;
    }
    l->server = s;
    l->fd = copy;
    l->poll.data = l->timer.data = l;
    if (uv_poll_init(&s->loop, &l->poll, copy) < 0) {
        close(copy);
        free(l);
        return;
    }
    l->n_open = 2;
    uv_timer_init(&s->loop, &l->timer);
    uv_poll_start(&l->poll, UV_READABLE, on_bytes);
    uv_timer_start(&l->timer, on_timeout, LINGER_MS, 0);
    l->next = s->lingers;
    if (s->lingers)
        s->lingers->prev = l;
    s->lingers = l;
    s->n_lingers++;
}

void linger_end_all(struct server *s)
{
    while (s->lingers)
        end(s->lingers);
}
