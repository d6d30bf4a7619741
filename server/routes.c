/* [01 http] which handler answers a method and a path. */
#include "server/routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ROUTE(family, method, path, handler, flags) void handler(struct exchange *x);
#include "server/routes.def"
#undef ROUTE

const struct route routes[ROUTE_N] = {
#define ROUTE(family, method, path, handler, flags) {#method, path, handler, flags},
#include "server/routes.def"
#undef ROUTE
};

/* Whether path is of the pattern's form; the segment at {id} goes to arg. */
static bool fits(const char *pattern, const char *path, char *arg, size_t n_arg)
{
    arg[0] = '\0';
    while (*pattern) {
        if (strncmp(pattern, "{id}", 4) == 0) {
            size_t n = strcspn(path, "/");
            if (n == 0 || n >= n_arg)
                return false;
            memcpy(arg, path, n);
            arg[n] = '\0';
            path += n;
            pattern += 4;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

static void allow_method(char *allow, size_t n_allow, const char *method)
{
    size_t n = strlen(allow);
    snprintf(allow + n, n_allow - n, "%s%s%s", n ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

/* The path of a target that is a whole URL, as clients of proxies send it. */
static const char *path_of(const char *target)
{
    if (strncasecmp(target, "http://", 7) != 0)
        return target;
    const char *path = strchr(target + 7, '/');
    return path ? path : "/";
}

const struct route *routes_find(const char *method, const char *target, char *arg, size_t n_arg,
                                char *allow, size_t n_allow, struct error *err)
{
    const char *path = path_of(target);
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allow[0] = '\0';
    for (size_t i = 0; i < ROUTE_N; i++) {
        if (!fits(routes[i].path, path, arg, n_arg))
            continue;
        if (strcmp(routes[i].method, wanted) == 0)
            return &routes[i];
        allow_method(allow, n_allow, routes[i].method);
    }
    if (allow[0])
        error_set(err, ERR_METHOD, "%s: use %s", path, allow);
    else
        error_set(err, ERR_NOT_FOUND, "no endpoint %.128s; GET / lists them", path);
    return NULL;
}
