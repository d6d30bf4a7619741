/* [01 http] Answers: whole documents, errors in their envelope, and the headers that every answer
 * has. The handler queues them when libmicrohttpd may take one (http.c); here they are only made. */
#pragma once

#include "server/exchange.h"

/* A document; takes body over. A second answer to one exchange is dropped. */
void reply_document(struct exchange *x, int status, const char *type, struct str *body) ON_LOOP;
void reply_json(struct exchange *x, int status, struct str *body) ON_LOOP;

/* The error's envelope with the status of its row; Retry-After where waiting helps. */
void reply_error(struct exchange *x, const struct error *err) ON_LOOP;

/* 405 and its Allow header. */
void reply_method(struct exchange *x, const struct error *err, const char *allow) ON_LOOP;

/* 204 with what a browser's preflight asks for, where CORS is on. */
void reply_options(struct exchange *x, const char *allow) ON_LOOP;

/* A streamed answer, made by its owner: gives it the common headers and keeps it. NULL (no memory) closes
 * the connection. */
void reply_stream(struct exchange *x, int status, struct MHD_Response *response) ON_LOOP;

/* Sends an error past libmicrohttpd, which takes no answer while a body arrives. The connection must be
 * closed after it. */
void reply_raw(struct exchange *x, const struct error *err) ON_LOOP;

/* {"error":{"code","type","message","param",...}} */
void reply_add_error(struct str *out, const struct error *err);
