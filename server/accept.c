/* [02 api] Accept, TE and Content-Type. */
#include "server/accept.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *type;
    enum stream_format format;
} types[] = {
    {"text/plain", FORMAT_TEXT},
    {"application/x-ndjson", FORMAT_NDJSON},
    {"application/ndjson", FORMAT_NDJSON},
    {"application/jsonl", FORMAT_NDJSON},
    {"text/event-stream", FORMAT_SSE},
    {"application/json", FORMAT_DOCUMENT},
    {"application/*", FORMAT_DOCUMENT},
    {"text/*", FORMAT_TEXT},
    {"*/*", FORMAT_TEXT},
};

struct item { /* one media range of a list: type [n], its parameters [n_rest] */
    const char *type, *rest;
    size_t n, n_rest;
};

/* The next item of a comma-separated list, or false at its end. */
static bool next_item(const char **p, struct item *item)
{
    *p += strspn(*p, ", \t");
    if (!**p)
        return false;
    size_t whole = strcspn(*p, ",");
    item->type = *p;
    item->n = strcspn(*p, ",; \t");
    item->rest = *p + item->n;
    item->n_rest = whole > item->n ? whole - item->n : 0;
    *p += whole;
    return true;
}

/* The weight q of an item, 1 where it has none. */
static double weight(const struct item *item)
{
    for (size_t i = 0; i + 3 < item->n_rest + 1; i++)
        if (item->rest[i] == ';') {
            size_t j = i + 1 + strspn(item->rest + i + 1, " \t");
            if (j + 2 < item->n_rest && strncasecmp(item->rest + j, "q=", 2) == 0)
                return strtod(item->rest + j + 2, NULL);
        }
    return 1;
}

static bool is(const struct item *item, const char *word)
{
    return strlen(word) == item->n && strncasecmp(item->type, word, item->n) == 0;
}

enum stream_format accept_format(const char *header)
{
    enum stream_format best = FORMAT_TEXT;
    double best_q = 0;
    struct item item;
    for (const char *p = header ? header : ""; next_item(&p, &item);) {
        double q = weight(&item);
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
            if (is(&item, types[i].type) && q > best_q) {
                best = types[i].format;
                best_q = q;
            }
    }
    return best;
}

bool accept_trailers(const char *header)
{
    struct item item;
    for (const char *p = header ? header : ""; next_item(&p, &item);)
        if (is(&item, "trailers"))
            return true;
    return false;
}

bool accept_body_type(const char *header)
{
    struct item item;
    if (!header || !next_item(&header, &item))
        return true;
    return is(&item, "application/json") || is(&item, "application/x-www-form-urlencoded");
}
