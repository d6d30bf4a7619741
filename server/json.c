/* [16 stream] writing JSON. */
#include "server/json.h"

#include "core/base/utf8.h"

#include <math.h>
#include <string.h>

static void add_control(struct str *out, unsigned char c)
{
    switch (c) {
    case '"':
        str_add(out, "\\\"", 2);
        return;
    case '\\':
        str_add(out, "\\\\", 2);
        return;
    case '\n':
        str_add(out, "\\n", 2);
        return;
    case '\r':
        str_add(out, "\\r", 2);
        return;
    case '\t':
        str_add(out, "\\t", 2);
        return;
    default:
        str_addf(out, "\\u%04x", c);
    }
}

void json_add_str(struct str *out, const char *s, size_t n)
{
    size_t plain = 0; /* s[plain..i) needs no change */
    str_add(out, "\"", 1);
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        uint32_t cp;
        int len = c < 0x80 ? 1 : utf8_decode(s + i, n - i, &cp);
        if (len > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) {
            i += (size_t)len;
            continue;
        }
        str_add(out, s + plain, i - plain);
        if (len <= 0)
            str_adds(out, UTF8_REPLACEMENT);
        else
            add_control(out, c);
        plain = ++i;
    }
    str_add(out, s + plain, n - plain);
    str_add(out, "\"", 1);
}

void json_add_text(struct str *out, const char *s) { json_add_str(out, s, strlen(s)); }

void json_add_num(struct str *out, double v, int decimals)
{
    str_addf(out, "%.*f", decimals, isfinite(v) ? v : 0.0);
}

void json_add_logprob(struct str *out, float v)
{
    str_addf(out, "%.9g", isfinite(v) ? (double)v : -9999.0);
}

/* As %u writes it, but a few times faster: it is in the way of every token. */
static void add_uint(struct str *out, uint32_t v)
{
    char digits[10];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    str_add(out, digits + at, sizeof(digits) - at);
}

void json_add_ids(struct str *out, const uint32_t *id, uint32_t n)
{
    str_add(out, "[", 1);
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            str_add(out, ",", 1);
        add_uint(out, id[i]);
    }
    str_add(out, "]", 1);
}
