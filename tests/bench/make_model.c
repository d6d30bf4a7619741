/* [load] writes a model of a known shape with random weights, for measurements: its speed is that
 * of a trained model of the shape and types, its words mean nothing.
 *
 *   make_model [--seed N] [--tokenizer FILE.gguf] SHAPE TYPE OUT.gguf
 *
 * SHAPE is a row of `shapes`, TYPE a row of `mixtures`. A type is what quantised files of that name
 * usually hold: norms are F32, and the embedding, which is the LM head too, is finer than the rest.
 * The vocabulary is that of FILE, or one of single bytes, filled up with <unused_N>. The same seed
 * gives the same bytes. OUT appears when it is whole. */
#include "core/load/checkpoint.h"
#include "tests/lib/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { K_BLOCK = 256, CHUNK_BYTES = 1 << 20, NAME_BYTES = 64, MAX_TENSORS = 1024 };

struct shape {
    const char *name;
    uint32_t n_layers, dim, n_heads, n_kv_heads, head_dim, ff_dim, n_vocab, n_ctx;
    float rope_theta;
};
static const struct shape shapes[] = {
    {"1b", 16, 2048, 32, 8, 64, 8192, 128256, 8192, 500000}, /* Llama 3.2 1B's */
    {"135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100000},  /* SmolLM2 135M's */
    {"tiny", 2, 256, 4, 2, 64, 512, 512, 512, 10000},        /* for tests */
};

/* What a matrix is stored as; `odd` where its rows are no whole blocks of 256. */
struct mixture {
    const char *name;
    uint32_t file_type;           /* general.file_type */
    enum quant_id most, most_odd; /* the layers' matrices */
    enum quant_id fine, fine_odd; /* the embedding, and of Q4_K_M half of V and down */
    bool fine_half;
};
static const struct mixture mixtures[] = {
    {"f32", 0, QUANT_f32, QUANT_f32, QUANT_f32, QUANT_f32, false},
    {"f16", 1, QUANT_f16, QUANT_f16, QUANT_f16, QUANT_f16, false},
    {"bf16", 32, QUANT_bf16, QUANT_bf16, QUANT_bf16, QUANT_bf16, false},
    {"q8_0", 7, QUANT_q8_0, QUANT_q8_0, QUANT_q8_0, QUANT_q8_0, false},
    {"q4_0", 2, QUANT_q4_0, QUANT_q4_0, QUANT_q6_k, QUANT_q8_0, false},
    {"q4_1", 3, QUANT_q4_1, QUANT_q4_1, QUANT_q6_k, QUANT_q8_0, false},
    {"q5_0", 8, QUANT_q5_0, QUANT_q5_0, QUANT_q6_k, QUANT_q8_0, false},
    {"q5_1", 9, QUANT_q5_1, QUANT_q5_1, QUANT_q6_k, QUANT_q8_0, false},
    {"q6_k", 18, QUANT_q6_k, QUANT_q8_0, QUANT_q6_k, QUANT_q8_0, false},
    {"q4_k", 14, QUANT_q4_k, QUANT_q5_0, QUANT_q6_k, QUANT_q8_0, false},
    {"q4_k_m", 15, QUANT_q4_k, QUANT_q5_0, QUANT_q6_k, QUANT_q8_0, true},
};

static _Noreturn void die(const char *what, const char *about)
{
    fprintf(stderr, "make_model: %s%s%s\n", what, *about ? ": " : "", about);
    exit(1);
}

/* A copy of s[0..n) with a NUL behind it. */
static char *text_of(const char *s, size_t n)
{
    char *copy = calloc(n + 1, 1);
    if (!copy)
        die("no memory", "");
    memcpy(copy, s, n);
    return copy;
}

/* ---- random values ---- */

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators"). */
static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717U;
}

/* About normal, mean 0, standard deviation 1: eight bytes of which the sum is taken. */
static float normal(uint64_t bits)
{
    uint64_t pairs = (bits & 0x00ff00ff00ff00ffU) + (bits >> 8 & 0x00ff00ff00ff00ffU);
    uint64_t sum = pairs * 0x0001000100010001U >> 48;
    return ((float)sum - 1020) / 209.01F; /* 8 x 127.5; sqrt(8 x (256^2 - 1) / 12) */
}

