/* [01 http] Keys. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether an Authorization header's value is `Bearer KEY` with this key. The time it takes depends on the
 * lengths only. ANY_THREAD. */
bool auth_bearer(const char *header, const char *key);
