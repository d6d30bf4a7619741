/* [01 http] A client's connection, from accept to close, and the watch over all of them: how long
 * a request may take to arrive, how long a stream may stand still, who has left. libmicrohttpd
 * owns the descriptor. */
#pragma once

#include "server/state.h"

struct exchange;

struct conn {
    struct server *server;
    struct MHD_Connection *mhd;
    int fd;
    bool fin;           /* the client has closed its sending side, or has left: nobody can tell */
    bool gone;          /* it has certainly left */
    bool over;          /* accepted above the limit: its request gets 503 */
    bool bad_uri;       /* its request's URI has %00 */
    bool arriving;      /* part of a request is here */
    uint64_t t_idle_ms; /* since when nothing is asked; 0 while an exchange runs */
    uint64_t t_arriving_ms; /* when the request began to arrive, as far as we know */
    uint64_t t_look_ms;     /* when to look again whether one began */
    uint64_t t_probe_ms;    /* when to ask again whether the client is there */
    uint64_t t_progress_ms; /* when its stream last moved */
    struct exchange *x;     /* the request at work, or NULL */
    struct conn *prev, *next;
};

/* libmicrohttpd's callback for connections made and closed. */
void conn_notify(void *cls, struct MHD_Connection *mhd, void **slot,
                 enum MHD_ConnectionNotificationCode what);

/* libmicrohttpd's callback for the raw URI of a request that arrives. Returns NULL. */
void *conn_on_uri(void *cls, const char *uri, struct MHD_Connection *mhd);

struct conn *conn_of(struct MHD_Connection *mhd) ON_LOOP;

/* Its request has arrived whole (or is refused); and: its answer is out, the next may come. */
void conn_received(struct conn *c) ON_LOOP;
void conn_idle(struct conn *c) ON_LOOP;

/* The client has left: ends what runs for it. */
void conn_gone(struct conn *c) ON_LOOP;

/* It is about to be closed: lets libmicrohttpd look at it again soon, which it does not where a
 * connection was closed from inside a reader, or waits for more of a line it has no room for. */
void conn_doom(struct conn *c) ON_LOOP;

/* Cuts it, now: what runs for it ends, libmicrohttpd closes it at its next run. */
void conn_cut(struct conn *c) ON_LOOP;

/* Deadlines of all connections. */
void conns_sweep(struct server *s, uint64_t now_ms) ON_LOOP;