/* Standard deviations. Attention over random keys is nearly a mean over the context: were its
 * output as large as the MLP's, every position would soon hold the same vector, and the model would
 * say the same word for ever, which flatters whoever guesses ahead. */
#define DEVIATION     0.02F
#define DEVIATION_OUT (DEVIATION / 8)

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* Codes are centred on half a step, so the scale's sign is random: the mean of many is 0. */
static float signed_scale(uint64_t *state, float scale)
{
    return next(state) >> 63 ? -scale : scale;
}

/* Parts of 32 to 63 of scale and minimum: 6 bits each, packed as Q4_K has them. */
static void put_parts(uint8_t *p, uint64_t *state)
{
    uint8_t part[8];
    for (int j = 0; j < 8; j++)
        part[j] = (uint8_t)(32 + (next(state) >> 59));
    for (int j = 0; j < 4; j++) {
        uint8_t high = (uint8_t)(part[j + 4] >> 4 << 6), low = part[j + 4] & 15;
        p[j] = p[j + 4] = part[j] | high;
        p[j + 8] = (uint8_t)(low | low << 4);
    }
}

/* Scales over codes that are random already: those of codes 0 to n-1 deviate by
 * sqrt((n^2 - 1) / 12). */
static void put_scales(enum quant_id type, uint8_t *p, float deviation, uint64_t *state)
{
    float of_4_bits = deviation / 4.61F, of_5_bits = deviation / 9.23F, d;
    switch (type) {
    case QUANT_q4_0:
        put16(p, quant_float_to_half(signed_scale(state, of_4_bits)));
        break;
    case QUANT_q5_0:
        put16(p, quant_float_to_half(signed_scale(state, of_5_bits)));
        break;
    case QUANT_q8_0:
        put16(p, quant_float_to_half(signed_scale(state, deviation / 73.9F)));
        break;
    case QUANT_q4_1:
        put16(p, quant_float_to_half(of_4_bits));
        put16(p + 2, quant_float_to_half(-7.5F * of_4_bits));
        break;
    case QUANT_q5_1:
        put16(p, quant_float_to_half(of_5_bits));
        put16(p + 2, quant_float_to_half(-15.5F * of_5_bits));
        break;
    case QUANT_q4_k:
        d = of_4_bits / 48; /* parts are about 48 */
        put16(p, quant_float_to_half(d));
        put16(p + 2, quant_float_to_half(7.5F * d));
        put_parts(p + 4, state);
        break;
    case QUANT_q6_k:
        for (int i = 0; i < 16; i++)
            p[192 + i] = (uint8_t)(int8_t)signed_scale(state, (float)(32 + (next(state) >> 59)));
        put16(p + 208, quant_float_to_half(deviation / 18.5F / 48));
        break;
    default:
        die("no such type", "");
    }
}

static void fill_floats(enum quant_id type, uint8_t *out, size_t n, float deviation,
                        uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        float f = deviation * normal(next(state));
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        if (type == QUANT_f32)
            memcpy(out + 4 * i, &f, sizeof(f));
        else
            put16(out + 2 * i, type == QUANT_f16 ? quant_float_to_half(f) : (uint16_t)(bits >> 16));
    }
}

static void fill(enum quant_id type, uint8_t *out, size_t n_blocks, float deviation,
                 uint64_t *state)
{
    size_t bytes = quant_table[type].block_bytes;
    if (type <= QUANT_bf16) {
        fill_floats(type, out, n_blocks, deviation, state);
        return;
    }
    for (size_t i = 0; i < n_blocks * bytes; i += 8) { /* the buffer has room for the last eight */
        uint64_t codes = next(state);
        memcpy(out + i, &codes, sizeof(codes));
    }
    for (size_t i = 0; i < n_blocks; i++)
        put_scales(type, out + i * bytes, deviation, state);
}

/* ---- tensors ---- */

