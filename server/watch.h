/* [01 http] Who has left? libmicrohttpd does not look at a suspended connection, so a private,
 * edge-triggered epoll set does. A reset is certain; a FIN may be a half-close, and only an
 * answer to something we send tells: see watch_probe. */
#pragma once

#include "server/conn.h"

int watch_open(struct server *s, struct error *err);
void watch_close(struct server *s); /* its poll handle is closed with the loop */

void watch_add(struct conn *c) ON_LOOP;
void watch_remove(struct conn *c) ON_LOOP;

/* The connection's FIN was seen while a request is at work: sends something that a client which still
 * reads skips, and that a closed socket answers with a reset. */
void watch_probe(struct conn *c) ON_LOOP;
