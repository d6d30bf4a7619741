/* [04 tokenizer] text -> ids and back: marks are found first, as they are written; what is between
 * them goes to the tokenizer of the model. */
#include "core/text/text.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/text_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tokenizer *const tokenizers[] = {
#define TOKENIZER(id) &tokenizer_##id,
#include "core/text/tokenizer.def"
#undef TOKENIZER
};

enum { N_TOKENIZERS = sizeof(tokenizers) / sizeof(tokenizers[0]), TEXT_BYTES_MAX = 1 << 30 };

int ids_add(struct ids *ids, uint32_t id, struct error *err)
{
    if (ids->stop && atomic_load_explicit(ids->stop, memory_order_relaxed))
        return error_set(err, ERR_INTERNAL, "stopped");
    if (ids->n == ids->cap) {
        uint32_t cap = ids->cap ? 2 * ids->cap : 64;
        uint32_t *grown = cap > ids->cap ? mem_grow(ids->id, cap, sizeof(*grown)) : NULL;
        if (!grown)
            return error_set(err, ERR_NO_MEMORY, "no memory for %" PRIu32 " token ids", cap);
        ids->id = grown;
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
    return 0;
}

void ids_free(struct ids *ids)
{
    free(ids->id);
    memset(ids, 0, sizeof(*ids));
}

/* ---- opening ---- */

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* The row of tokenizer.ggml.model; t->tokenizer stays NULL where the file has none. */
static int choose_tokenizer(struct text *t, const struct checkpoint *c, struct error *err)
{
    const char *s;
    size_t n;
    struct str known = {0};
    if (!meta_str(c, "tokenizer.ggml.model", &s, &n) || is_word(s, n, "no_vocab") ||
        is_word(s, n, "none"))
        return 0;
    for (int i = 0; i < N_TOKENIZERS; i++) {
        str_addf(&known, "%s%s", i ? ", " : "", tokenizers[i]->gguf);
        if (is_word(s, n, tokenizers[i]->gguf))
            t->tokenizer = tokenizers[i];
    }
    if (!t->tokenizer)
        error_set(err, ERR_UNSUPPORTED, "tokenizer.ggml.model is \"%.*s\", known are %s",
                  n < 64 ? (int)n : 64, s, str_text(&known));
    str_free(&known);
    return t->tokenizer ? 0 : -1;
}

static int add_end(struct text *t, uint32_t id, struct error *err)
{
    if (id == VOCAB_NONE || text_is_end(t, id))
        return 0;
    if (ids_add(&t->ends, id, err) < 0)
        return -1;
    for (uint32_t i = t->ends.n - 1; i && t->ends.id[i - 1] > id; i--) {
        t->ends.id[i] = t->ends.id[i - 1];
        t->ends.id[i - 1] = id;
    }
    return 0;
}

/* Files that name no end of turn still have models that end their turns: by these. */
static int add_known_ends(struct text *t, struct error *err)
{
    static const char *const names[] = {"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (add_end(t, vocab_find_control(&t->vocab, names[i], strlen(names[i])), err) < 0)
            return -1;
    return 0;
}

static int read_ids(struct text *t, const struct checkpoint *c, struct error *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    uint32_t id = VOCAB_NONE;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (vocab_key_id(&t->vocab, c, keys[i], &id, err) < 0 || add_end(t, id, err) < 0)
            return -1;
    if (id == VOCAB_NONE && add_known_ends(t, err) < 0) /* no eot */
        return -1;
    if (t->chat.known && add_end(t, t->chat.end, err) < 0)
        return -1;
    if (vocab_key_id(&t->vocab, c, "tokenizer.ggml.bos_token_id", &t->bos, err) < 0)
        return -1;
    return meta_bool_or(c, "tokenizer.ggml.add_bos_token", t->add_bos, &t->add_bos, err);
}

/* Without a vocabulary ids are all there is: any 32-bit one may be named. */
static int read_ids_only(struct text *t, const struct checkpoint *c, struct error *err)
{
    t->vocab.n = VOCAB_NONE;
    int rc = read_ids(t, c, err);
    t->vocab.n = 0;
    return rc;
}

static int open_tokenizer(struct text *t, const struct checkpoint *c, struct error *err)
{
    char variant[64] = "";
    if (vocab_open(&t->vocab, c, err) < 0)
        return -1;
    t->add_bos = t->tokenizer->add_bos;
    t->state = t->tokenizer->open(c, &t->vocab, variant, &t->add_bos, err);
    if (!t->state)
        return -1;
    snprintf(t->name, sizeof(t->name), variant[0] ? "%s (%s)" : "%s", t->tokenizer->title, variant);
    chat_open(&t->chat, c, &t->vocab);
    return read_ids(t, c, err);
}

/* Errors of a file begin with its name, as those of the loader do. */
static void name_file(const struct checkpoint *c, struct error *err)
{
    const char *path = checkpoint_path(c), *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!err || strstr(err->text, name))
        return;
    struct error inner = *err;
    error_set(err, inner.code, "%s: %s", name, inner.text);
}

struct text *text_open(const struct checkpoint *c, struct error *err)
{
    struct text *t = mem_new(1, sizeof(*t));
    if (!t) {
        error_set(err, ERR_NO_MEMORY, "no memory for the vocabulary");
        return NULL;
    }
    t->bos = VOCAB_NONE;
    if (choose_tokenizer(t, c, err) < 0 ||
        (t->tokenizer ? open_tokenizer(t, c, err) : read_ids_only(t, c, err)) < 0) {
        name_file(c, err);
        text_close(t);
        return NULL;
    }
    return t;
}

void text_close(struct text *t)
{
    if (!t)
        return;
    if (t->tokenizer)
        t->tokenizer->close(t->state);
    vocab_close(&t->vocab);
    ids_free(&t->ends);
    free(t);
}

/* ---- what it is ---- */

bool text_has_tokenizer(const struct text *t) { return t->tokenizer != NULL; }

uint32_t text_n_vocab(const struct text *t) { return t->vocab.n; }

const char *text_tokenizer_name(const struct text *t) { return t->tokenizer ? t->name : "none"; }

bool text_is_control(const struct text *t, uint32_t id)
{
    return id < t->vocab.n &&
           (t->vocab.type[id] == TOKEN_CONTROL || t->vocab.type[id] == TOKEN_UNKNOWN);
}

bool text_is_end(const struct text *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->ends.n; i++)
        if (t->ends.id[i] == id)
            return true;
    return false;
}