struct item {
    char name[NAME_BYTES];
    enum quant_id type;
    uint64_t dims[2], n_bytes, offset; /* [n_out, n_in]; a norm is [1, n] */
    float deviation;
    bool norm;
};
struct model {
    const struct shape *shape;
    const struct mixture *mixture;
    struct item items[MAX_TENSORS];
    uint32_t n_items;
    uint64_t n_bytes;
};

static void add(struct model *m, const char *name, uint64_t n_out, uint64_t n_in, bool fine)
{
    struct item *t = &m->items[m->n_items++];
    bool odd = n_in % K_BLOCK != 0;
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->norm = n_out == 1;
    t->type = t->norm ? QUANT_f32
              : fine  ? odd ? m->mixture->fine_odd : m->mixture->fine
              : odd   ? m->mixture->most_odd
                      : m->mixture->most;
    t->deviation = strstr(name, "attn_output") ? DEVIATION_OUT : DEVIATION;
    t->dims[0] = n_out;
    t->dims[1] = n_in;
    t->n_bytes = n_out * n_in / quant_table[t->type].block_elems * quant_table[t->type].block_bytes;
    t->offset = m->n_bytes;
    m->n_bytes += (t->n_bytes + 31) / 32 * 32;
}

/* Q4_K_M's finer layers: the first and the last eighth, and every third between. */
static bool finer(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static void add_layer(struct model *m, uint32_t layer)
{
    const struct shape *s = m->shape;
    uint32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    bool fine = m->mixture->fine_half && finer(layer, s->n_layers);
    const struct {
        const char *name;
        uint32_t n_out, n_in;
        bool fine;
    } parts[] = {
        {"attn_norm", 1, s->dim, false},        {"attn_q", q, s->dim, false},
        {"attn_k", kv, s->dim, false},          {"attn_v", kv, s->dim, fine},
        {"attn_output", s->dim, q, false},      {"ffn_norm", 1, s->dim, false},
        {"ffn_gate", s->ff_dim, s->dim, false}, {"ffn_up", s->ff_dim, s->dim, false},
        {"ffn_down", s->dim, s->ff_dim, fine},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, parts[i].name);
        add(m, name, parts[i].n_out, parts[i].n_in, parts[i].fine);
    }
}

static void add_tensors(struct model *m)
{
    add(m, "token_embd.weight", m->shape->n_vocab, m->shape->dim, true);
    for (uint32_t i = 0; i < m->shape->n_layers; i++)
        add_layer(m, i);
    add(m, "output_norm.weight", 1, m->shape->dim, false);
}

static void write_item(FILE *f, const struct item *t, uint64_t seed)
{
    static uint8_t chunk[CHUNK_BYTES + 8];
    const struct quant *q = &quant_table[t->type];
    uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15U + t->offset;
    size_t n_blocks = t->n_bytes / q->block_bytes, most = CHUNK_BYTES / q->block_bytes;
    static const uint8_t zero[32];
    for (size_t at = 0, n; at < n_blocks; at += n) {
        n = n_blocks - at < most ? n_blocks - at : most;
        fill(t->type, chunk, n, t->deviation, &state);
        for (size_t i = 0; t->norm && i < n; i++) { /* around 1 */
            float v;
            memcpy(&v, chunk + 4 * i, sizeof(v));
            v += 1;
            memcpy(chunk + 4 * i, &v, sizeof(v));
        }
        if (fwrite(chunk, q->block_bytes, n, f) != n)
            die("cannot write", t->name);
    }
    if (fwrite(zero, 1, -t->n_bytes % 32, f) != -t->n_bytes % 32)
        die("cannot write", t->name);
}

/* ---- keys ---- */

