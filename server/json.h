/* [16 stream] Writing JSON: small and fast, for answers. Reading is jansson's (fields.h).
 * ANY_THREAD. */
#pragma once

#include "core/base/str.h"

#include <stddef.h>
#include <stdint.h>

/* A string with its quotes. Bytes that are not UTF-8 become U+FFFD, so the output always parses. */
void json_add_str(struct str *out, const char *s, size_t n);
void json_add_text(struct str *out, const char *s); /* NUL-terminated */

/* A number with so many decimals; what JSON cannot write (NaN, infinities) becomes 0. */
void json_add_num(struct str *out, double v, int decimals);

/* A logarithm of a probability: as many digits as tell one float from the next; -inf is -9999. */
void json_add_logprob(struct str *out, float v);

/* [1,2,3] */
void json_add_ids(struct str *out, const uint32_t *id, uint32_t n);
