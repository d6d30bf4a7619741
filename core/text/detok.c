/* [15 detok] ids -> text that may leave. Two things hold bytes back: a character that is not whole
 * yet, and text that may be the beginning of a stop string. Each stop string is followed by a
 * Knuth-Morris-Pratt automaton, a byte at a time, so that it does not matter how tokens split it.
 * Stops and text are whole characters, so a match begins and ends between characters. */
#include "core/text/detok.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct stop {
    char *s;        /* [n] */
    uint32_t *fail; /* [n] longest proper border of s[0..i] */
    uint32_t n;
    uint32_t state; /* bytes of s that the text now ends with */
};

struct detok {
    const struct text *text;
    struct stop *stops; /* [n_stops] */
    uint32_t n_stops;
    bool first;      /* nothing but control tokens so far, at the timeline's beginning */
    bool stopped;    /* nothing more comes */
    struct str raw;  /* bytes that are no whole character yet (at most 3), and the new token's */
    struct str held; /* valid text that may still become a stop */
};

static int copy_stop(struct stop *stop, const struct detok_stop *from, struct error *err)
{
    if (from->n == 0 || from->n > UINT32_MAX / 8 || !utf8_valid(from->s, from->n))
        return error_set_field(err, ERR_INVALID, "stop",
                               "\"stop\": a stop string is empty or not UTF-8");
    stop->n = (uint32_t)from->n;
    stop->s = mem_new(stop->n, 1);
    stop->fail = mem_new(stop->n, sizeof(*stop->fail));
    if (!stop->s || !stop->fail)
        return error_set(err, ERR_NO_MEMORY, "no memory for a stop string of %u bytes", stop->n);
    memcpy(stop->s, from->s, stop->n);
    for (uint32_t i = 1, k = 0; i < stop->n; i++) {
        while (k && stop->s[i] != stop->s[k])
            k = stop->fail[k - 1];
        k += stop->s[i] == stop->s[k];
        stop->fail[i] = k;
    }
    return 0;
}

struct detok *detok_open(const struct text *t, const struct detok_stop *stops, uint32_t n_stops,
                         bool first, struct error *err)
{
    struct detok *d = mem_new(1, sizeof(*d));
    if (!d) {
        error_set(err, ERR_NO_MEMORY, "no memory for the answer's text");
        return NULL;
    }
    d->text = t;
    d->first = first;
    d->n_stops = n_stops;
    d->stops = mem_new(n_stops, sizeof(*d->stops));
    if (!d->stops)
        error_set(err, ERR_NO_MEMORY, "no memory for %u stop strings", n_stops);
    for (uint32_t i = 0; d->stops && i < n_stops; i++)
        if (copy_stop(&d->stops[i], &stops[i], err) < 0) {
            detok_close(d);
            return NULL;
        }
    if (d->stops)
        return d;
    detok_close(d);
    return NULL;
}

void detok_close(struct detok *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; d->stops && i < d->n_stops; i++) {
        free(d->stops[i].s);
        free(d->stops[i].fail);
    }
    free(d->stops);
    str_free(&d->raw);
    str_free(&d->held);
    free(d);
}

/* Removes the first n bytes. */
static void drop(struct str *b, size_t n)
{
    b->n -= n;
    memmove(b->s, b->s + n, b->n);
    b->s[b->n] = '\0';
}

/* How many bytes of s[0..n), which begin no character, one U+FFFD stands for: the longest beginning
 * of a character, else one byte (Unicode's "maximal subpart"). */
static size_t bad_bytes(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t len = n < 3 ? n : 3; len > 1; len--)
        if (utf8_decode(s, len, &cp) == 0)
            return len;
    return 1;
}

/* The next character of d->raw from *at as text; false: the rest is no whole character yet (unless
 * last: nothing follows). */
static bool next_char(const struct detok *d, size_t *at, bool last, char out[4], size_t *n_out)
{
    uint32_t cp;
    size_t n = d->raw.n - *at;
    if (n == 0)
        return false;
    const char *s = d->raw.s + *at;
    int len = utf8_decode(s, n, &cp);
    if (len > 0) {
        memcpy(out, s, (size_t)len);
        *n_out = (size_t)len;
        *at += (size_t)len;
        return true;
    }
    if (len == 0 && !last)
        return false;
    *n_out = sizeof(UTF8_REPLACEMENT) - 1;
    memcpy(out, UTF8_REPLACEMENT, *n_out);
    *at += len == 0 ? n : bad_bytes(s, n);
    return true;
}

/* Takes one byte of text. Returns the longest stop that it completes, or -1. */
static int advance(struct detok *d, char byte)
{
    int found = -1;
    for (uint32_t i = 0; i < d->n_stops; i++) {
        struct stop *p = &d->stops[i];
        while (p->state && p->s[p->state] != byte)
            p->state = p->fail[p->state - 1];
        p->state += p->s[p->state] == byte;
        if (p->state == p->n) {
            if (found < 0 || p->n > d->stops[found].n)
                found = (int)i;
            p->state = p->fail[p->n - 1];
        }
    }
    return found;
}

/* Moves what can no longer become a stop from held to out. */
static void release(struct detok *d, struct str *out)
{
    uint32_t keep = 0;
    for (uint32_t i = 0; i < d->n_stops; i++)
        keep = d->stops[i].state > keep ? d->stops[i].state : keep;
    size_t n = d->held.n - keep;
    if (n == 0)
        return;
    str_add(out, d->held.s, n);
    drop(&d->held, n);
}

/* Whole characters of raw go through the automata into held, and on. */
static int take_raw(struct detok *d, bool last, struct str *out)
{
    size_t at = 0, n = 0;
    char bytes[4];
    while (next_char(d, &at, last, bytes, &n)) {
        for (size_t i = 0; i < n; i++) {
            str_add(&d->held, &bytes[i], 1);
            int found = advance(d, bytes[i]);
            if (found < 0)
                continue;
            str_add(out, d->held.s, d->held.n - d->stops[found].n);
            str_clear(&d->held);
            d->stopped = true;
            return found;
        }
    }
    if (at)
        drop(&d->raw, at);
    if (d->raw.failed || d->held.failed) { /* bytes are missing: the automata are ahead of held */
        out->failed = d->stopped = true;
        return -1;
    }
    release(d, out);
    return -1;
}

int detok_push(struct detok *d, uint32_t id, struct str *out)
{
    if (d->stopped)
        return -1;
    text_token_bytes(d->text, id, d->first, false, &d->raw);
    d->first = d->first && text_is_control(d->text, id);
    return take_raw(d, false, out);
}

void detok_finish(struct detok *d, struct str *out)
{
    if (d->stopped)
        return;
    d->stopped = true;
    take_raw(d, true, out);
    if (d->held.n)
        str_add(out, d->held.s, d->held.n);
}
