/* [base] UTF-8: checking, walking, cutting. Strict as RFC 3629: no overlong forms, no surrogates,
 * nothing above U+10FFFF. ANY_THREAD: pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Decodes the character at s[0..n). Returns its length 1-4 and sets *cp; 0 where the bytes are
 * the beginning of a character that n cuts off; -1 where they can begin none. n > 0. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes cp (a scalar value) to out and returns 1-4. */
int utf8_encode(uint32_t cp, char out[4]);

bool utf8_valid(const char *s, size_t n);

/* Bytes of s[0..n) without a character that the end cuts off (the rest is taken as it is). */
size_t utf8_whole(const char *s, size_t n);
