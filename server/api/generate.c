/* [02 api] POST /generate. */
#include "server/generate_fields.h"

#include "server/check.h"
#include "server/generation.h"
#include "server/reply.h"

#include <stdio.h>
#include <string.h>

void generate_post(struct exchange *x);

/* The session's name may come by header, too. */
static int session_of_header(const struct exchange *x, struct generate *spec, struct error *err)
{
    const char *given = exchange_header(x, "X-Session-Id");
    char *name = spec->params.session;
    if (!given)
        return 0;
    if (!check_name(given, strlen(given), SESSION_ID_MAX, "._-"))
        return error_set_field(err, ERR_INVALID, "session",
                               "X-Session-Id must be 1 to 128 characters of A-Z a-z 0-9 . _ -");
    if (name[0] && strcmp(name, given) != 0)
        return error_set_field(err, ERR_INVALID, "session",
                               "session is \"%s\" and X-Session-Id is \"%.128s\": send one of them",
                               name, given);
    snprintf(name, sizeof(spec->params.session), "%s", given);
    return 0;
}

void generate_post(struct exchange *x)
{
    struct server *s = x->server;
    struct generate spec = {0};
    struct error err;
    thread_assert_loop();
    if (generate_read(&spec, str_text(&x->body), x->body.n, engine_model(s->engine), s->config,
                      &err) < 0 ||
        session_of_header(x, &spec, &err) < 0) {
        generate_free(&spec);
        reply_error(x, &err);
        return;
    }
    enum stream_format format = accept_format(exchange_header(x, "Accept"));
    if (!spec.stream)
        format = FORMAT_DOCUMENT;
    generation_start(x, &spec, format);
}
