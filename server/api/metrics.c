/* [02 api] GET /metrics. */
#include "server/reply.h"

void metrics_get(struct exchange *x);

void metrics_get(struct exchange *x)
{
    struct str body = {0};
    thread_assert_loop();
    metrics_write(x->server, &body);
    reply_document(x, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &body);
}
