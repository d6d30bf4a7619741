/* [02 api] requests at work: the list (no texts), and cancelling from another connection. */
#include "server/generation.h"
#include "server/json.h"
#include "server/reply.h"

void requests_list(struct exchange *x);
void requests_delete(struct exchange *x);

void requests_list(struct exchange *x)
{
    struct str body = {0};
    thread_assert_loop();
    str_adds(&body, "{\"requests\":[");
    generations_list(x->server, &body);
    str_adds(&body, "]}");
    reply_json(x, MHD_HTTP_OK, &body);
}

void requests_delete(struct exchange *x)
{
    struct str body = {0};
    struct error err;
    thread_assert_loop();
    if (generations_cancel_id(x->server, x->arg) == 0) {
        error_set(&err, ERR_NOT_FOUND, "no request %s is running or queued", x->arg);
        reply_error(x, &err);
        return;
    }
    str_adds(&body, "{\"id\":");
    json_add_text(&body, x->arg);
    str_adds(&body, ",\"cancelled\":true}");
    reply_json(x, MHD_HTTP_OK, &body);
}
