/* [04 tokenizer] the vocabulary: token texts, a hash of the ordinary ones, a sorted list of
 * marks. */
#include "core/text/vocab.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char key_tokens[] = "tokenizer.ggml.tokens";

/* FNV-1a, folded so that the low bits depend on all. */
static uint32_t hash(const char *s, size_t n)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return (uint32_t)(h ^ h >> 32);
}

static bool is_mark(enum token_type type)
{
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER;
}

/* The slot where s[0..n) is, or the free one where it would be. */
static uint32_t find_slot(const struct vocab *v, const char *s, size_t n)
{
    uint32_t i = hash(s, n) & (v->n_slots - 1), len;
    while (v->slot[i] != VOCAB_NONE) {
        const char *text = vocab_text(v, v->slot[i], &len);
        if (len == n && memcmp(text, s, n) == 0)
            break;
        i = (i + 1) & (v->n_slots - 1);
    }
    return i;
}

uint32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    return n && n <= v->longest ? v->slot[find_slot(v, s, n)] : VOCAB_NONE;
}

/* An array key that must have one item per token; *m is NULL where it is absent. */
static int array_of_tokens(const struct vocab *v, const struct checkpoint *c, const char *key,
                           const struct meta **m, struct error *err)
{
    *m = meta_find(c, key);
    if (!*m)
        return 0;
    if ((*m)->type != META_ARRAY)
        return error_set(err, ERR_FORMAT, "%s is not an array", key);
    if ((*m)->n_items != v->n)
        return error_set(err, ERR_FORMAT, "%s has %llu items, %s has %u", key,
                         (unsigned long long)(*m)->n_items, key_tokens, v->n);
    return 0;
}

static int read_texts(struct vocab *v, const struct checkpoint *c, struct error *err)
{
    const struct meta *m = meta_find(c, key_tokens);
    const char *s;
    size_t n;
    uint64_t total = 0;
    if (!m || m->type != META_ARRAY || m->of != META_STRING)
        return error_set(err, ERR_FORMAT, "%s is %s", key_tokens,
                         m ? "not an array of strings" : "missing");
    if (m->n_items == 0 || m->n_items > INT32_MAX)
        return error_set(err, ERR_FORMAT, "%s has %llu items, wanted 1 to %d", key_tokens,
                         (unsigned long long)m->n_items, INT32_MAX);
    v->n = (uint32_t)m->n_items;
    for (uint32_t i = 0; i < v->n; i++) {
        meta_item_str(m, i, &s, &n);
        total += n;
        if (total > UINT32_MAX - 1)
            return error_set(err, ERR_FORMAT, "%s has more than %u bytes", key_tokens, UINT32_MAX);
    }
    v->bytes = mem_new(total, 1);
    v->offset = mem_new((size_t)v->n + 1, sizeof(*v->offset));
    if (!v->bytes || !v->offset)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        meta_item_str(m, i, &s, &n);
        if (n)
            memcpy(v->bytes + v->offset[i], s, n);
        v->offset[i + 1] = v->offset[i] + (uint32_t)n;
    }
    return 0;
}

/* Tokens that the keys name are no text, whatever the types say, or where there are none; but an
 * ordinary token may well end an answer. */
static int types_by_keys(struct vocab *v, const struct checkpoint *c, bool has_types,
                         struct error *err)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.padding_token_id"};
    uint32_t id;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (vocab_key_id(v, c, keys[i], &id, err) < 0)
            return -1;
        if (id != VOCAB_NONE && (!has_types || v->type[id] == TOKEN_USER))
            v->type[id] = TOKEN_CONTROL;
    }
    return 0;
}

static int read_types(struct vocab *v, const struct checkpoint *c, struct error *err)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct meta *m;
    if (array_of_tokens(v, c, key, &m, err) < 0)
        return -1;
    if (m && m->of != META_INT && m->of != META_UINT)
        return error_set(err, ERR_FORMAT, "%s is not an array of integers", key);
    v->type = mem_new(v->n, sizeof(*v->type));
    if (!v->type)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t type = m ? meta_item_int(m, i) : TOKEN_NORMAL;
        if (type < 0 || type >= TOKEN_TYPES)
            return error_set(err, ERR_FORMAT, "%s: token %u has type %lld, wanted 0 to %d", key, i,
                             (long long)type, TOKEN_TYPES - 1);
        v->type[i] = (uint8_t)(type ? type : TOKEN_NORMAL);
    }
    return types_by_keys(v, c, m != NULL, err);
}

static int read_scores(struct vocab *v, const struct checkpoint *c, struct error *err)
{
    const char *key = "tokenizer.ggml.scores";
    const struct meta *m;
    if (array_of_tokens(v, c, key, &m, err) < 0)
        return -1;
    if (!m)
        return 0;
    if (m->of != META_FLOAT)
        return error_set(err, ERR_FORMAT, "%s is not an array of floats", key);
    v->score = mem_new(v->n, sizeof(*v->score));
    if (!v->score)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        v->score[i] = (float)meta_item_float(m, i);
        if (isnan(v->score[i]))
            return error_set(err, ERR_FORMAT, "%s: token %u has no number", key, i);
    }
    return 0;
}

