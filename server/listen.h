/* [01 http] The listening socket, made by us so that a failure says what to do. */
#pragma once

#include "core/base/error.h"

#include <stdint.h>

/* Listens on host:port (0 = any free one, *bound says which). A descriptor, non-blocking, or -1. */
int listen_open(const char *host, uint16_t port, uint16_t *bound, struct error *err);

/* Raises the limit of open files to what is allowed; returns how many connections it leaves room for,
 * at most wanted. */
uint32_t listen_room(uint32_t wanted);
