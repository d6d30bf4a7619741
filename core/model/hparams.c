/* [load] shapes of a model from its file's keys; refuses what would be computed wrongly. */
#include "core/model/hparams.h"

#include "core/model/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limits that keep every product of sizes far from overflow. */
enum { MAX_LAYERS = 1024, MAX_DIM = 1 << 20, MAX_HEADS = 1 << 14, MAX_HEAD_DIM = 1 << 12 };
enum { MAX_VOCAB = 1 << 24, MAX_CONTEXT = 1 << 24, MAX_KEY = 128 };

struct reader {
    const struct checkpoint *c;
    const struct arch *arch;
    struct error *err;
};

/* "llama.block_count" of "block_count". */
static const char *key_of(const struct reader *r, const char *name, char key[MAX_KEY])
{
    snprintf(key, MAX_KEY, "%s.%s", r->arch->gguf, name);
    return key;
}

static int read_uint(const struct reader *r, const char *name, uint64_t max, uint32_t *value)
{
    char key[MAX_KEY];
    uint64_t v;
    if (meta_uint(r->c, key_of(r, name, key), 1, max, &v, r->err))
        return -1;
    *value = (uint32_t)v;
    return 0;
}

static int read_uint_or(const struct reader *r, const char *name, uint64_t max, uint32_t other,
                        uint32_t *value)
{
    char key[MAX_KEY];
    uint64_t v;
    if (meta_uint_or(r->c, key_of(r, name, key), 1, max, other, &v, r->err))
        return -1;
    *value = (uint32_t)v;
    return 0;
}

/* A positive, finite number. */
static int read_float(const struct reader *r, const char *name, double other, float *value)
{
    char key[MAX_KEY];
    double v;
    if (meta_float_or(r->c, key_of(r, name, key), other, &v, r->err))
        return -1;
    if (!(v >= 1e-30 && v <= 1e30)) /* a float: less would be 0 */
        return error_set(r->err, ERR_FORMAT, "key %s is %g, wanted a number from 1e-30 to 1e30",
                         key, v);
    *value = (float)v;
    return 0;
}

/* Properties that no stage computes: a file that has one is refused by the key's name. A number is
 * harmless where it is one of two values. */
static const struct {
    const char *name;
    double harmless, also;
    const char *what;
} refused[] = {
    {"expert_count", 0, 0, "mixtures of experts"},
    {"rope.scale_linear", 1, 0, "scaled rotary positions"},
    {"rope.scaling.attn_factor", 1, 0, "scaled rotary positions"},
    {"attention.max_alibi_bias", 0, 0, "ALiBi positions"},
    {"attention.clamp_kqv", 0, 0, "clamped Q, K and V"},
    {"attn_logit_softcapping", 0, 0, "soft-capped scores"},
    {"final_logit_softcapping", 0, 0, "soft-capped logits"},
    {"logit_scale", 1, 0, "scaled logits"},
    {"residual_scale", 1, 0, "scaled residuals"},
    {"embedding_scale", 1, 0, "scaled embeddings"},
    {"attention.scale", 0, 0, "scores scaled otherwise than by 1/sqrt(head size)"},
    {"use_parallel_residual", 0, 0, "parallel attention and MLP"},
};

static int number_of(const struct meta *m, double *v)
{
    switch (m->type) {
    case META_UINT:
        *v = (double)m->u;
        return 0;
    case META_INT:
        *v = (double)m->i;
        return 0;
    case META_FLOAT:
        *v = m->f;
        return 0;
    case META_BOOL:
        *v = m->b;
        return 0;
    default:
        return -1;
    }
}

static int refuse_numbers(const struct reader *r)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        char key[MAX_KEY];
        double v;
        const struct meta *m = meta_find(r->c, key_of(r, refused[i].name, key));
        if (!m)
            continue;
        if (number_of(m, &v))
            return error_set(r->err, ERR_FORMAT, "key %s is no number", key);
        if (v != refused[i].harmless && v != refused[i].also)
            return error_set(r->err, ERR_UNSUPPORTED, "key %s is %g: %s are not supported", key, v,
                             refused[i].what);
    }
    return 0;
}

/* Rotary scaling has a name and a factor; without a name a factor means linear. */
static int refuse_rope_scaling(const struct reader *r)
{
    char key[MAX_KEY];
    const char *s = "none";
    size_t n = 4;
    double factor;
    bool named = meta_str(r->c, key_of(r, "rope.scaling.type", key), &s, &n);
    if (named && !(n == 4 && memcmp(s, "none", 4) == 0))
        return error_set(r->err, ERR_UNSUPPORTED,
                         "key %s is \"%.*s\": scaled rotary positions are not supported", key,
                         (int)(n < 64 ? n : 64), s);
    if (meta_float_or(r->c, key_of(r, "rope.scaling.factor", key), 1, &factor, r->err))
        return -1;
    if (!named && factor != 1 && factor != 0)
        return error_set(r->err, ERR_UNSUPPORTED,
                         "key %s is %g: scaled rotary positions are not supported", key, factor);
    if (tensor_find(r->c, "rope_freqs.weight"))
        return error_set(r->err, ERR_UNSUPPORTED,
                         "tensor rope_freqs.weight: scaled rotary positions are not supported");
    return 0;
}

static int refuse_masks(const struct reader *r, uint32_t n_ctx)
{
    char key[MAX_KEY];
    uint64_t window;
    bool causal;
    if (meta_uint_or(r->c, key_of(r, "attention.sliding_window", key), 0, UINT32_MAX, 0, &window,
                     r->err))
        return -1;
    if (window != 0 && window < n_ctx)
        return error_set(r->err, ERR_UNSUPPORTED,
                         "key %s is %llu, less than the context of %u: windows are not supported",
                         key, (unsigned long long)window, n_ctx);
    if (meta_bool_or(r->c, key_of(r, "attention.causal", key), true, &causal, r->err))
        return -1;
    if (!causal)
        return error_set(r->err, ERR_UNSUPPORTED,
                         "key %s is false: only causal attention is supported", key);
    return 0;
}

