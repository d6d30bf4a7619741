/* [base] What a subcommand reads: the whole of stdin, checked. Main thread. */
#pragma once

#include "core/base/error.h"
#include "core/base/str.h"

/* All of stdin. ERR_IO where it cannot be read or has more than limit bytes. */
int input_read(struct str *text, size_t limit, struct error *err);

/* ERR_INVALID with the offset of the first byte that is no UTF-8. what: "stdin", "the prompt". */
int input_check_utf8(const char *what, const char *s, size_t n, struct error *err);
