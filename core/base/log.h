/* [base] Logging: one logfmt line per event on stderr, written with one write(2). Values that
 * need it are quoted. Never the text of prompts or answers. ANY_THREAD: formats on the caller's
 * stack. */
#pragma once

#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);

/* log_line(LOG_INFO, "model ready", "path=%s tensors=%u", ...): writes
 * `time=2026-11-30T05:00:00.123Z level=info msg="model ready" path=... tensors=...`.
 * Strings that may contain spaces or quotes go through log_quote. fmt may be NULL. */
__attribute__((format(printf, 3, 4))) void log_line(enum log_level level, const char *msg,
                                                    const char *fmt, ...);

/* A logfmt value of s (at most n_out-1 bytes): bare where it can be, else quoted with \" \\ \n
 * escapes and other control bytes as \xNN. Returns out. */
const char *log_quote(const char *s, char *out, uint32_t n_out);
