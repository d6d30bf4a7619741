/* [01 http] The event loop: libuv drives libmicrohttpd's epoll descriptor. Every callback that
 * touched libmicrohttpd, or resumed one of its connections, ends with loop_pump; none of
 * libmicrohttpd's own callbacks may call it (they set server.need_run instead). */
#pragma once

#include "server/state.h"

/* Makes the loop and its handles (timers, signals, wake-ups). 0, or -1 with *err. */
int loop_open(struct server *s, struct error *err);

/* Watches the started daemon's descriptor. */
int loop_watch(struct server *s, struct error *err);
void loop_unwatch(struct server *s) ON_LOOP; /* before MHD_stop_daemon, which closes it */

/* Lets libmicrohttpd do all that it can do now, and sets its timer. */
void loop_pump(struct server *s) ON_LOOP;

/* Lets the sweep timer run again (it stops by itself when there is nothing to watch over). */
void loop_sweep(struct server *s, uint64_t every_ms) ON_LOOP;

/* Closes every handle and the loop. */
void loop_close(struct server *s) ON_LOOP;

/* server.c's: called by the loop. */
void server_on_wake(struct server *s) ON_LOOP;  /* the engine has news */
void server_on_sweep(struct server *s) ON_LOOP; /* time has passed */
void server_on_signal(struct server *s, int number) ON_LOOP;
