/* [base] stdin, whole and checked. */
#include "server/input.h"

#include "core/base/utf8.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int input_read(struct str *text, size_t limit, struct error *err)
{
    char buf[65536];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, ERR_IO, "cannot read stdin: %s", strerror(errno));
        if (n == 0)
            break;
        if ((size_t)n > limit - text->n)
            return error_set(err, ERR_IO, "stdin has more than the %zu bytes allowed", limit);
        str_add(text, buf, (size_t)n);
    }
    return text->failed ? error_set(err, ERR_NO_MEMORY, "no memory for the text of stdin") : 0;
}

int input_check_utf8(const char *what, const char *s, size_t n, struct error *err)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        int k = utf8_decode(s + i, n - i, &cp);
        if (k <= 0)
            return error_set(err, ERR_INVALID, "%s is not valid UTF-8: byte 0x%02x at offset %zu%s",
                             what, (unsigned char)s[i], i,
                             k == 0 ? " begins a character that the end cuts off" : "");
        i += (size_t)k;
    }
    return 0;
}
