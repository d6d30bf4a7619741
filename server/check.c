/* [01 http] header checks. */
#include "server/check.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADER_BYTES = 16384, LENGTH_DIGITS = 18 };

struct seen {
    int n_hosts, n_lengths, n_codings;
    bool chunked, expects_other;
    uint64_t length;
    const char *fault; /* the first one found */
};

static void see_length(struct seen *seen, const char *v, size_t n)
{
    seen->n_lengths++;
    if (n == 0 || n > LENGTH_DIGITS || strspn(v, "0123456789") != n)
        seen->fault = "Content-Length must be a number of at most 18 digits";
    else
        seen->length = strtoull(v, NULL, 10);
}

static enum MHD_Result see(void *cls, enum MHD_ValueKind kind, const char *k, size_t nk,
                           const char *v, size_t nv)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz";
    struct seen *seen = cls;
    (void)kind;
    if (nk == 0 || strspn(k, token) != nk)
        seen->fault = "a header name has a character that is not allowed";
    for (size_t i = 0; i < nv; i++) {
        unsigned char c = (unsigned char)v[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            seen->fault = "a header value has a control character";
    }
    if (!strcasecmp(k, "Host")) {
        seen->n_hosts++;
    } else if (!strcasecmp(k, "Content-Length")) {
        see_length(seen, v ? v : "", nv);
    } else if (!strcasecmp(k, "Transfer-Encoding")) {
        seen->n_codings++;
        seen->chunked = v && !strcasecmp(v, "chunked");
    } else if (!strcasecmp(k, "Expect")) {
        seen->expects_other = !v || strcasecmp(v, "100-continue") != 0;
    }
    return MHD_YES;
}

/* Why the request cannot be read with certainty, or NULL. */
static const char *fault_of(const struct seen *seen, bool http11, bool bad_uri)
{
    if (seen->fault)
        return seen->fault;
    if (bad_uri)
        return "the path has %00";
    if (seen->n_hosts > 1 || (http11 && seen->n_hosts != 1))
        return "a request has exactly one Host header";
    if (seen->n_lengths > 1)
        return "more than one Content-Length";
    if (seen->n_codings > 1)
        return "more than one Transfer-Encoding";
    if (seen->n_codings && seen->n_lengths)
        return "Content-Length and Transfer-Encoding exclude each other";
    if (seen->n_codings && !http11)
        return "Transfer-Encoding needs HTTP/1.1";
    return NULL;
}

int check_header(struct exchange *x, const char *version, uint64_t *length, struct error *err)
{
    struct seen seen = {0};
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, see, &seen);
    const char *fault = fault_of(&seen, strcmp(version, "HTTP/1.0") != 0, x->conn->bad_uri);
    *length = seen.length;
    x->has_body = seen.n_codings > 0 || seen.length > 0;
    if (fault)
        return error_set(err, ERR_INVALID, "%s", fault);
    if (size && size->header_size > HEADER_BYTES)
        return error_set(err, ERR_HEADERS,
                         "the request's header has %zu bytes, at most %d are taken",
                         size->header_size, HEADER_BYTES);
    if (seen.n_codings && !seen.chunked)
        return error_set(err, ERR_NO_CODING, "the only Transfer-Encoding taken is chunked");
    if (seen.expects_other)
        return error_set(err, ERR_EXPECT, "the only expectation taken is 100-continue");
    return 0;
}

bool check_name(const char *s, size_t n, size_t max, const char *more)
{
    if (n == 0 || n > max)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && (c == '\0' || !strchr(more, c)))
            return false;
    }
    return true;
}
