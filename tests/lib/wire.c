/* [bench] how servers are asked, and how their answers are read: as little of HTTP and JSON as
 * there is in what they send, because the client runs on the processors that it measures. */
#include "tests/lib/wire.h"

#include "server/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const dialect_names[] = {"attend", "llama", "openai"};

int dialect_find(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(dialect_names[i], name) == 0)
            return i;
    return -1;
}

/* G. Steele and others, "Fast splittable pseudorandom number generators" (2014). */
uint64_t wire_random(uint64_t seed, uint64_t n)
{
    uint64_t z = (seed + 1) * 0xD1342543DE82EF95U + (n + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* ---- asking ---- */

static void add_words(struct str *out, uint32_t n, uint64_t seed)
{
    static const char *const words[] = {
        "the",   "river", "a",    "small", "bird",  "house", "sings", "over", "green",
        "hill",  "under", "rain", "old",   "man",   "walks", "slow",  "home", "with",
        "bread", "and",   "milk", "from",  "town",  "where", "snow",  "lies", "deep",
        "until", "april", "when", "boats", "come",  "back",  "laden", "salt", "fish",
        "oil",   "cloth", "iron", "paper", "glass", "news",
    };
    str_add(out, "\"", 1);
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            str_add(out, " ", 1);
        str_adds(out, words[wire_random(seed, i) % (sizeof(words) / sizeof(words[0]))]);
    }
    str_add(out, "\"", 1);
}

static void add_ids(struct str *out, const struct question *q, uint64_t seed)
{
    for (uint32_t i = 0; i < q->n_ids; i++)
        str_addf(out, i ? ",%u" : "[%u", (uint32_t)(wire_random(seed, i) % q->n_vocab));
    str_add(out, "]", 1);
}

static void add_body(struct str *out, const struct question *q, uint64_t seed)
{
    static const char *const forms[] = {
        [DIALECT_ATTEND] = ",\"max_tokens\":%u,\"temperature\":%g,\"ignore_eos\":true}",
        [DIALECT_LLAMA] =
            ",\"n_predict\":%u,\"temperature\":%g,\"ignore_eos\":true,\"stream\":true}",
        [DIALECT_OPENAI] =
            ",\"max_tokens\":%u,\"temperature\":%g,\"ignore_eos\":true,\"stream\":true}",
    };
    str_add(out, "{", 1);
    if (q->dialect == DIALECT_OPENAI) {
        str_adds(out, "\"model\":");
        json_add_text(out, q->model);
        str_add(out, ",", 1);
    }
    str_adds(out, "\"prompt\":");
    if (q->n_prompts)
        json_add_text(out, q->prompt[seed % q->n_prompts]);
    else if (q->n_ids)
        add_ids(out, q, seed);
    else
        add_words(out, q->n_words, seed);
    char rest[128];
    int n = snprintf(rest, sizeof(rest), forms[q->dialect], q->n_tokens, q->temperature);
    str_add(out, rest, (size_t)n);
}

void question_write(const struct question *q, uint64_t seed, struct str *out)
{
    static const char *const paths[] = {"/generate", "/completion", "/v1/completions"};
    struct str body = {0};
    add_body(&body, q, seed);
    str_clear(out);
    str_addf(out,
             "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
             "Accept: %s\r\nContent-Length: %zu\r\n\r\n",
             paths[q->dialect], q->host,
             q->dialect == DIALECT_ATTEND ? "application/x-ndjson" : "text/event-stream", body.n);
    str_add(out, str_text(&body), body.n);
    out->failed |= body.failed;
    str_free(&body);
}

/* ---- the lines of a body ---- */

/* How many ids stand in "tokens":[...]; none where there is no such list. In a text, the quotes of
 * the name would be escaped. */
static uint32_t count_ids(const char *line)
{
    static const char name[] = "\"tokens\":[";
    const char *at = strstr(line, name);
    if (!at || at[sizeof(name) - 1] == ']')
        return 0;
    uint32_t n = 1;
    for (at += sizeof(name) - 1; *at && *at != ']'; at++)
        n += *at == ',';
    return n;
}

static void take_line(struct answer *a, const char *line)
{
    if (strncmp(line, "data: ", 6) == 0)
        line += 6;
    if (strncmp(line, "{\"error\"", 8) == 0 || strncmp(line, "error:", 6) == 0) {
        a->failed = true;
        return;
    }
    if (line[0] != '{')
        return;
    switch (a->dialect) {
    case DIALECT_ATTEND:
        if (strncmp(line, "{\"text\":", 8) == 0)
            a->n_fresh += count_ids(line);
        return;
    case DIALECT_LLAMA:
        if (!strstr(line, "\"stop\":true"))
            a->n_fresh += count_ids(line);
        return;
    case DIALECT_OPENAI:
        a->n_fresh += strstr(line, "\"text\":\"") && !strstr(line, "\"text\":\"\"");
    }
}

static void take_body(struct answer *a, const char *bytes, size_t n)
{
    for (const char *end; n && (end = memchr(bytes, '\n', n));) {
        size_t some = (size_t)(end - bytes);
        str_add(&a->line, bytes, some);
        take_line(a, str_text(&a->line));
        str_clear(&a->line);
        bytes += some + 1;
        n -= some + 1;
    }
    str_add(&a->line, bytes, n);
}

/* ---- HTTP ---- */

static void take_head_line(struct answer *a)
{
    const char *s = str_text(&a->line);
    if (a->status == 0) {
        if (sscanf(s, "HTTP/1.%*c %d", &a->status) != 1)
            a->failed = true;
    } else if (strncasecmp(s, "transfer-encoding: chunked", 26) == 0) {
        a->chunked = true;
    } else if (strncasecmp(s, "content-length:", 15) == 0) {
        a->has_length = true;
        a->left = strtoull(s + 15, NULL, 10);
    } else if (strncasecmp(s, "connection: close", 17) == 0) {
        a->close = true;
    } else if (s[0] == '\0') {
        a->failed |= a->status != 200;
        a->state = a->chunked                      ? ANSWER_SIZE
                   : a->has_length && a->left == 0 ? ANSWER_END
                                                   : ANSWER_BODY;
    }
}

/* Lines that are HTTP's: of the head, a chunk's size, what follows a chunk. Returns how many bytes of [n]
 * were taken. */
static size_t take_http_line(struct answer *a, const char *bytes, size_t n, struct str *line)
{
    const char *end = memchr(bytes, '\n', n);
    size_t some = end ? (size_t)(end - bytes) : n;
    str_add(line, bytes, some);
    if (!end)
        return n;
    if (line->n && line->s[line->n - 1] == '\r')
        line->s[--line->n] = '\0';
    if (a->state == ANSWER_HEAD) {
        take_head_line(a);
    } else if (a->state == ANSWER_AFTER_CHUNK) {
        a->state = a->left ? ANSWER_SIZE : ANSWER_END;
    } else {
        a->left = strtoull(str_text(line), NULL, 16);
        a->state = a->left ? ANSWER_CHUNK : ANSWER_AFTER_CHUNK;
    }
    str_clear(line);
    return some + 1;
}

static size_t take_some_body(struct answer *a, const char *bytes, size_t n)
{
    if (a->state == ANSWER_BODY && !a->has_length) {
        take_body(a, bytes, n);
        return n;
    }
    size_t some = a->left < n ? (size_t)a->left : n;
    take_body(a, bytes, some);
    a->left -= some;
    if (a->left)
        return some;
    a->left = 1; /* not the last chunk */
    a->state = a->state == ANSWER_CHUNK ? ANSWER_AFTER_CHUNK : ANSWER_END;
    return some;
}

void answer_take(struct answer *a, const char *bytes, size_t n)
{
    while (n && !a->failed && a->state != ANSWER_END) {
        bool body = a->state == ANSWER_BODY || a->state == ANSWER_CHUNK;
        struct str *line = a->state == ANSWER_HEAD ? &a->line : &a->http_line;
        size_t some = body ? take_some_body(a, bytes, n) : take_http_line(a, bytes, n, line);
        bytes += some;
        n -= some;
    }
    if (a->state == ANSWER_END && a->line.n) { /* a document's one line has no end */
        take_line(a, str_text(&a->line));
        str_clear(&a->line);
    }
}