const uint32_t *text_ends(const struct text *t, uint32_t *n)
{
    *n = t->ends.n;
    return t->ends.id;
}

bool text_bos(const struct text *t, uint32_t *id)
{
    if (t->bos == VOCAB_NONE)
        return false;
    *id = t->bos;
    return true;
}

bool text_add_bos(const struct text *t) { return t->add_bos && t->bos != VOCAB_NONE; }

/* ---- text -> ids ---- */

static int check_utf8(const char *s, size_t n, struct error *err)
{
    uint32_t cp;
    if (n > TEXT_BYTES_MAX)
        return error_set(err, ERR_TOO_LARGE, "a text of %zu bytes, at most %d are taken", n,
                         TEXT_BYTES_MAX);
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &cp);
        if (len <= 0)
            return error_set(err, ERR_INVALID, "invalid UTF-8 at byte %zu (0x%02X)", i,
                             (unsigned char)s[i]);
        i += (size_t)len;
    }
    return 0;
}

int tokenizer_unknown(const struct vocab *v, struct fragment f, struct ids *out, struct error *err)
{
    if (v->unknown != VOCAB_NONE)
        return ids_add(out, v->unknown, err);
    return error_set(err, ERR_INVALID, "the vocabulary has no token for byte 0x%02X at byte %zu",
                     (unsigned char)f.s[0], f.at);
}

/* What lies between two marks, or nothing. */
static int encode_between(const struct text *t, struct fragment f, struct scratch *scratch,
                          struct ids *out, struct error *err)
{
    return f.n ? t->tokenizer->encode(t->state, &t->vocab, f, scratch, out, err) : 0;
}

int text_encode(const struct text *t, const char *s, size_t n, bool special, struct ids *out,
                struct error *err)
{
    struct scratch scratch = {.merge.stop = out->stop};
    size_t from = 0, len = 0;
    int rc = 0;
    if (!t->tokenizer)
        return error_set(err, ERR_UNSUPPORTED,
                         "this model has no tokenizer: give the prompt as token ids");
    if (check_utf8(s, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n && rc == 0;) {
        if (merge_stopped(&scratch.merge, (uint32_t)i))
            rc = error_set(err, ERR_INTERNAL, "stopped");
        uint32_t mark = vocab_mark_at(&t->vocab, s + i, n - i, special, &len);
        if (mark == VOCAB_NONE) {
            i++;
            continue;
        }
        rc = encode_between(t, (struct fragment){s + from, i - from, from}, &scratch, out, err);
        if (rc == 0)
            rc = ids_add(out, mark, err);
        i += len;
        from = i;
    }
    if (rc == 0)
        rc = encode_between(t, (struct fragment){s + from, n - from, from}, &scratch, out, err);
    merge_free(&scratch.merge);
    str_free(&scratch.str);
    return rc;
}

/* ---- ids -> text ---- */

void text_token_bytes(const struct text *t, uint32_t id, bool first, bool special, struct str *out)
{
    uint32_t n;
    if (id >= t->vocab.n)
        return;
    const char *s = vocab_text(&t->vocab, id, &n);
    if (t->vocab.type[id] == TOKEN_NORMAL || t->vocab.type[id] == TOKEN_BYTE)
        t->tokenizer->bytes(t->state, &t->vocab, id, first, out);
    else if (special || !text_is_control(t, id))
        str_add(out, s, n);
}
