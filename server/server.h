/* [00 main] The daemon: loop, listener, engine, from start to drained stop. */
#pragma once

#include "config/config.h"
#include "core/base/error.h"

/* Runs `serve` in the foreground until a signal has drained it. 0, or -1 with *err where it could not
 * start (address in use, no model, model failed to load). Prints `listening on http://HOST:PORT` to
 * stdout when the listener is up. on_listening (may be NULL) is called then: daemon.c's hook. */
int server_run(const struct config *c, void (*on_listening)(void *arg), void *arg,
               struct error *err);
