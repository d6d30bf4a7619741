/* [base] A growing byte string, always NUL-terminated (the NUL is not counted). An append that
 * finds no memory sets `failed` and drops the bytes; check once at the end. ANY_THREAD: its
 * owner's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct str {
    char *s; /* "" before the first append too: read with str_text */
    size_t n, cap;
    bool failed;
};

void str_add(struct str *b, const char *bytes, size_t n);
void str_adds(struct str *b, const char *text);
__attribute__((format(printf, 2, 3))) void str_addf(struct str *b, const char *fmt, ...);
void str_clear(struct str *b); /* keeps the memory */
void str_free(struct str *b);
static inline const char *str_text(const struct str *b) { return b->s ? b->s : ""; }