int vocab_key_id(const struct vocab *v, const struct checkpoint *c, const char *key, uint32_t *id,
                 struct error *err)
{
    uint64_t value;
    *id = VOCAB_NONE;
    if (meta_uint_or(c, key, 0, UINT32_MAX, VOCAB_NONE, &value, err) < 0)
        return -1;
    if (value == VOCAB_NONE) /* also how files write "none" */
        return 0;
    if (value >= v->n)
        return error_set(err, ERR_FORMAT, "%s is %llu, the vocabulary has %u tokens", key,
                         (unsigned long long)value, v->n);
    *id = (uint32_t)value;
    return 0;
}

/* Ordinary texts into the hash: normal tokens first, so that they win over user-defined ones. */
static int hash_texts(struct vocab *v, struct error *err)
{
    uint32_t len;
    v->n_slots = 16;
    while (v->n_slots / 2 < v->n)
        v->n_slots *= 2;
    v->slot = mem_new(v->n_slots, sizeof(*v->slot));
    if (!v->slot)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", v->n);
    memset(v->slot, 0xFF, (size_t)v->n_slots * sizeof(*v->slot)); /* VOCAB_NONE */
    for (int user = 0; user < 2; user++)
        for (uint32_t id = 0; id < v->n; id++) {
            const char *text = vocab_text(v, id, &len);
            if (v->type[id] != (user ? TOKEN_USER : TOKEN_NORMAL) || !len)
                continue;
            uint32_t i = find_slot(v, text, len);
            if (v->slot[i] == VOCAB_NONE)
                v->slot[i] = id;
            v->longest = len > v->longest ? len : v->longest;
        }
    return 0;
}

static int compare_marks(const void *a, const void *b, void *arg)
{
    const struct vocab *v = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b, nx, ny;
    const char *sx = vocab_text(v, x, &nx), *sy = vocab_text(v, y, &ny);
    int order = memcmp(sx, sy, nx < ny ? nx : ny);
    if (order)
        return order;
    return nx != ny ? (nx < ny ? -1 : 1) : (x < y ? -1 : x > y);
}

static int list_marks(struct vocab *v, struct error *err)
{
    uint32_t len, at = 0;
    for (uint32_t id = 0; id < v->n; id++)
        v->n_marks += is_mark(v->type[id]) && v->offset[id + 1] > v->offset[id];
    v->mark = mem_new(v->n_marks, sizeof(*v->mark));
    if (!v->mark)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", v->n);
    for (uint32_t id = 0; id < v->n; id++)
        if (is_mark(v->type[id]) && v->offset[id + 1] > v->offset[id])
            v->mark[at++] = id;
    qsort_r(v->mark, v->n_marks, sizeof(*v->mark), compare_marks, v);
    at = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        v->mark_from[byte] = at;
        while (at < v->n_marks && (unsigned char)*vocab_text(v, v->mark[at], &len) == byte)
            at++;
    }
    v->mark_from[256] = at;
    return 0;
}

int vocab_open(struct vocab *v, const struct checkpoint *c, struct error *err)
{
    memset(v, 0, sizeof(*v));
    if (read_texts(v, c, err) < 0 || read_types(v, c, err) < 0 || read_scores(v, c, err) < 0 ||
        vocab_key_id(v, c, "tokenizer.ggml.unknown_token_id", &v->unknown, err) < 0)
        return -1;
    return hash_texts(v, err) < 0 || list_marks(v, err) < 0 ? -1 : 0;
}

void vocab_close(struct vocab *v)
{
    free(v->bytes);
    free(v->offset);
    free(v->type);
    free(v->score);
    free(v->slot);
    free(v->mark);
    memset(v, 0, sizeof(*v));
}

/* Narrows the sorted marks [*lo, *hi), which agree in their first `depth` bytes, to those whose
 * next byte is `byte`. Marks that end at depth come first. */
static void narrow(const struct vocab *v, uint32_t *lo, uint32_t *hi, uint32_t depth,
                   unsigned char byte)
{
    uint32_t bound[2], len;
    for (int after = 0; after < 2; after++) {
        uint32_t a = *lo, b = *hi;
        while (a < b) {
            uint32_t mid = a + (b - a) / 2;
            const char *s = vocab_text(v, v->mark[mid], &len);
            int at = len == depth ? -1 : (unsigned char)s[depth];
            if (after ? at <= byte : at < byte)
                a = mid + 1;
            else
                b = mid;
        }
        bound[after] = a;
    }
    *lo = bound[0];
    *hi = bound[1];
}

uint32_t vocab_mark_at(const struct vocab *v, const char *s, size_t n, bool special, size_t *len)
{
    uint32_t lo = v->mark_from[(unsigned char)s[0]], hi = v->mark_from[(unsigned char)s[0] + 1];
    uint32_t best = VOCAB_NONE, n_text;
    for (uint32_t depth = 1; lo < hi; depth++) {
        for (uint32_t i = lo; i < hi; i++) { /* marks that end here */
            vocab_text(v, v->mark[i], &n_text);
            if (n_text != depth)
                break;
            if (special || v->type[v->mark[i]] == TOKEN_USER) {
                best = v->mark[i];
                *len = depth;
                break;
            }
        }
        if (depth == n)
            break;
        narrow(v, &lo, &hi, depth, (unsigned char)s[depth]);
    }
    return best;
}

uint32_t vocab_find_control(const struct vocab *v, const char *s, size_t n)
{
    uint32_t len;
    for (uint32_t i = 0; i < v->n_marks; i++) {
        const char *text = vocab_text(v, v->mark[i], &len);
        if (v->type[v->mark[i]] == TOKEN_CONTROL && len == n && memcmp(text, s, n) == 0)
            return v->mark[i];
    }
    return VOCAB_NONE;
}
