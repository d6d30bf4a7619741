/* [base] growable byte string. */
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for n more bytes and a NUL. */
static bool reserve(struct str *b, size_t n)
{
    if (b->failed || n > (size_t)-1 / 4 - b->n) {
        b->failed = true;
        return false;
    }
    if (b->n + n + 1 <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->n + n + 1)
        cap *= 2;
    char *s = realloc(b->s, cap);
    if (!s) {
        b->failed = true;
        return false;
    }
    b->s = s;
    b->cap = cap;
    return true;
}

void str_add(struct str *b, const char *bytes, size_t n)
{
    if (!reserve(b, n))
        return;
    if (n)
        memcpy(b->s + b->n, bytes, n);
    b->n += n;
    b->s[b->n] = '\0';
}

void str_adds(struct str *b, const char *text) { str_add(b, text, strlen(text)); }

void str_addf(struct str *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->s + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void str_clear(struct str *b)
{
    b->n = 0;
    b->failed = false;
    if (b->s)
        b->s[0] = '\0';
}

void str_free(struct str *b)
{
    free(b->s);
    memset(b, 0, sizeof(*b));
}
