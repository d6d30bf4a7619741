/* [base] error table: code -> HTTP status, type, name, default text. */
#include "core/base/error.h"

#include "core/base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int http;
    const char *type, *name, *text;
} rows[ERR_COUNT] = {
    [ERR_NONE] = {200, "", "", ""},
#define ERROR(code, http, type, name, text) [ERR_##code] = {http, type, name, text},
#include "core/base/error.def"
#undef ERROR
};

__attribute__((format(printf, 3, 0))) static void fill(struct error *err, enum error_code code,
                                                       const char *fmt, va_list ap)
{
    memset(err, 0, sizeof(*err));
    err->code = code;
    if (!fmt) {
        snprintf(err->text, sizeof(err->text), "%s", rows[code].text);
        return;
    }
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    err->text[utf8_whole(err->text, strlen(err->text))] = '\0';
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, fmt, ap);
    va_end(ap);
    return -1;
}

int error_set_field(struct error *err, enum error_code code, const char *param, const char *fmt,
                    ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, fmt, ap);
    va_end(ap);
    snprintf(err->param, sizeof(err->param), "%s", param);
    err->param[utf8_whole(err->param, strlen(err->param))] = '\0';
    return -1;
}

int error_set_context(struct error *err, uint64_t n_prompt_tokens, uint64_t n_ctx)
{
    if (!err)
        return -1;
    error_set_field(err, ERR_CONTEXT, "prompt",
                    "This model's maximum context length is %" PRIu64
                    " tokens, the prompt has %" PRIu64,
                    n_ctx, n_prompt_tokens);
    err->n_prompt_tokens = n_prompt_tokens;
    err->n_ctx = n_ctx;
    return -1;
}

int error_http_status(enum error_code code) { return rows[code].http; }

const char *error_type(enum error_code code) { return rows[code].type; }

const char *error_name(enum error_code code) { return rows[code].name; }
