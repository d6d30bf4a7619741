/* [01 http] libmicrohttpd: the daemon and its callbacks. The life of a request is told in http.c. */
#pragma once

#include "server/state.h"

/* Starts serving on s->listen_fd. 0, or -1 with *err. */
int http_start(struct server *s, struct error *err) ON_LOOP;

/* Closes the listener: new clients are refused, those that are here may go on. */
void http_quiesce(struct server *s) ON_LOOP;

/* Closes every connection. None may be suspended. */
void http_stop(struct server *s) ON_LOOP;
