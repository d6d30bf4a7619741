/* [01 http] The table of endpoints (routes.def). ANY_THREAD: constant. */
#pragma once

#include "core/base/error.h"
#include "core/base/str.h"

#include <stddef.h>
#include <stdint.h>

struct exchange;

enum route_flag { ROUTE_OPEN = 1, ROUTE_QUIET = 2, ROUTE_MODEL = 4, ROUTE_PLACE = 8 };

struct route {
    const char *method, *path;
    void (*handle)(struct exchange *x); /* ON_LOOP */
    unsigned int flags;
};

enum { /* a name for each row; the last counts them */
#define ROUTE(family, method, path, handler, flags) ROUTE_OF_##handler,
#include "server/routes.def"
#undef ROUTE
       ROUTE_N
};

extern const struct route routes[ROUTE_N];

/* The route of method and target (a path, or a URL); what stands for {id} is copied to arg [n_arg]. NULL: *err is 404, or 405
 * and then allow [n_allow] holds the methods that the path has ("" : the path is unknown). HEAD is GET. */
const struct route *routes_find(const char *method, const char *target, char *arg, size_t n_arg,
                                char *allow, size_t n_allow, struct error *err);

/* Index of a route, for counters; ROUTE_N where route is NULL. */
static inline size_t routes_index(const struct route *route)
{
    return route ? (size_t)(route - routes) : (size_t)ROUTE_N;
}