static void shape_keys(struct gguf *g, const struct model *m)
{
    const struct shape *s = m->shape;
    gguf_str(g, "general.architecture", "llama");
    gguf_str(g, "general.type", "model");
    gguf_str(g, "general.name", s->name);
    gguf_u32(g, "general.file_type", m->mixture->file_type);
    gguf_u32(g, "general.quantization_version", 2);
    gguf_u32(g, "llama.block_count", s->n_layers);
    gguf_u32(g, "llama.context_length", s->n_ctx);
    gguf_u32(g, "llama.embedding_length", s->dim);
    gguf_u32(g, "llama.feed_forward_length", s->ff_dim);
    gguf_u32(g, "llama.attention.head_count", s->n_heads);
    gguf_u32(g, "llama.attention.head_count_kv", s->n_kv_heads);
    gguf_f32(g, "llama.rope.freq_base", s->rope_theta);
    gguf_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf_u32(g, "llama.vocab_size", s->n_vocab);
    gguf_u32(g, "llama.rope.dimension_count", s->head_dim);
}

struct words {
    const char **text; /* [n] */
    int32_t *type;     /* [n], 1 ordinary, 3 control */
    uint32_t n, cap;
};

static void add_word(struct words *w, const char *s, size_t n, int type)
{
    char *copy = text_of(s, n);
    if (w->n == w->cap)
        die("more tokens than the shape's vocabulary", "");
    w->type[w->n] = type;
    w->text[w->n++] = copy;
}

/* Byte-level BPE writes a byte that is no visible character as U+0100 and up, in order. */
static void add_byte(struct words *w, int byte, int *n_hidden)
{
    bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    int c = visible ? byte : 256 + (*n_hidden)++;
    char s[2] = {(char)(c < 128 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 63))};
    add_word(w, s, c < 128 ? 1 : 2, 1);
}

/* A vocabulary of single bytes and one merge: readers want at least one. */
static void own_words(struct gguf *g, struct words *w)
{
    const char *merge = "t h";
    int n_hidden = 0;
    add_word(w, "<|endoftext|>", 13, 3);
    for (int byte = 0; byte < 256; byte++)
        add_byte(w, byte, &n_hidden);
    add_word(w, "th", 2, 1);
    gguf_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_str(g, "tokenizer.ggml.pre", "gpt-2");
    gguf_strs(g, "tokenizer.ggml.merges", &merge, 1);
    gguf_u32(g, "tokenizer.ggml.bos_token_id", 0);
    gguf_u32(g, "tokenizer.ggml.eos_token_id", 0);
}

static void copy_strings(struct gguf *g, const struct meta *m)
{
    const char **list = calloc(m->n_items + 1, sizeof(*list)), *s;
    size_t n;
    for (uint64_t i = 0; list && i < m->n_items; i++) {
        meta_item_str(m, i, &s, &n);
        list[i] = text_of(s, n);
    }
    if (!list)
        die("no memory", m->key);
    gguf_strs(g, m->key, list, m->n_items);
    for (uint64_t i = 0; i < m->n_items; i++)
        free((void *)list[i]);
    free(list);
}

static void copy_key(struct gguf *g, const struct meta *m)
{
    char *s;
    switch (m->type) {
    case META_UINT:
        gguf_u32(g, m->key, (uint32_t)m->u);
        break;
    case META_INT:
        gguf_i32(g, m->key, (int32_t)m->i);
        break;
    case META_FLOAT:
        gguf_f32(g, m->key, (float)m->f);
        break;
    case META_BOOL:
        gguf_bool(g, m->key, m->b);
        break;
    case META_STRING:
        s = text_of(m->str.s, m->str.n);
        gguf_str(g, m->key, s);
        free(s);
        break;
    case META_ARRAY:
        if (m->of == META_STRING)
            copy_strings(g, m);
        break;
    }
}

/* All of the donor's tokenizer.* keys; the two lists that go with tokens are made longer. */
static void donor_words(struct gguf *g, struct words *w, const struct checkpoint *c)
{
    const struct meta *tokens = meta_find(c, "tokenizer.ggml.tokens"), *types;
    types = meta_find(c, "tokenizer.ggml.token_type");
    if (!tokens || tokens->type != META_ARRAY || tokens->of != META_STRING)
        die("no tokens", checkpoint_path(c));
    for (uint64_t i = 0; i < tokens->n_items; i++) {
        const char *s;
        size_t n;
        meta_item_str(tokens, i, &s, &n);
        add_word(w, s, n, types ? (int)meta_item_int(types, i) : 1);
    }
    for (uint32_t i = 0; i < checkpoint_n_meta(c); i++) {
        const struct meta *m = checkpoint_meta(c, i);
        if (m != tokens && m != types && strncmp(m->key, "tokenizer.", 10) == 0)
            copy_key(g, m);
    }
}

