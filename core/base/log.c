/* [base] logfmt lines on stderr. */
#include "core/base/log.h"

#include "core/base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int threshold = LOG_INFO;
static const char *const names[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level) { atomic_store(&threshold, (int)level); }

/* One character of s as it may stand in a log line: bytes that are none of UTF-8 become \xNN. Returns
 * its length in s. */
static uint32_t add_character(const char *s, char *out, uint32_t n_out, uint32_t *n)
{
    uint32_t cp, n_left = n_out - *n;
    int length = utf8_decode(s, strnlen(s, 4), &cp);
    if (*s == '"' || *s == '\\')
        *n += (uint32_t)snprintf(out + *n, n_left, "\\%c", *s);
    else if (*s == '\n')
        *n += (uint32_t)snprintf(out + *n, n_left, "\\n");
    else if (length < 1 || cp < ' ' || cp == 0x7F)
        *n += (uint32_t)snprintf(out + *n, n_left, "\\x%02x", (unsigned char)*s);
    else
        *n += (uint32_t)snprintf(out + *n, n_left, "%.*s", length, s);
    return length > 1 ? (uint32_t)length : 1;
}

const char *log_quote(const char *s, char *out, uint32_t n_out)
{
    uint32_t n = 0;
    bool bare = s[0] != '\0' && utf8_valid(s, strlen(s));
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        bare = bare && *p > ' ' && *p != '"' && *p != '=' && *p != '\\' && *p != 0x7F;
    if (bare) {
        snprintf(out, n_out, "%s", s);
        out[utf8_whole(out, strlen(out))] = '\0';
        return out;
    }
    out[n++] = '"';
    for (const char *p = s; *p && n + 6 < n_out;)
        p += add_character(p, out, n_out, &n);
    out[n++] = '"';
    out[n] = '\0';
    return out;
}

void log_line(enum log_level level, const char *msg, const char *fmt, ...)
{
    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    char line[2048], quoted[256];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(line, sizeof(line), "time=%Y-%m-%dT%H:%M:%S", &utc);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ level=%s msg=%s",
                          now.tv_nsec / 1000000, names[level],
                          log_quote(msg, quoted, sizeof(quoted)));
    if (fmt) {
        line[n++] = ' ';
        va_list ap;
        va_start(ap, fmt);
        int more = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
        va_end(ap);
        if (more > 0)
            n += (size_t)more < sizeof(line) - n - 1 ? (size_t)more : sizeof(line) - n - 2;
    }
    n = utf8_whole(line, n);
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0)
        return; /* nowhere left to say so */
}
