/* [01 http] the event loop: libuv, with libmicrohttpd's epoll set inside it.
 *
 * libmicrohttpd 0.9.75 does not tell all its work by its descriptor: a resumed connection, a free
 * place at the connection limit, and a connection to be cleaned up wait for the next MHD_run. So it
 * is run again while it says so or we know so, but only as long as something moves: some inputs
 * make it ask for ever. */
#include "server/loop.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <signal.h>

enum {
    PUMP_ROUNDS = 16, /* then other handles get their turn */
    PUMP_IDLE = 4,    /* rounds in which nothing moved, then wait */
    PUMP_WAIT_MS = 10,
};

static void on_again(uv_async_t *handle)
{
    thread_assert_loop();
    loop_pump(handle->data);
}

static void on_mhd_timer(uv_timer_t *handle)
{
    thread_assert_loop();
    loop_pump(handle->data);
}

static void on_mhd_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    thread_assert_loop();
    loop_pump(handle->data);
}

static void on_wake(uv_async_t *handle)
{
    thread_assert_loop();
    server_on_wake(handle->data);
    loop_pump(handle->data);
}

static void on_sweep(uv_timer_t *handle)
{
    thread_assert_loop();
    server_on_sweep(handle->data);
    loop_pump(handle->data);
}

static void on_signal(uv_signal_t *handle, int number)
{
    thread_assert_loop();
    server_on_signal(handle->data, number);
    loop_pump(handle->data);
}

void loop_pump(struct server *s)
{
    if (!s->mhd)
        return;
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    bool has_wait, now;
    int idle = 0, rounds = 0;
    do {
        uint64_t before = s->progress;
        s->need_run = false;
        MHD_run(s->mhd);
        has_wait = MHD_get_timeout(s->mhd, &wait_ms) == MHD_YES;
        now = s->need_run || (has_wait && wait_ms == 0);
        idle = s->progress == before ? idle + 1 : 0;
    } while (now && ++rounds < PUMP_ROUNDS && idle < PUMP_IDLE);

    if (now && idle >= PUMP_IDLE) {
        uv_timer_start(&s->mhd_timer, on_mhd_timer, PUMP_WAIT_MS, 0);
    } else if (now) { /* not a timer of 0 ms: libuv 1.44 would fire it again in the same pass */
        uv_timer_stop(&s->mhd_timer);
        uv_async_send(&s->again);
    } else if (has_wait) {
        uv_timer_start(&s->mhd_timer, on_mhd_timer, wait_ms, 0);
    } else {
        uv_timer_stop(&s->mhd_timer);
    }
}

void loop_sweep(struct server *s, uint64_t every_ms)
{
    if (!uv_is_active((uv_handle_t *)&s->sweep))
        s->beat_ms = uv_now(&s->loop); /* nobody has felt the engine's pulse since */
    if (!uv_is_active((uv_handle_t *)&s->sweep) || uv_timer_get_repeat(&s->sweep) != every_ms)
        uv_timer_start(&s->sweep, on_sweep, every_ms, every_ms);
}

int loop_open(struct server *s, struct error *err)
{
    int rc = uv_loop_init(&s->loop);
    if (rc < 0)
        return error_set(err, ERR_IO, "cannot make the event loop: %s", uv_strerror(rc));
    s->mhd_timer.data = s->sweep.data = s->again.data = s->wake.data = s;
    s->sig_term.data = s->sig_int.data = s->sig_hup.data = s;
    uv_timer_init(&s->loop, &s->mhd_timer);
    uv_timer_init(&s->loop, &s->sweep);
    uv_signal_init(&s->loop, &s->sig_term);
    uv_signal_init(&s->loop, &s->sig_int);
    uv_signal_init(&s->loop, &s->sig_hup);
    if ((rc = uv_async_init(&s->loop, &s->again, on_again)) < 0 ||
        (rc = uv_async_init(&s->loop, &s->wake, on_wake)) < 0 ||
        (rc = uv_signal_start(&s->sig_term, on_signal, SIGTERM)) < 0 ||
        (rc = uv_signal_start(&s->sig_int, on_signal, SIGINT)) < 0 ||
        (rc = uv_signal_start(&s->sig_hup, on_signal, SIGHUP)) < 0)
        return error_set(err, ERR_IO, "cannot set up the event loop: %s", uv_strerror(rc));
    return 0;
}

int loop_watch(struct server *s, struct error *err)
{
    int fd = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    s->mhd_poll.data = s;
    int rc = uv_poll_init(&s->loop, &s->mhd_poll, fd);
    if (rc == 0)
        rc = uv_poll_start(&s->mhd_poll, UV_READABLE, on_mhd_poll);
    if (rc < 0)
        return error_set(err, ERR_IO, "cannot watch libmicrohttpd: %s", uv_strerror(rc));
    return 0;
}

void loop_unwatch(struct server *s)
{
    uv_timer_stop(&s->mhd_timer);
    if (s->mhd_poll.data) {
        uv_poll_stop(&s->mhd_poll);
        s->mhd_poll.data = NULL;
        uv_close((uv_handle_t *)&s->mhd_poll, NULL);
    }
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* The stop was asked for and is done: one signal more must not turn its exit status into a death.
 * libuv gives the default action back when it stops watching, so they are held off meanwhile. */
static void ignore_signals(struct server *s)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 3; i++)
        sigaddset(&set, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    uv_signal_stop(&s->sig_term);
    uv_signal_stop(&s->sig_int);
    uv_signal_stop(&s->sig_hup);
    for (int i = 0; i < 3; i++)
        signal(numbers[i], SIG_IGN);
}

void loop_close(struct server *s)
{
    ignore_signals(s);
    uv_walk(&s->loop, close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    ASSERT(uv_loop_close(&s->loop) == 0);
}
