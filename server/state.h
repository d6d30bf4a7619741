/* [base] The daemon's one state: who holds what on the loop thread. Every member belongs to the
 * loop (ON_LOOP); nothing here is locked. server.c makes it and takes it down, in reverse order. */
#pragma once

#include "config/config.h"
#include "core/base/error.h"
#include "core/engine.h"
#include "server/metrics.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct conn;
struct generation;
struct lingering;

enum server_phase {
    SERVER_RUNNING,
    SERVER_DRAINING,   /* no new work; what runs may end by itself */
    SERVER_CANCELLING, /* what still runs was asked to end, and sends its last words */
    SERVER_CLOSING,    /* connections are cut; the engine gives back the last requests */
};

struct server {
    const struct config *config;
    struct engine *engine; /* NULL until the listener is up */
    enum server_phase phase;
    bool ready;    /* loaded; engine_model and engine_text may be asked */
    bool failed;   /* for this reason: */
    bool need_run; /* libmicrohttpd has work that its descriptor does not tell */
    struct error failure;
    char model_name[256];             /* what answers call the model */
    uint64_t t_cancel_ms, t_close_ms; /* when the next two phases begin at the latest */

    uv_loop_t loop; /* loop.c */
    uv_poll_t mhd_poll;
    uv_timer_t mhd_timer, sweep;
    uv_async_t again, wake;
    uv_signal_t sig_term, sig_int, sig_hup;
    uint64_t progress; /* rises whenever something moved in libmicrohttpd */

    struct MHD_Daemon *mhd;          /* http.c */
    struct conn *conns;              /* conn.c */
    struct lingering *lingers;       /* linger.c */
    struct generation *first, *last; /* generation.c: in order of arrival */
    struct generation *dead;         /* to be freed when no callback is at work on them */
    size_t body_bytes;               /* of all bodies being received, or waiting to be read */
    uv_poll_t watch_poll;            /* watch.c */
    int watch_fd, listen_fd;
    uint32_t n_conns, max_conns, n_exchanges, n_lingers;
    uint32_t n_places;    /* taken of config's max_running + queue */
    uint32_t n_heavy;     /* long bodies with the text role now */
    uint64_t n_cancelled; /* requests that the engine has not seen */
    uint16_t port;

    struct metrics metrics;
    uint64_t beat, beat_ms; /* engine's heartbeat, and when it last moved or was idle */
};

/* A body to try: a chat turn where the model is a chat model, else a prompt. */
const char *server_example(const struct server *s);
