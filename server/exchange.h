/* [01 http] One HTTP request and its answer, from the first header to the last byte out.
 * libmicrohttpd's request context. Made in http.c, ends there on one path, whatever happened. */
#pragma once

#include "core/base/str.h"
#include "server/conn.h"
#include "server/routes.h"

struct exchange {
    struct server *server;
    struct conn *conn;
    struct MHD_Connection *mhd;
    const struct route *route;    /* NULL: none fits */
    char method[16];              /* as sent, for the log */
    char arg[SESSION_ID_MAX + 1]; /* what stands for {id} in the route's path */
    char id[REQUEST_ID_MAX + 1];  /* X-Request-Id, echoed or made */
    struct str body;
    uint64_t t_begin_ns;

    bool http10, head;
    bool trailers;  /* the client takes them */
    bool has_body;  /* one is announced */
    bool received;  /* all of it is here */
    bool early;     /* answered while the client may still be sending: then close and linger */
    bool raw;       /* answered by hand, past libmicrohttpd */
    bool over;      /* the client has left */
    bool suspended; /* in libmicrohttpd */
    bool waited;    /* the handler has been called once since the request was whole */
    bool queued;    /* the answer's head is out */
    int status;     /* of the answer; 0 = none yet */
    char error[32]; /* its error's name, for the log */
    struct MHD_Response *response;

    /* Work that goes on outside the handler. leave is called once: when the client has left, or
     * when the exchange ends; the work must forget the exchange then. */
    void (*leave)(struct exchange *x);
    void *work;
    struct generation *generation; /* where the work is one */
    bool logged;                   /* the work writes the request's line itself */
};

/* Lets libmicrohttpd look at it again (the answer is there, or more of it). */
void exchange_resume(struct exchange *x) ON_LOOP;

/* libmicrohttpd leaves it alone until then. */
void exchange_suspend(struct exchange *x) ON_LOOP;

/* The client has left: tells the work, lets libmicrohttpd close the connection. */
void exchange_abandon(struct exchange *x) ON_LOOP;

/* The work is done, or nobody waits for it any more. */
void exchange_leave(struct exchange *x) ON_LOOP;

/* A stream's head is out and libmicrohttpd is writing (not waiting for us). */
static inline bool exchange_writes(const struct exchange *x)
{
    return x->queued && x->leave && !x->suspended;
}

/* A request's header value, or NULL. Valid while the request lives. */
static inline const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}
