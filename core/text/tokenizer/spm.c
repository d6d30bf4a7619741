/* [04 tokenizer] SentencePiece BPE (Llama, Mistral): no words; the characters of a whole text are
 * symbols, and the two neighbours whose joint text is the token with the highest score merge (of
 * equal scores the first). A space is written U+2581, and one is put in front of the text; what is no
 * token becomes the byte tokens "<0x00>" to "<0xFF>". */
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char space[] = "\xE2\x96\x81"; /* U+2581 */
enum { SPACE_BYTES = sizeof(space) - 1 };

struct spm {
    uint32_t byte_id[256]; /* or VOCAB_NONE */
    bool space_prefix;
};

/* "<0x0A>" -> 10; -1: no byte token. */
static int byte_of(const struct vocab *v, uint32_t id)
{
    uint32_t n;
    char digits[3] = "", *end;
    const char *s = vocab_text(v, id, &n);
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    memcpy(digits, s + 3, 2);
    long byte = strtol(digits, &end, 16);
    return *end || byte < 0 || digits[0] == '+' || digits[0] == '-' || digits[0] == ' ' ? -1
                                                                                        : (int)byte;
}

static int find_bytes(struct spm *p, const struct vocab *v, struct error *err)
{
    memset(p->byte_id, 0xFF, sizeof(p->byte_id)); /* VOCAB_NONE */
    for (uint32_t id = v->n; id-- > 0;) {
        if (v->type[id] != TOKEN_BYTE)
            continue;
        int byte = byte_of(v, id);
        if (byte < 0)
            return error_set(err, ERR_FORMAT,
                             "tokenizer.ggml.tokens: token %u is a byte, wanted is a text <0xNN>",
                             id);
        p->byte_id[byte] = id;
    }
    return 0;
}

static void *spm_open(const struct checkpoint *c, const struct vocab *v, char *variant,
                      bool *add_bos, struct error *err)
{
    struct spm *p = mem_new(1, sizeof(*p));
    (void)variant;
    (void)add_bos;
    if (!p) {
        error_set(err, ERR_NO_MEMORY, "no memory for the tokenizer");
        return NULL;
    }
    if (!v->score)
        error_set(err, ERR_FORMAT, "tokenizer.ggml.scores is missing");
    else if (meta_bool_or(c, "tokenizer.ggml.add_space_prefix", true, &p->space_prefix, err) == 0 &&
             find_bytes(p, v, err) == 0)
        return p;
    free(p);
    return NULL;
}

/* Scores as ranks: the higher the score, the lower the rank; never MERGE_NONE. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof(bits));
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

struct row { /* what the symbols are cut from */
    const struct vocab *v;
    const char *s;
};

static uint32_t pair_rank(const void *arg, const struct merge *m, uint32_t left, uint32_t right,
                          uint32_t *id)
{
    const struct row *r = arg;
    *id = vocab_find(r->v, r->s + left, m->symbol[right].next - left);
    return *id == VOCAB_NONE ? MERGE_NONE : rank_of(r->v->score[*id]);
}

/* s with its spaces written as they are in tokens. */
static int write_spaces(const struct spm *p, const char *s, size_t n, struct str *out,
                        struct error *err)
{
    str_clear(out);
    if (p->space_prefix)
        str_add(out, space, SPACE_BYTES);
    for (size_t i = 0; i < n;) {
        size_t run = 0;
        while (i + run < n && s[i + run] != ' ')
            run++;
        str_add(out, s + i, run);
        i += run;
        if (i < n) {
            str_add(out, space, SPACE_BYTES);
            i++;
        }
    }
    if (out->failed || out->n >= UINT32_MAX)
        return error_set(err, ERR_NO_MEMORY, "no memory to tokenize %zu bytes", n);
    return 0;
}

/* A symbol that is no token: its bytes, or one unknown token for a run of such symbols. `again`: the
 * symbol before it was one. */
static int add_bytes(const struct spm *p, const struct vocab *v, struct fragment symbol, bool again,
                     struct ids *out, struct error *err)
{
    for (size_t i = 0; i < symbol.n; i++)
        if (p->byte_id[(unsigned char)symbol.s[i]] == VOCAB_NONE)
            return again ? 0 : tokenizer_unknown(v, symbol, out, err);
    for (size_t i = 0; i < symbol.n; i++)
        if (ids_add(out, p->byte_id[(unsigned char)symbol.s[i]], err) < 0)
            return -1;
    return 0;
}

/* Every character of s[0..n) is a symbol. */
static int cut_symbols(struct merge *m, const struct vocab *v, const char *s, uint32_t n,
                       struct error *err)
{
    uint32_t cp, prev = MERGE_NONE, step = 0;
    if (merge_reserve(m, n, err) < 0)
        return -1;
    for (uint32_t i = 0, next; i < n; prev = i, i = next) {
        if (merge_stopped(m, step++))
            return error_set(err, ERR_INTERNAL, "stopped");
        next = i + (uint32_t)utf8_decode(s + i, n - i, &cp);
        m->symbol[i] =
            (struct merge_symbol){.prev = prev, .next = next, .id = vocab_find(v, s + i, next - i)};
    }
    return 0;
}

static int spm_encode(const void *state, const struct vocab *v, struct fragment f,
                      struct scratch *scratch, struct ids *out, struct error *err)
{
    const struct spm *p = state;
    struct merge *m = &scratch->merge;
    bool unknown = false;
    if (write_spaces(p, f.s, f.n, &scratch->str, err) < 0)
        return -1;
    struct row row = {.v = v, .s = scratch->str.s};
    uint32_t n = (uint32_t)scratch->str.n;
    if (cut_symbols(m, v, row.s, n, err) < 0 || merge_run(m, n, pair_rank, &row, err) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i = m->symbol[i].next) {
        struct fragment symbol = {row.s + i, m->symbol[i].next - i, f.at};
        uint32_t id = m->symbol[i].id, n_before = out->n;
        if ((id != MERGE_NONE ? ids_add(out, id, err)
                              : add_bytes(p, v, symbol, unknown, out, err)) < 0)
            return -1;
        unknown = out->n == n_before || (id == MERGE_NONE && out->id[out->n - 1] == v->unknown);
    }
    return 0;
}

static void spm_bytes(const void *state, const struct vocab *v, uint32_t id, bool first,
                      struct str *out)
{
    const struct spm *p = state;
    uint32_t n, at = 0;
    const char *s = vocab_text(v, id, &n);
    if (v->type[id] == TOKEN_BYTE) {
        char byte = (char)byte_of(v, id);
        str_add(out, &byte, 1);
        return;
    }
    if (first && p->space_prefix && n >= SPACE_BYTES && memcmp(s, space, SPACE_BYTES) == 0)
        at = SPACE_BYTES;
    while (at < n) {
        const char *found = memmem(s + at, n - at, space, SPACE_BYTES);
        uint32_t run = found ? (uint32_t)(found - (s + at)) : n - at;
        str_add(out, s + at, run);
        if (found)
            str_add(out, " ", 1);
        at += run + (found ? SPACE_BYTES : 0);
    }
}

const struct tokenizer tokenizer_spm = {
    .gguf = "llama",
    .title = "SentencePiece BPE",
    .add_bos = true,
    .open = spm_open,
    .close = free,
    .encode = spm_encode,
    .bytes = spm_bytes,
};
