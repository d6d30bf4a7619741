/* [04 tokenizer] byte-level BPE (GPT-2 and after): text is cut into words, every byte of a word
 * is a token, and pairs of neighbours merge in the order in which training found them.
 *
 * In the file a byte is written as a printable character: those that are printable in Latin-1 as
 * themselves, the other 68 as U+0100 and up, in order ("Ġ" is the space). */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/pretok.h"
#include "core/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { N_LETTERS = 256 + 68 };

struct pair {
    uint32_t left, right; /* ids; left == VOCAB_NONE: a free slot */
    uint32_t rank, merged;
};

struct bpe {
    struct pretok pretok;
    uint32_t byte_id[256];     /* token of a single byte, or VOCAB_NONE */
    int16_t letter[N_LETTERS]; /* code point -> byte, or -1 */
    struct pair *pairs;        /* [n_slots] hash of (left, right) */
    uint32_t n_slots;          /* a power of two */
};

static void fill_letters(struct bpe *b, const struct vocab *v)
{
    char text[4];
    uint32_t next = 256;
    memset(b->letter, 0xFF, sizeof(b->letter)); /* -1 */
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        uint32_t cp = printable ? byte : next++;
        b->letter[cp] = (int16_t)byte;
        b->byte_id[byte] = vocab_find(v, text, (size_t)utf8_encode(cp, text));
    }
}

static struct pair *find_pair(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    uint32_t i = (uint32_t)(h >> 32) & (b->n_slots - 1);
    while (b->pairs[i].left != VOCAB_NONE &&
           (b->pairs[i].left != left || b->pairs[i].right != right))
        i = (i + 1) & (b->n_slots - 1);
    return &b->pairs[i];
}

/* One line "left right" of the merges. Of equal lines the first counts. */
static int read_merge(struct bpe *b, const struct vocab *v, const struct meta *m, uint32_t rank,
                      struct str *both, struct error *err)
{
    const char *s;
    size_t n, cut = 1;
    meta_item_str(m, rank, &s, &n);
    while (cut < n && s[cut] != ' ')
        cut++;
    if (cut + 1 >= n)
        return error_set(err, ERR_FORMAT,
                         "%s: line %u is \"%.*s\", wanted are two texts and a space", m->key, rank,
                         n < 64 ? (int)n : 64, s);
    str_clear(both);
    str_add(both, s, cut);
    str_add(both, s + cut + 1, n - cut - 1);
    if (both->failed)
        return error_set(err, ERR_NO_MEMORY, "no memory for %s", m->key);
    struct pair p = {.rank = rank,
                     .left = vocab_find(v, s, cut),
                     .right = vocab_find(v, s + cut + 1, n - cut - 1),
                     .merged = vocab_find(v, both->s, both->n)};
    if (p.left == VOCAB_NONE || p.right == VOCAB_NONE || p.merged == VOCAB_NONE)
        return error_set(err, ERR_FORMAT, "%s: line %u, \"%.*s\": %s is no token", m->key, rank,
                         n < 64 ? (int)n : 64, s,
                         p.left == VOCAB_NONE    ? "the left text"
                         : p.right == VOCAB_NONE ? "the right text"
                                                 : "what they merge to");
    struct pair *slot = find_pair(b, p.left, p.right);
    if (slot->left == VOCAB_NONE)
        *slot = p;
    return 0;
}

static int read_merges(struct bpe *b, const struct checkpoint *c, const struct vocab *v,
                       struct error *err)
{
    const char *key = "tokenizer.ggml.merges";
    const struct meta *m = meta_find(c, key);
    struct str both = {0};
    int rc = 0;
    if (!m || m->type != META_ARRAY || (m->n_items && m->of != META_STRING))
        return error_set(err, ERR_FORMAT, "%s is %s", key,
                         m ? "not an array of strings" : "missing");
    if (m->n_items > INT32_MAX)
        return error_set(err, ERR_FORMAT, "%s has %llu items, allowed are %d", key,
                         (unsigned long long)m->n_items, INT32_MAX);
    for (b->n_slots = 16; b->n_slots / 2 < m->n_items;)
        b->n_slots *= 2;
    b->pairs = mem_new(b->n_slots, sizeof(*b->pairs));
    if (!b->pairs)
        return error_set(err, ERR_NO_MEMORY, "no memory for %s", key);
    memset(b->pairs, 0xFF, (size_t)b->n_slots * sizeof(*b->pairs)); /* VOCAB_NONE */
    for (uint32_t i = 0; i < m->n_items && !rc; i++)
        rc = read_merge(b, v, m, i, &both, err);
    str_free(&both);
    return rc;
}

static void bpe_close(void *state)
{
    struct bpe *b = state;
    if (!b)
        return;
    pretok_close(&b->pretok);
    free(b->pairs);
    free(b);
}

