/* [15 detok] ids -> text, as it may leave: whole UTF-8 characters, nothing that may yet become a
 * stop string, and no stop string. One detok belongs to one request. ON_ENGINE, or its owner's
 * thread. */
#pragma once

#include "core/text/text.h"

struct detok;

struct detok_stop { /* a stop string, valid UTF-8, n > 0 */
    const char *s;
    size_t n;
};

/* Copies the stops. first: the answer begins the timeline's text (no prompt before it). */
struct detok *detok_open(const struct text *t, const struct detok_stop *stops, uint32_t n_stops,
                         bool first, struct error *err);
void detok_close(struct detok *d); /* NULL is fine */

/* Takes the next token; appends to out what may leave now. Returns the index of the stop string that
 * this token completed (of several the one that ends first, then the longest), or -1. After a stop
 * nothing more comes. Text never contains invalid UTF-8: bad bytes become U+FFFD. */
int detok_push(struct detok *d, uint32_t id, struct str *out);

/* No more tokens: appends what was held back (an incomplete character becomes U+FFFD). */
void detok_finish(struct detok *d, struct str *out);
