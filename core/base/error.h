/* [base] Errors: one code, one sentence. Whatever can fail takes `struct error *err` last and
 * returns 0/-1 or pointer/NULL. The text names the object and both values (got, wanted). Rows and
 * their HTTP statuses: error.def. ANY_THREAD: an error belongs to its caller. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum error_code {
    ERR_NONE,
#define ERROR(code, http, type, name, text) ERR_##code,
#include "core/base/error.def"
#undef ERROR
    ERR_COUNT
};

struct error {
    enum error_code code;
    char param[64];           /* the request's field or the setting at fault, or "" */
    char text[512];           /* UTF-8, NUL-terminated, one line */
    uint64_t n_prompt_tokens; /* ERR_CONTEXT: beside n_ctx in the reply */
    uint64_t n_ctx;
};

/* Fills *err (may be NULL) and returns -1, so that callers can `return error_set(...)`.
 * fmt NULL: the row's text. A text that is cut stays valid UTF-8. */
__attribute__((format(printf, 3, 4))) int error_set(struct error *err, enum error_code code,
                                                    const char *fmt, ...);

/* The same, and names the field. */
__attribute__((format(printf, 4, 5))) int error_set_field(struct error *err, enum error_code code,
                                                          const char *param, const char *fmt, ...);

/* ERR_CONTEXT with both numbers, in the sentence that clients search for. */
int error_set_context(struct error *err, uint64_t n_prompt_tokens, uint64_t n_ctx);

int error_http_status(enum error_code code);
const char *error_type(enum error_code code);
const char *error_name(enum error_code code);