static void *bpe_open(const struct checkpoint *c, const struct vocab *v, char *variant,
                      bool *add_bos, struct error *err)
{
    const char *pre = NULL;
    size_t n_pre = 0;
    bool prefix;
    struct bpe *b = mem_new(1, sizeof(*b));
    if (!b) {
        error_set(err, ERR_NO_MEMORY, "no memory for the tokenizer");
        return NULL;
    }
    meta_str(c, "tokenizer.ggml.pre", &pre, &n_pre);
    if (pretok_open(&b->pretok, pre, n_pre, err) < 0 || read_merges(b, c, v, err) < 0 ||
        meta_bool_or(c, "tokenizer.ggml.add_space_prefix", false, &prefix, err) < 0) {
        bpe_close(b);
        return NULL;
    }
    if (prefix)
        log_line(LOG_WARN, "tokenizer.ggml.add_space_prefix does not apply to byte-level BPE",
                 NULL);
    fill_letters(b, v);
    strncpy(variant, b->pretok.name, 63);
    *add_bos = b->pretok.add_bos;
    return b;
}

static uint32_t pair_rank(const void *arg, const struct merge *m, uint32_t left, uint32_t right,
                          uint32_t *id)
{
    const struct bpe *b = arg;
    if (m->symbol[left].id == MERGE_NONE || m->symbol[right].id == MERGE_NONE)
        return MERGE_NONE;
    const struct pair *p = find_pair(b, m->symbol[left].id, m->symbol[right].id);
    *id = p->merged;
    return p->left == VOCAB_NONE ? MERGE_NONE : p->rank;
}

/* The token of a whole word in its written form, for vocabularies that look there first. */
static uint32_t whole_word(const struct bpe *b, const struct vocab *v, const char *s, size_t n,
                           struct str *written)
{
    str_clear(written);
    if (n > v->longest)
        return VOCAB_NONE;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = b->byte_id[(unsigned char)s[i]], len;
        if (id == VOCAB_NONE)
            return VOCAB_NONE;
        const char *letter = vocab_text(v, id, &len);
        str_add(written, letter, len);
    }
    return written->failed ? VOCAB_NONE : vocab_find(v, written->s, written->n);
}

static int encode_word(const struct bpe *b, const struct vocab *v, struct fragment word,
                       struct scratch *scratch, struct ids *out, struct error *err)
{
    struct merge *m = &scratch->merge;
    uint32_t n = (uint32_t)word.n, whole = VOCAB_NONE;
    if (b->pretok.whole_words)
        whole = whole_word(b, v, word.s, n, &scratch->str);
    if (whole != VOCAB_NONE)
        return ids_add(out, whole, err);
    if (merge_reserve(m, n, err) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        m->symbol[i] = (struct merge_symbol){.prev = i ? i - 1 : MERGE_NONE,
                                             .next = i + 1,
                                             .id = b->byte_id[(unsigned char)word.s[i]]};
    if (merge_run(m, n, pair_rank, b, err) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i = m->symbol[i].next) {
        struct fragment byte = {word.s + i, 1, word.at + i};
        uint32_t id = m->symbol[i].id;
        if ((id != MERGE_NONE ? ids_add(out, id, err) : tokenizer_unknown(v, byte, out, err)) < 0)
            return -1;
    }
    return 0;
}

static int bpe_encode(const void *state, const struct vocab *v, struct fragment f,
                      struct scratch *scratch, struct ids *out, struct error *err)
{
    const struct bpe *b = state;
    struct pretok_walk walk;
    size_t begin, end;
    int more = pretok_begin(&walk, &b->pretok, f.s, f.n, err) < 0 ? -1 : 1;
    while (more == 1 && (more = pretok_next(&walk, &begin, &end, err)) == 1) {
        struct fragment word = {f.s + begin, end - begin, f.at + begin};
        if (encode_word(b, v, word, scratch, out, err) < 0)
            more = -1;
    }
    pretok_end(&walk);
    return more;
}

/* A text that is not written in the alphabet of bytes stands for itself. */
static void bpe_bytes(const void *state, const struct vocab *v, uint32_t id, bool first,
                      struct str *out)
{
    const struct bpe *b = state;
    uint32_t n, cp, at = 0;
    const char *s = vocab_text(v, id, &n);
    size_t before = out->n;
    (void)first;
    while (at < n) {
        int len = utf8_decode(s + at, n - at, &cp);
        if (len <= 0 || cp >= N_LETTERS || b->letter[cp] < 0)
            break;
        char byte = (char)b->letter[cp];
        str_add(out, &byte, 1);
        at += (uint32_t)len;
    }
    if (at < n) {
        out->n = before;
        str_add(out, s, n);
    }
}

const struct tokenizer tokenizer_bpe = {
    .gguf = "gpt2",
    .title = "byte-level BPE",
    .open = bpe_open,
    .close = bpe_close,
    .encode = bpe_encode,
    .bytes = bpe_bytes,
};
