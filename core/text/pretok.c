/* [04 tokenizer] words for byte-level BPE, by PCRE2 patterns compiled to machine code. */
#include "core/text/pretok.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum pattern {
#define PATTERN(id, regex) PATTERN_##id,
#define PRETOK(...)
#include "core/text/pretok.def"
#undef PATTERN
#undef PRETOK
    PATTERN_COUNT
};

static const char *const patterns[PATTERN_COUNT] = {
#define PATTERN(id, regex) [PATTERN_##id] = (regex),
#define PRETOK(...)
#include "core/text/pretok.def"
#undef PATTERN
#undef PRETOK
};

static const struct {
    const char *name;
    enum pattern pattern;
    bool whole_words, add_bos;
} rows[] = {
#define PATTERN(...)
#define PRETOK(name, id, whole_words, add_bos) {name, PATTERN_##id, whole_words, add_bos},
#include "core/text/pretok.def"
#undef PATTERN
#undef PRETOK
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static int compile(struct pretok *p, const char *regex, struct error *err)
{
    int code, rc;
    PCRE2_SIZE at;
    char why[128];
    p->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, NULL);
    if (!p->code) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
        return error_set(err, ERR_INTERNAL, "the pattern of pre-tokenizer %s, at %zu: %s", p->name,
                         (size_t)at, why);
    }
    rc = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    if (rc < 0) { /* the same words, more slowly */
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        log_line(LOG_WARN, "PCRE2 cannot compile to machine code here", "code=%d", rc);
    }
    return 0;
}

static int refuse(const char *name, size_t n_name, struct error *err)
{
    struct str known = {0};
    for (int i = 0; i < N_ROWS; i++)
        str_addf(&known, "%s%s", i ? ", " : "", rows[i].name);
    error_set(err, ERR_UNSUPPORTED, "tokenizer.ggml.pre is \"%.*s\", known are %s",
              n_name < 64 ? (int)n_name : 64, name, str_text(&known));
    str_free(&known);
    return -1;
}

int pretok_open(struct pretok *p, const char *name, size_t n_name, struct error *err)
{
    memset(p, 0, sizeof(*p));
    if (!name) {
        name = "gpt-2";
        n_name = strlen(name);
        log_line(LOG_WARN, "the file has no tokenizer.ggml.pre, text is cut as GPT-2 does", NULL);
    }
    for (int i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == n_name && memcmp(rows[i].name, name, n_name) == 0) {
            p->name = rows[i].name;
            p->whole_words = rows[i].whole_words;
            p->add_bos = rows[i].add_bos;
            return compile(p, patterns[rows[i].pattern], err);
        }
    return refuse(name, n_name, err);
}

void pretok_close(struct pretok *p)
{
    pcre2_code_free(p->code);
    memset(p, 0, sizeof(*p));
}

int pretok_begin(struct pretok_walk *w, const struct pretok *p, const char *s, size_t n,
                 struct error *err)
{
    *w = (struct pretok_walk){.p = p, .s = s, .n = n};
    w->match = pcre2_match_data_create(1, NULL);
    return w->match ? 0 : error_set(err, ERR_NO_MEMORY, "no memory to cut text into words");
}

int pretok_next(struct pretok_walk *w, size_t *begin, size_t *end, struct error *err)
{
    uint32_t cp;
    char why[128];
    if (w->at == w->n)
        return 0;
    /* The text was checked before: checking it for each word would make long texts quadratic. */
    int rc =
        pcre2_match(w->p->code, (PCRE2_SPTR)w->s, w->n, w->at, PCRE2_NO_UTF_CHECK, w->match, NULL);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        return error_set(err, ERR_INTERNAL, "pre-tokenizer %s failed at byte %zu: %s", w->p->name,
                         w->at, why);
    }
    *begin = w->at;
    *end = rc < 0 ? w->at : pcre2_get_ovector_pointer(w->match)[1];
    if (*end <= w->at) /* the patterns match any character; were one not to, it is its own word */
        *end = w->at + (size_t)utf8_decode(w->s + w->at, w->n - w->at, &cp);
    w->at = *end;
    return 1;
}

void pretok_end(struct pretok_walk *w)
{
    pcre2_match_data_free(w->match);
    w->match = NULL;
}
