/* [01 http] Checks of a request's header that libmicrohttpd 0.9.75 does not make: everything by
 * which two readers of one byte stream could disagree about where a request ends. */
#pragma once

#include "server/exchange.h"

/* 0, or -1 with *err: then the connection must be closed, for nobody knows what its next bytes are.
 * Fills x->has_body, and *length with Content-Length (0 where there is none). */
int check_header(struct exchange *x, const char *version, uint64_t *length,
                 struct error *err) ON_LOOP;

/* Printable words for names that clients choose: 1 to max of A-Za-z0-9 and the characters of more. */
bool check_name(const char *s, size_t n, size_t max, const char *more);
