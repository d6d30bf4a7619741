/* [01 http] answers and their headers. */
#include "server/reply.h"

#include "core/base/mem.h"
#include "server/check.h"
#include "server/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { HEADERS_MAX = 1024 };

void reply_add_error(struct str *out, const struct error *err)
{
    str_adds(out, "{\"error\":{\"code\":");
    json_add_text(out, error_name(err->code));
    str_adds(out, ",\"type\":");
    json_add_text(out, error_type(err->code));
    str_adds(out, ",\"message\":");
    json_add_text(out, err->text);
    str_adds(out, ",\"param\":");
    if (err->param[0])
        json_add_text(out, err->param);
    else
        str_adds(out, "null");
    if (err->code == ERR_CONTEXT)
        str_addf(out, ",\"n_prompt_tokens\":%" PRIu64 ",\"n_ctx\":%" PRIu64, err->n_prompt_tokens,
                 err->n_ctx);
    str_adds(out, "}}");
}

/* Seconds after which to try again; 0: waiting does not help. */
static int retry_after_s(enum error_code code)
{
    switch (code) {
    case ERR_BUSY:
    case ERR_NO_MEMORY:
        return 1;
    case ERR_LOADING:
        return 2;
    case ERR_DRAINING:
        return 5;
    default:
        return 0;
    }
}

static void add_cors(const struct exchange *x, struct MHD_Response *r)
{
    const char *allowed = x->server->config->cors_origin;
    const char *origin = exchange_header(x, "Origin");
    if (!allowed[0])
        return;
    bool any = strcmp(allowed, "*") == 0;
    if (!any)
        MHD_add_response_header(r, "Vary", "Origin");
    if (any || (origin && strcmp(origin, allowed) == 0)) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", allowed);
        MHD_add_response_header(r, "Access-Control-Expose-Headers",
                                "X-Request-Id, X-Session-Id, X-Seed, X-Warnings, Retry-After");
    }
}

/* Keeps the answer, with the headers that all have. */
static ON_LOOP void keep(struct exchange *x, int status, struct MHD_Response *r)
{
    if (!r) { /* no memory for an answer: the connection is closed */
        x->over = true;
        exchange_resume(x);
        return;
    }
    MHD_add_response_header(r, "X-Request-Id", x->id);
    add_cors(x, r);
    if (x->early || x->conn->over || x->server->phase != SERVER_RUNNING)
        MHD_add_response_header(r, "Connection", "close");
    x->status = status;
    x->response = r;
    exchange_resume(x);
}

void reply_stream(struct exchange *x, int status, struct MHD_Response *response)
{
    keep(x, status, response);
}

static struct MHD_Response *document(const char *type, struct str *body)
{
    struct MHD_Response *r = NULL;
    if (!body->failed)
        r = MHD_create_response_from_buffer(body->n, body->n ? body->s : "",
                                            body->n ? MHD_RESPMEM_MUST_FREE
                                                    : MHD_RESPMEM_PERSISTENT);
    if (r && body->n)
        memset(body, 0, sizeof(*body)); /* the response's now */
    str_free(body);
    if (r && type)
        MHD_add_response_header(r, "Content-Type", type);
    return r;
}

void reply_document(struct exchange *x, int status, const char *type, struct str *body)
{
    if (x->response)
        str_free(body);
    else
        keep(x, status, document(type, body));
}

void reply_json(struct exchange *x, int status, struct str *body)
{
    str_add(body, "\n", 1);
    reply_document(x, status, "application/json", body);
}

static struct MHD_Response *error_document(struct exchange *x, const struct error *err)
{
    struct str body = {0};
    char seconds[16];
    snprintf(x->error, sizeof(x->error), "%s", error_name(err->code));
    reply_add_error(&body, err);
    str_add(&body, "\n", 1);
    struct MHD_Response *r = document("application/json", &body);
    if (r && retry_after_s(err->code)) {
        snprintf(seconds, sizeof(seconds), "%d", retry_after_s(err->code));
        MHD_add_response_header(r, "Retry-After", seconds);
    }
    if (r && err->code == ERR_AUTH)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    return r;
}

void reply_error(struct exchange *x, const struct error *err)
{
    if (!x->response)
        keep(x, error_http_status(err->code), error_document(x, err));
}

static void add_allow(struct MHD_Response *r, const char *allow)
{
    char line[128];
    snprintf(line, sizeof(line), "%s, OPTIONS", allow);
    MHD_add_response_header(r, "Allow", line);
}

void reply_method(struct exchange *x, const struct error *err, const char *allow)
{
    struct MHD_Response *r = error_document(x, err);
    if (r)
        add_allow(r, allow);
    keep(x, error_http_status(err->code), r);
}

/* The headers a browser may send: the ones it asks for, as far as they are harmless. */
static void allow_headers(const struct exchange *x, struct MHD_Response *r)
{
    static const char *const known[] = {"content-type", "authorization", "accept", "te"};
    char line[HEADERS_MAX] = "";
    const char *asked = exchange_header(x, "Access-Control-Request-Headers");
    for (const char *p = asked; p && *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        bool fine = n > 2 && strncasecmp(p, "x-", 2) == 0;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            fine = fine || (strlen(known[i]) == n && strncasecmp(p, known[i], n) == 0);
        size_t at = strlen(line);
        if (fine && check_name(p, n, 128, "-_") && at + n + 3 < sizeof(line))
            snprintf(line + at, sizeof(line) - at, "%s%.*s", at ? ", " : "", (int)n, p);
        p += n;
    }
    if (line[0])
        MHD_add_response_header(r, "Access-Control-Allow-Headers", line);
}

void reply_options(struct exchange *x, const char *allow)
{
    struct str none = {0};
    struct MHD_Response *r = document(NULL, &none);
    if (r) {
        add_allow(r, allow);
        if (x->server->config->cors_origin[0]) {
            MHD_add_response_header(r, "Access-Control-Allow-Methods", allow);
            MHD_add_response_header(r, "Access-Control-Max-Age", "600");
            allow_headers(x, r);
        }
    }
    keep(x, MHD_HTTP_NO_CONTENT, r);
}

void reply_raw(struct exchange *x, const struct error *err)
{
    struct str body = {0}, out = {0};
    int status = error_http_status(err->code);
    reply_add_error(&body, err);
    str_add(&body, "\n", 1);
    str_addf(&out,
             "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "X-Request-Id: %s\r\nContent-Length: %zu\r\n",
             status, MHD_get_reason_phrase_for((unsigned int)status), x->id, body.n);
    if (retry_after_s(err->code))
        str_addf(&out, "Retry-After: %d\r\n", retry_after_s(err->code));
    str_addf(&out, "\r\n%s", str_text(&body));
    x->status = status;
    x->raw = true;
    snprintf(x->error, sizeof(x->error), "%s", error_name(err->code));
    /* a fresh socket's buffer takes so little at once, or the client is not there */
    if (!out.failed && send(x->conn->fd, out.s, out.n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        x->over = true;
    str_free(&out);
    str_free(&body);
}
