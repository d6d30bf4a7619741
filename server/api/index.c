/* [02 api] GET /: what one can do here. */
#include "core/engine.h"
#include "server/check.h"
#include "server/reply.h"

#include <string.h>

void index_get(struct exchange *x);

void index_get(struct exchange *x)
{
    const struct server *s = x->server;
    const char *host = exchange_header(x, "Host");
    struct str body = {0};
    thread_assert_loop();
    if (!host || !check_name(host, strlen(host), 255, ".:[]-_"))
        host = "127.0.0.1:8080";
    str_addf(&body,
             "attend, %s%s\n\nTry\n\n    curl -N http://%s/generate -d '%s'\n\nEndpoints\n\n",
             s->ready ? "serving " : "loading a model", s->ready ? s->model_name : "", host,
             server_example(s));
    for (size_t i = 0; i < ROUTE_N; i++)
        str_addf(&body, "    %-7s %s\n", routes[i].method, routes[i].path);
    reply_document(x, MHD_HTTP_OK, "text/plain; charset=utf-8", &body);
}