static int read_heads(const struct reader *r, struct hparams *h)
{
    uint32_t v_dim, even = h->dim;
    char key[MAX_KEY];
    if (read_uint(r, "attention.head_count", MAX_HEADS, &h->n_heads) ||
        read_uint_or(r, "attention.head_count_kv", MAX_HEADS, h->n_heads, &h->n_kv_heads))
        return -1;
    if (h->n_heads % h->n_kv_heads)
        return error_set(r->err, ERR_FORMAT,
                         "key %s is %u: %u heads cannot be shared out among so many",
                         key_of(r, "attention.head_count_kv", key), h->n_kv_heads, h->n_heads);
    if (!meta_find(r->c, key_of(r, "attention.key_length", key)) && h->dim % h->n_heads)
        return error_set(r->err, ERR_FORMAT,
                         "no key %s, and embedding length %u is no multiple of %u heads", key,
                         h->dim, h->n_heads);
    even /= h->n_heads;
    if (read_uint_or(r, "attention.key_length", MAX_HEAD_DIM, even, &h->head_dim) ||
        read_uint_or(r, "attention.value_length", MAX_HEAD_DIM, h->head_dim, &v_dim))
        return -1;
    if (h->head_dim < 1 || h->head_dim > MAX_HEAD_DIM)
        return error_set(r->err, ERR_FORMAT, "heads of %u values, allowed are 1 to %u", h->head_dim,
                         (uint32_t)MAX_HEAD_DIM);
    if (v_dim != h->head_dim)
        return error_set(r->err, ERR_UNSUPPORTED,
                         "key %s is %u, keys have %u values: they must be the same",
                         key_of(r, "attention.value_length", key), v_dim, h->head_dim);
    return 0;
}

static int read_rope(const struct reader *r, struct hparams *h)
{
    char key[MAX_KEY];
    if (r->arch->pos == POS_LEARNED)
        return 0;
    if (read_uint_or(r, "rope.dimension_count", MAX_HEAD_DIM, h->head_dim, &h->rope_dims) ||
        read_float(r, "rope.freq_base", 10000, &h->rope_theta))
        return -1;
    if (h->rope_dims % 2 || h->rope_dims > h->head_dim)
        return error_set(r->err, ERR_FORMAT, "key %s is %u, wanted an even number up to %u",
                         key_of(r, "rope.dimension_count", key), h->rope_dims, h->head_dim);
    return refuse_rope_scaling(r);
}

/* The vocabulary is the embedding matrix; a key that says otherwise is wrong. */
static int read_vocab(const struct reader *r, struct hparams *h)
{
    char key[MAX_KEY];
    uint32_t said;
    const struct tensor *t = tensor_find(r->c, "token_embd.weight");
    if (!t)
        return error_set(r->err, ERR_FORMAT, "no tensor token_embd.weight");
    if (t->n_dims != 2 || t->dims[0] < 1 || t->dims[0] > MAX_VOCAB)
        return error_set(r->err, ERR_FORMAT,
                         "tensor token_embd.weight has %u dimensions and %llu rows, wanted 2 and "
                         "1 to %u",
                         t->n_dims, (unsigned long long)t->dims[0], (uint32_t)MAX_VOCAB);
    h->n_vocab = (uint32_t)t->dims[0];
    if (read_uint_or(r, "vocab_size", MAX_VOCAB, h->n_vocab, &said))
        return -1;
    if (said != h->n_vocab)
        return error_set(r->err, ERR_FORMAT, "key %s is %u, tensor token_embd.weight has %u rows",
                         key_of(r, "vocab_size", key), said, h->n_vocab);
    return 0;
}

static const struct arch *find_arch(const struct reader *r)
{
    char known[256] = "";
    const char *s;
    size_t n;
    if (!meta_str(r->c, "general.architecture", &s, &n)) {
        error_set(r->err, ERR_FORMAT, "no key general.architecture");
        return NULL;
    }
    const struct arch *found = arch_find(s, n);
    if (found)
        return found;
    for (int i = 0; i < ARCH_COUNT; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", arch_table[i]->id);
    }
    error_set(r->err, ERR_UNSUPPORTED, "unknown architecture \"%.*s\", known are %s",
              (int)(n < 64 ? n : 64), s, known);
    return NULL;
}

int hparams_read(struct hparams *h, const struct checkpoint *c, struct error *err)
{
    struct reader r = {.c = c, .err = err};
    struct hparams read = {0};
    char key[MAX_KEY];
    read.arch = r.arch = find_arch(&r);
    if (!r.arch)
        return -1;
    if (refuse_numbers(&r) || read_uint(&r, "block_count", MAX_LAYERS, &read.n_layers) ||
        read_uint(&r, "embedding_length", MAX_DIM, &read.dim) ||
        read_uint(&r, "feed_forward_length", MAX_DIM, &read.ff_dim) ||
        read_uint(&r, "context_length", MAX_CONTEXT, &read.n_ctx) || read_heads(&r, &read) ||
        read_rope(&r, &read) || read_vocab(&r, &read) || refuse_masks(&r, read.n_ctx))
        return -1;
    if (!meta_find(c, key_of(&r, r.arch->eps, key)))
        return error_set(err, ERR_FORMAT, "no key %s", key);
    if (read_float(&r, r.arch->eps, NAN, &read.norm_eps))
        return -1;
    *h = read;
    return 0;
}