static void word_keys(struct gguf *g, const struct shape *s, const struct checkpoint *donor)
{
    struct words w = {calloc(s->n_vocab, sizeof(*w.text)), calloc(s->n_vocab, sizeof(*w.type)), 0,
                      s->n_vocab};
    if (!w.text || !w.type)
        die("no memory", "");
    if (donor)
        donor_words(g, &w, donor);
    else
        own_words(g, &w);
    for (uint32_t i = 0; w.n < w.cap; i++) { /* ordinary ones: a client sees text for each */
        char name[NAME_BYTES];
        int n = snprintf(name, sizeof(name), "<unused_%u>", i);
        add_word(&w, name, (size_t)n, 1);
    }
    gguf_strs(g, "tokenizer.ggml.tokens", w.text, w.n);
    gguf_i32s(g, "tokenizer.ggml.token_type", w.type, w.n);
    for (uint32_t i = 0; i < w.n; i++)
        free((void *)w.text[i]);
    free(w.text);
    free(w.type);
}

static void write_header(FILE *f, const struct model *m, const struct checkpoint *donor)
{
    struct gguf g = {0};
    struct str out = {0};
    shape_keys(&g, m);
    word_keys(&g, m->shape, donor);
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct item *t = &m->items[i];
        gguf_describe(&g, t->name, t->norm ? 1 : 2, t->norm ? t->dims + 1 : t->dims,
                      quant_table[t->type].gguf_id, t->offset);
    }
    gguf_finish(&g, &out);
    while (out.n % 32)
        str_add(&out, "", 1);
    if (out.failed || fwrite(str_text(&out), 1, out.n, f) != out.n)
        die("cannot write", "the keys");
    str_free(&out);
    gguf_free(&g);
}

static void write_model(const struct model *m, const struct checkpoint *donor, uint64_t seed,
                        const char *path)
{
    char part[4096];
    struct stat old;
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode)) /* a device would be replaced by a file */
        die("cannot write, it is no regular file", path);
    if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
        die("the path is too long", path);
    FILE *f = fopen(part, "wb");
    if (!f)
        die("cannot write", part);
    write_header(f, m, donor);
    for (uint32_t i = 0; i < m->n_items; i++)
        write_item(f, &m->items[i], seed);
    if (fclose(f) != 0 || rename(part, path) != 0)
        die("cannot write", path);
}

static uint64_t read_seed(const char *text)
{
    char *end;
    uint64_t seed = strtoull(text, &end, 10);
    if (end == text || *end || *text == '-')
        die("--seed: wanted is a whole number", text);
    return seed;
}

int main(int argc, char **argv)
{
    static struct model m;
    struct checkpoint *donor = NULL;
    struct error err;
    uint64_t seed = 0;
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--seed") == 0)
            seed = read_seed(argv[at + 1]);
        else if (strcmp(argv[at], "--tokenizer") != 0)
            die("no such option", argv[at]);
        else if (!(donor = checkpoint_open(argv[at + 1], &err)))
            die(err.text, "");
    }
    if (argc - at != 3)
        die("usage: make_model [--seed N] [--tokenizer FILE.gguf] SHAPE TYPE OUT.gguf", "");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        m.shape = strcmp(argv[at], shapes[i].name) ? m.shape : &shapes[i];
    for (size_t i = 0; i < sizeof(mixtures) / sizeof(*mixtures); i++)
        m.mixture = strcmp(argv[at + 1], mixtures[i].name) ? m.mixture : &mixtures[i];
    if (!m.shape || !m.mixture)
        die("unknown", m.shape ? argv[at + 1] : argv[at]);
    add_tensors(&m);
    write_model(&m, donor, seed, argv[at + 2]);
    checkpoint_close(donor);
    return 0;
}
