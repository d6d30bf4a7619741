/* [base] UTF-8 by the table of well-formed sequences (Unicode 15, table 3-7). */
#include "core/base/utf8.h"

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *b = (const unsigned char *)s;
    unsigned char lo = 0x80, hi = 0xBF; /* bounds of the second byte */
    int len;
    if (b[0] < 0x80) {
        *cp = b[0];
        return 1;
    }
    if (b[0] >= 0xC2 && b[0] <= 0xDF) {
        len = 2;
        *cp = b[0] & 0x1Fu;
    } else if (b[0] >= 0xE0 && b[0] <= 0xEF) {
        len = 3;
        *cp = b[0] & 0x0Fu;
        lo = b[0] == 0xE0 ? 0xA0 : 0x80;
        hi = b[0] == 0xED ? 0x9F : 0xBF;
    } else if (b[0] >= 0xF0 && b[0] <= 0xF4) {
        len = 4;
        *cp = b[0] & 0x07u;
        lo = b[0] == 0xF0 ? 0x90 : 0x80;
        hi = b[0] == 0xF4 ? 0x8F : 0xBF;
    } else {
        return -1;
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n)
            return 0;
        if (b[i] < lo || b[i] > hi)
            return -1;
        *cp = *cp << 6 | (b[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    return len;
}

int utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &cp);
        if (len <= 0)
            return false;
        i += (size_t)len;
    }
    return true;
}

size_t utf8_whole(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        if (((unsigned char)s[n - back] & 0xC0) == 0x80)
            continue;
        return utf8_decode(s + n - back, back, &cp) == 0 ? n - back : n;
    }
    return n;
}
