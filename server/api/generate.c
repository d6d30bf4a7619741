/* [02 api] POST /generate. */
#include "server/generate_fields.h"

#include "server/accept.h"
#include "server/check.h"
#include "server/generation.h"
#include "server/reply.h"

#include <stdio.h>
#include <string.h>

void generate_post(struct exchange *x);

static int read_header(const struct exchange *x, struct generate *spec, struct error *err)
{
    const char *session = exchange_header(x, "X-Session-Id");
    spec->format = accept_format(exchange_header(x, "Accept"));
    if (!session)
        return 0;
    if (!check_name(session, strlen(session), SESSION_ID_MAX, "._-"))
        return error_set_field(err, ERR_INVALID, "session",
                               "X-Session-Id must be 1 to 128 characters of A-Z a-z 0-9 . _ -");
    snprintf(spec->header_session, sizeof(spec->header_session), "%s", session);
    return 0;
}

void generate_post(struct exchange *x)
{
    struct server *s = x->server;
    struct generate spec = {0};
    struct error err;
    bool quick = x->body.n <= GENERATE_QUICK_BYTES;
    thread_assert_loop();
    if (read_header(x, &spec, &err) < 0 ||
        (quick && generate_read(&spec, str_text(&x->body), x->body.n, engine_model(s->engine),
                                s->config, &err) < 0)) {
        generate_free(&spec);
        reply_error(x, &err);
        return;
    }
    generation_start(x, &spec, quick);
}
