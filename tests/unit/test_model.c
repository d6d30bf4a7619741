/* Whole models, small and random, from a GGUF file to logits: against the definition in double,
 * with every bias there is; bit for bit against themselves in other company; and what is
 * refused. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/kernel/cpu.h"
#include "core/kv/seq.h"
#include "core/model/arch.h"
#include "core/model/model.h"
#include "core/model/stages.h"
#include "tests/lib/gguf_writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DIM = 80, HEADS = 6, KV_HEADS = 2, HEAD = 6, ROPE = 4, FF = 28, VOCAB = 37, CTX = 400 };
enum { LAYERS = 2, HEADS_DIM = HEADS * HEAD, KV_DIM = KV_HEADS * HEAD };
static const float EPS = 1e-5F, THETA = 1000;

/* ---- a model's file: every value is a function of its tensor's name and its number ---- */

static uint64_t hash(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h;
}

static const char *silenced = ""; /* a tensor that is 0 instead, in the reference only */

/* A tensor's values: mean + (-1 .. 1) * width. */
struct spread {
    char name[96];
    uint64_t hash;
    float mean, width;
};

static struct spread spread_of(const char *name)
{
    struct spread t = {.hash = hash(name), .mean = strstr(name, "norm.weight") ? 1 : 0};
    snprintf(t.name, sizeof(t.name), "%s", name);
    if (t.mean > 0 || strstr(name, "bias"))
        t.width = 1 / 2.0F;
    else
        t.width = strstr(name, "attn_output") || strstr(name, "ffn_down") ? 1 / 3.0F : 1 / 6.0F;
    return t;
}

static float value(const char *name, uint64_t i)
{
    static struct spread t; /* of the tensor asked for last */
    if (strcmp(name, silenced) == 0)
        return 0;
    if (strcmp(name, t.name) != 0)
        t = spread_of(name);
    uint64_t h = (t.hash + i) * 0x9E3779B97F4A7C15u;
    return t.mean + ((float)(h >> 40) / (float)(1 << 23) - 1) * t.width;
}

struct kind {
    const char *arch;
    bool tied, split_qkv;
};

static const struct kind kinds[] = {
    {"gpt2", false, false}, {"gpt2", true, true}, {"llama", false, true}, {"llama", true, false}};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

static void add(struct gguf *g, const char *name, uint32_t n_out, uint32_t n_in)
{
    size_t n = (size_t)n_out * (n_in ? n_in : 1);
    float *w = malloc(n * sizeof(*w));
    assert_non_null(w);
    for (size_t i = 0; i < n; i++)
        w[i] = value(name, i);
    if (n_in)
        gguf_f32_matrix(g, name, n_out, n_in, w);
    else
        gguf_f32_vector(g, name, n_out, w);
    free(w);
}

/* name.weight [n_out, n_in] and name.bias [n_out]; n_in 0: a norm. */
static void add_both(struct gguf *g, const char *name, uint32_t n_out, uint32_t n_in)
{
    char full[96];
    snprintf(full, sizeof(full), "%s.weight", name);
    add(g, full, n_out, n_in);
    snprintf(full, sizeof(full), "%s.bias", name);
    add(g, full, n_out, 0);
}

static void add_norm(struct gguf *g, const struct kind *k, const char *name)
{
    char full[96];
    snprintf(full, sizeof(full), "%s.weight", name);
    if (strcmp(k->arch, "gpt2") == 0)
        add_both(g, name, DIM, 0);
    else
        add(g, full, DIM, 0);
}

static void add_layer(struct gguf *g, const struct kind *k, uint32_t layer)
{
    char name[64];
#define AT(text) (snprintf(name, sizeof(name), "blk.%u.%s", layer, text), name)
    add_norm(g, k, AT("attn_norm"));
    add_norm(g, k, AT("ffn_norm"));
    if (k->split_qkv) {
        add_both(g, AT("attn_q"), HEADS_DIM, DIM);
        add_both(g, AT("attn_k"), KV_DIM, DIM);
        add_both(g, AT("attn_v"), KV_DIM, DIM);
    } else {
        add_both(g, AT("attn_qkv"), HEADS_DIM + 2 * KV_DIM, DIM);
    }
    add_both(g, AT("attn_output"), DIM, HEADS_DIM);
    if (strcmp(k->arch, "llama") == 0)
        add_both(g, AT("ffn_gate"), FF, DIM);
    add_both(g, AT("ffn_up"), FF, DIM);
    add_both(g, AT("ffn_down"), DIM, FF);
#undef AT
}

static const char *key(const struct kind *k, const char *name)
{
    static char full[96];
    snprintf(full, sizeof(full), "%s.%s", k->arch, name);
    return full;
}

static void write_keys(struct gguf *g, const struct kind *k)
{
    gguf_str(g, "general.architecture", k->arch);
    gguf_u32(g, key(k, "block_count"), LAYERS);
    gguf_u32(g, key(k, "embedding_length"), DIM);
    gguf_u32(g, key(k, "feed_forward_length"), FF);
    gguf_u32(g, key(k, "context_length"), CTX);
    gguf_u32(g, key(k, "attention.head_count"), HEADS);
    gguf_u32(g, key(k, "attention.head_count_kv"), KV_HEADS);
    gguf_u32(g, key(k, "attention.key_length"), HEAD);
    gguf_f32(g, key(k, "attention.layer_norm_epsilon"), EPS);
    gguf_f32(g, key(k, "attention.layer_norm_rms_epsilon"), EPS);
    if (strcmp(k->arch, "llama") == 0) {
        gguf_u32(g, key(k, "rope.dimension_count"), ROPE);
        gguf_f32(g, key(k, "rope.freq_base"), THETA);
    }
}

static void write_tensors(struct gguf *g, const struct kind *k)
{
    add(g, "token_embd.weight", VOCAB, DIM);
    if (strcmp(k->arch, "gpt2") == 0)
        add(g, "position_embd.weight", CTX, DIM);
    for (uint32_t i = 0; i < LAYERS; i++)
        add_layer(g, k, i);
    add_norm(g, k, "output_norm");
    if (!k->tied)
        add(g, "output.weight", VOCAB, DIM);
    add(g, "output.bias", VOCAB, 0);
}

/* Writes g to a file of its own and opens that. */
static struct checkpoint *reopen(struct gguf *g, struct error *err)
{
    char path[] = "/tmp/attend-model-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(gguf_save(g, path), 0);
    gguf_free(g);
    struct checkpoint *c = checkpoint_open(path, err);
    unlink(path);
    if (!c)
        fail_msg("%s", err->text);
    return c;
}

/* ---- the definition, in double ---- */

static double w(const char *name, const char *suffix, uint64_t i)
{
    char full[96];
    snprintf(full, sizeof(full), "%s.%s", name, suffix);
    return value(full, i);
}

static void ref_linear(const char *name, uint32_t row, uint32_t n_out, uint32_t n_in,
                       const double *x, double *y)
{
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = w(name, "bias", row + o);
        for (uint32_t i = 0; i < n_in; i++)
            y[o] += w(name, "weight", (uint64_t)(row + o) * n_in + i) * x[i];
    }
}

static void ref_norm(bool gpt2, const char *name, const double *x, double *y)
{
    double mean = 0, square = 0;
    for (int i = 0; i < DIM && gpt2; i++)
        mean += x[i] / DIM;
    for (int i = 0; i < DIM; i++)
        square += (x[i] - mean) * (x[i] - mean) / DIM;
    for (uint32_t i = 0; i < DIM; i++)
        y[i] = (x[i] - mean) / sqrt(square + EPS) * w(name, "weight", i) +
               (gpt2 ? w(name, "bias", i) : 0);
}

static void ref_rope(uint32_t pos, double *x, uint32_t n_heads)
{
    for (uint32_t h = 0; h < n_heads; h++)
        for (int i = 0; i < ROPE; i += 2) {
            double angle = pos * pow(THETA, -(double)i / ROPE), *p = x + h * HEAD + i;
            double a = p[0] * cos(angle) - p[1] * sin(angle);
            p[1] = p[0] * sin(angle) + p[1] * cos(angle);
            p[0] = a;
        }
}

struct ref_row {
    double x[DIM], q[HEADS_DIM], k[KV_DIM], v[KV_DIM], o[HEADS_DIM];
};

static void ref_attention(struct ref_row *rows, uint32_t pos)
{
    for (uint32_t h = 0; h < HEADS; h++) {
        double s[CTX], sum = 0;
        double *o = rows[pos].o + h * HEAD;
        uint32_t kv = h / (HEADS / KV_HEADS) * HEAD;
        memset(o, 0, HEAD * sizeof(*o));
        for (uint32_t t = 0; t <= pos; t++) {
            s[t] = 0;
            for (int d = 0; d < HEAD; d++)
                s[t] += rows[pos].q[h * HEAD + d] * rows[t].k[kv + d] / sqrt(HEAD);
            sum += s[t] = exp(s[t]);
        }
        for (uint32_t t = 0; t <= pos; t++)
            for (int d = 0; d < HEAD; d++)
                o[d] += s[t] / sum * rows[t].v[kv + d];
    }
}

static void ref_qkv(const struct kind *k, uint32_t layer, bool gpt2, struct ref_row *row,
                    uint32_t pos)
{
    char name[64];
    double h[DIM];
#define AT(text) (snprintf(name, sizeof(name), "blk.%u.%s", layer, text), name)
    ref_norm(gpt2, AT("attn_norm"), row->x, h);
    if (k->split_qkv) {
        ref_linear(AT("attn_q"), 0, HEADS_DIM, DIM, h, row->q);
        ref_linear(AT("attn_k"), 0, KV_DIM, DIM, h, row->k);
        ref_linear(AT("attn_v"), 0, KV_DIM, DIM, h, row->v);
    } else {
        ref_linear(AT("attn_qkv"), 0, HEADS_DIM, DIM, h, row->q);
        ref_linear(name, HEADS_DIM, KV_DIM, DIM, h, row->k);
        ref_linear(name, HEADS_DIM + KV_DIM, KV_DIM, DIM, h, row->v);
    }
    if (!gpt2) {
        ref_rope(pos, row->q, HEADS);
        ref_rope(pos, row->k, KV_HEADS);
    }
}

static void ref_rest(uint32_t layer, bool gpt2, struct ref_row *row)
{
    char name[64];
    double y[DIM], h[DIM], up[FF], gate[FF];
    ref_linear(AT("attn_output"), 0, DIM, HEADS_DIM, row->o, y);
    for (int i = 0; i < DIM; i++)
        row->x[i] += y[i];
    ref_norm(gpt2, AT("ffn_norm"), row->x, h);
    ref_linear(AT("ffn_up"), 0, FF, DIM, h, up);
    if (!gpt2)
        ref_linear(AT("ffn_gate"), 0, FF, DIM, h, gate);
    for (int i = 0; i < FF; i++)
        up[i] = gpt2 ? up[i] / 2 * (1 + tanh(sqrt(2 / M_PI) * (up[i] + .044715 * pow(up[i], 3))))
                     : up[i] * gate[i] / (1 + exp(-gate[i]));
    ref_linear(AT("ffn_down"), 0, DIM, FF, up, y);
    for (int i = 0; i < DIM; i++)
        row->x[i] += y[i];
#undef AT
}

/* logits [n, VOCAB] */
static void reference(const struct kind *k, const uint32_t *ids, uint32_t n, double *logits)
{
    bool gpt2 = strcmp(k->arch, "gpt2") == 0;
    struct ref_row *rows = calloc(n, sizeof(*rows));
    double h[DIM];
    assert_non_null(rows);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < DIM; i++)
            rows[r].x[i] = value("token_embd.weight", (uint64_t)ids[r] * DIM + i) +
                           (gpt2 ? value("position_embd.weight", (uint64_t)r * DIM + i) : 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t r = 0; r < n; r++)
            ref_qkv(k, layer, gpt2, &rows[r], r);
        for (uint32_t r = 0; r < n; r++)
            ref_attention(rows, r);
        for (uint32_t r = 0; r < n; r++)
            ref_rest(layer, gpt2, &rows[r]);
    }
    for (uint32_t r = 0; r < n; r++) {
        const char *head = k->tied ? "token_embd.weight" : "output.weight";
        ref_norm(gpt2, "output_norm", rows[r].x, h);
        for (uint32_t o = 0; o < VOCAB; o++) {
            double *y = &logits[r * VOCAB + o];
            *y = value("output.bias", o);
            for (uint32_t i = 0; i < DIM; i++)
                *y += value(head, (uint64_t)o * DIM + i) * h[i];
        }
    }
    free(rows);
}

/* ---- the model ---- */

struct fixture {
    struct model *m;
    struct workers *workers;
    struct kv_pool *kv;
    _Atomic uint64_t heartbeat;
};

static void fixture_open(struct fixture *f, const struct kind *k, uint32_t n_workers,
                         uint32_t page_tokens, enum kv_type type)
{
    struct gguf g = {0};
    struct error err;
    struct hparams h;
    const struct kv_geometry geometry = {LAYERS, KV_HEADS, HEAD, page_tokens, type};
    *f = (struct fixture){0};
    struct model_options o = {.activations = ACTIVATIONS_FLOAT,
                              .max_rows = CTX,
                              .max_logits = CTX,
                              .max_context = CTX,
                              .heartbeat = &f->heartbeat};
    write_keys(&g, k);
    write_tensors(&g, k);
    struct checkpoint *c = reopen(&g, &err);
    if (hparams_read(&h, c, &err))
        fail_msg("%s", err.text);
    f->workers = workers_open(n_workers, &err);
    assert_non_null(f->workers);
    uint64_t before = mem_held(MEM_WEIGHTS), room = mem_held(MEM_ACTIVATIONS);
    f->m = model_open(c, &h, &o, f->workers, &err);
    if (!f->m)
        fail_msg("%s", err.text);
    assert_true(model_weight_bytes(c, &h) > 0);
    assert_int_equal(mem_held(MEM_WEIGHTS) - before, model_weight_bytes(c, &h));
    assert_int_equal(mem_held(MEM_ACTIVATIONS) - room, model_activation_bytes(&h, &o, n_workers));
    assert_true(model_all_float(f->m));
    checkpoint_close(c);
    f->kv = kv_pool_open(&geometry, 6 * CTX / page_tokens, &err);
    assert_non_null(f->kv);
    memset(f->kv->memory, 0xFF, f->kv->n_pages * f->kv->page_bytes); /* NaN, as halves and floats */
}

static void fixture_close(struct fixture *f)
{
    kv_pool_close(f->kv);
    model_close(f->m);
    workers_close(f->workers);
    assert_int_equal(mem_held(MEM_WEIGHTS), 0);
    assert_int_equal(mem_held(MEM_ACTIVATIONS), 0);
}

static void open_seq(struct fixture *f, struct seq *s)
{
    struct error err;
    assert_int_equal(seq_open(s, f->kv, CTX, &err), 0);
    assert_true(seq_reserve(s, f->kv, CTX));
    seq_cover(s, f->kv, CTX);
}

/* Adds n tokens of a timeline to the rows of a batch, logits wanted of all. */
static void push(struct batch *b, struct batch_row *rows, const struct seq *s, const uint32_t *ids,
                 uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rows[b->n_rows++] = (struct batch_row){ids[i], s->n_tokens + i, s, (int32_t)b->n_logits++};
}

/* logits [n, VOCAB] of ids in steps of chunk tokens. */
static void run(struct fixture *f, const uint32_t *ids, uint32_t n, uint32_t chunk, float *logits)
{
    struct batch_row rows[CTX];
    struct seq s;
    open_seq(f, &s);
    for (uint32_t at = 0; at < n; at += chunk) {
        struct batch b = {rows, 0, 0};
        push(&b, rows, &s, ids + at, n - at < chunk ? n - at : chunk);
        model_forward(f->m, &b, f->kv, f->workers, logits + (size_t)at * VOCAB);
        s.n_tokens += b.n_rows;
    }
    seq_close(&s, f->kv);
}

static void make_ids(uint32_t *ids, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)((i + salt) * 2654435761u >> 8) % VOCAB;
}

static double worst(const float *got, const double *want, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n * VOCAB; i++) {
        double d = fabs(got[i] - want[i]);
        most = d <= most ? most : d; /* NaN comes through */
    }
    return most;
}

static void test_definition(void **state)
{
    enum { N = 40 };
    uint32_t ids[N];
    static float got[N * VOCAB];
    static double want[N * VOCAB];
    (void)state;
    make_ids(ids, N, 3);
    for (size_t i = 0; i < N_KINDS; i++)
        for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
            struct fixture f;
            cpu_force((enum cpu_level)level);
            fixture_open(&f, &kinds[i], 2, 16, KV_F32);
            reference(&kinds[i], ids, N, want);
            run(&f, ids, N, N, got);
            if (!(worst(got, want, N) < 2e-5))
                fail_msg("%s %s: off by %g", kinds[i].arch, cpu_level_name(cpu_level()),
                         worst(got, want, N));
            fixture_close(&f);
        }
}

/* Each bias counts: a model that left one out would be seen by test_definition. */
static void test_every_bias(void **state)
{
    enum { N = 5 };
    static const char *const names[] = {"attn_norm", "ffn_norm", "attn_q",      "attn_k",
                                        "attn_v",    "attn_qkv", "attn_output", "ffn_gate",
                                        "ffn_up",    "ffn_down"};
    uint32_t ids[N], checked = 0;
    static double all[N * VOCAB], without[N * VOCAB];
    static float as_floats[N * VOCAB];
    (void)state;
    make_ids(ids, N, 3);
    for (size_t i = 0; i < N_KINDS; i++) {
        const struct kind *k = &kinds[i];
        reference(k, ids, N, all);
        for (int j = 0; j < N * VOCAB; j++)
            as_floats[j] = (float)all[j];
        for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
            char name[64];
            bool gpt2 = strcmp(k->arch, "gpt2") == 0, norm = strstr(names[n], "norm") != NULL;
            bool qkv = strstr(names[n], "attn_qkv") != NULL;
            bool part = strlen(names[n]) == 6 && !norm && strncmp(names[n], "attn", 4) == 0;
            if ((norm && !gpt2) || (qkv && k->split_qkv) || (part && !k->split_qkv) ||
                (gpt2 && strcmp(names[n], "ffn_gate") == 0))
                continue;
            snprintf(name, sizeof(name), "blk.1.%s.bias", names[n]);
            silenced = name;
            reference(k, ids, N, without);
            silenced = "";
            if (strcmp(names[n], "attn_k") == 0 && gpt2)
                continue; /* q.b is the same for all keys: softmax does not see it */
            if (!(worst(as_floats, without, N) > 1e-3))
                fail_msg("%s %s does not count", k->arch, name);
            checked++;
        }
    }
    assert_int_equal(checked, 6 + 7 + 7 + 5);
}

/* The same bits for any chunk, number of workers, who come and go, and level of sharing, over several
 * splits. */
static void check_bits(const struct kind *k, uint32_t page_tokens, enum kv_type type,
                       uint32_t most_workers)
{
    enum { N = 300 };
    static const uint32_t chunks[] = {N, 1, 7, 64};
    uint32_t ids[N];
    static float first[N * VOCAB], got[N * VOCAB];
    make_ids(ids, N, 5);
    for (uint32_t n_workers = 1; n_workers <= most_workers; n_workers++) {
        struct fixture f;
        fixture_open(&f, k, n_workers, page_tokens, type);
        for (size_t i = 0; i < sizeof(chunks) / sizeof(*chunks); i++) {
            uint64_t before = model_scores(f.m), beats = f.heartbeat;
            workers_guests(f.workers, i % 2 ? 1 : n_workers, 20000, 30000);
            run(&f, ids, N, chunks[i], n_workers == 1 && i == 0 ? first : got);
            assert_int_equal(model_scores(f.m) - before, N * (N + 1) / 2);
            assert_int_equal(f.heartbeat - beats, (N + chunks[i] - 1) / chunks[i] * LAYERS);
            if (n_workers > 1 || i > 0)
                assert_memory_equal(got, first, sizeof(got));
        }
        fixture_close(&f);
    }
    for (int i = 0; i < N * VOCAB; i++)
        assert_true(isfinite(first[i]));
}

static void test_bits(void **state)
{
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        uint32_t most_workers = level == (int)cpu_detect() ? 4 : 2;
        check_bits(&kinds[0], 16, KV_F16, most_workers);
        check_bits(&kinds[2], 48, KV_F32, most_workers);
        check_bits(&kinds[2], 16, KV_Q8, 2);
    }
}

/* Five meetings of the workers a layer; seven for many rows whose norms do not divide late; one before
 * the layers. Rows without logits end in the last layer when K and V are stored. */
static void test_barriers(void **state)
{
    static const uint32_t n_rows[] = {1, 5, JOINED_BY_ONE, JOINED_BY_ONE + 1, 100};
    static float logits[100 * VOCAB];
    (void)state;
    for (size_t i = 0; i < 5 * N_KINDS; i++) {
        const struct kind *k = &kinds[i % N_KINDS];
        struct batch_row rows[100];
        struct batch b = {rows, 0, 0};
        struct fixture f;
        struct seq s;
        bool five = strcmp(k->arch, "llama") == 0 || n_rows[i / N_KINDS] <= JOINED_BY_ONE;
        uint32_t ids[100], per_layer = five ? 5 : 7;
        fixture_open(&f, k, 2, 16, KV_F16);
        open_seq(&f, &s);
        make_ids(ids, 100, 1);
        push(&b, rows, &s, ids, n_rows[i / N_KINDS]);
        for (int wanted = 1; wanted >= 0; wanted--) {
            uint32_t before = workers_barriers(f.workers);
            uint32_t want = 1 + per_layer * LAYERS - (wanted ? 0 : per_layer - 1);
            model_forward(f.m, &b, f.kv, f.workers, logits);
            uint32_t met = workers_barriers(f.workers) - before;
            assert_int_equal(met, want);
            for (uint32_t r = b.n_logits = 0; r < b.n_rows; r++)
                rows[r].logits_row = -1;
        }
        seq_close(&s, f.kv);
        fixture_close(&f);
    }
}

/* Decode rows and the prefill of others in one batch: each row's bits are those it has alone. */
static void test_company(void **state)
{
    enum { SEQS = 5, LONG = 300 };
    static const uint32_t held[SEQS] = {LONG, 17, 255, 0, 31}, more[SEQS] = {1, 1, 1, 70, 2};
    static float alone[SEQS][(LONG + 80) * VOCAB], got[100 * VOCAB], scratch[LONG * VOCAB];
    (void)state;
    for (int round = 0; round < 2 * KV_TYPES; round++) { /* llama, GPT-2 */
        enum kv_type type = (enum kv_type)(round / 2);
        uint32_t ids[SEQS][LONG + 80];
        struct batch_row rows[100];
        struct seq seqs[SEQS];
        struct fixture f;
        struct batch b = {rows, 0, 0};
        fixture_open(&f, &kinds[round % 2 ? 0 : 2], 2, 16, type);
        for (uint32_t i = 0; i < SEQS; i++) {
            make_ids(ids[i], held[i] + more[i], 100 * i);
            run(&f, ids[i], held[i] + more[i], LONG, alone[i]);
        }
        for (uint32_t i = 0; i < SEQS; i++) {
            open_seq(&f, &seqs[i]);
            struct batch past = {rows, 0, 0};
            for (uint32_t at = 0; at < held[i]; at += past.n_rows) {
                past.n_rows = past.n_logits = 0;
                push(&past, rows, &seqs[i], ids[i] + at, held[i] - at < 50 ? held[i] - at : 50);
                model_forward(f.m, &past, f.kv, f.workers, scratch);
                seqs[i].n_tokens += past.n_rows;
            }
        }
        for (uint32_t i = 0; i < SEQS; i++)
            push(&b, rows, &seqs[i], ids[i] + held[i], more[i]);
        model_forward(f.m, &b, f.kv, f.workers, got);
        for (uint32_t i = 0, r = 0; i < SEQS; r += more[i++])
            assert_memory_equal(got + (size_t)r * VOCAB, alone[i] + (size_t)held[i] * VOCAB,
                                more[i] * VOCAB * sizeof(float));
        /* and only the wanted rows, in order */
        for (uint32_t r = b.n_logits = 0; r < b.n_rows; r++)
            rows[r].logits_row = r % 7 == 3 ? (int32_t)b.n_logits++ : -1;
        model_forward(f.m, &b, f.kv, f.workers, scratch);
        for (uint32_t r = 3, i = 0; r < b.n_rows; r += 7, i++)
            assert_memory_equal(scratch + (size_t)i * VOCAB, got + (size_t)r * VOCAB,
                                VOCAB * sizeof(float));
        for (uint32_t i = 0; i < SEQS; i++)
            seq_close(&seqs[i], f.kv);
        fixture_close(&f);
    }
}

/* ---- refusals ---- */

static void set_u32(struct gguf *g, const struct kind *k, const char *name, uint32_t v)
{
    gguf_u32(g, key(k, name), v);
}

/* Opens a llama with the keys and tensors of `change` beside its own; the error must say `want`. */
static void refuse(void (*change)(struct gguf *g), bool keys, bool tensors, const char *want)
{
    struct gguf g = {0};
    struct error err = {0};
    struct hparams h;
    const struct kind *k = &kinds[2];
    if (keys)
        write_keys(&g, k);
    if (tensors)
        write_tensors(&g, k);
    change(&g);
    struct checkpoint *c = reopen(&g, &err);
    struct workers *workers = workers_open(1, &err);
    struct model_options o = {.max_rows = 1, .max_logits = 1, .max_context = 16};
    assert_non_null(workers);
    if (hparams_read(&h, c, &err) == 0) {
        assert_null(model_open(c, &h, &o, workers, &err));
        assert_int_equal(model_weight_bytes(c, &h), 0);
    }
    if (!strstr(err.text, want))
        fail_msg("got \"%s\", want \"%s\"", err.text, want);
    workers_close(workers);
    checkpoint_close(c);
    assert_int_equal(mem_held(MEM_WEIGHTS), 0);
}

static const struct kind *const llama = &kinds[2];
static void no_change(struct gguf *g) { (void)g; }
static void unknown_arch(struct gguf *g) { gguf_str(g, "general.architecture", "mamba"); }
static void experts(struct gguf *g) { set_u32(g, llama, "expert_count", 8); }
static void window(struct gguf *g) { set_u32(g, llama, "attention.sliding_window", 64); }
static void yarn(struct gguf *g) { gguf_str(g, "llama.rope.scaling.type", "yarn"); }
static void factor(struct gguf *g) { gguf_f32(g, "llama.rope.scaling.factor", 4); }
static void freqs(struct gguf *g) { add(g, "rope_freqs.weight", ROPE / 2, 0); }
static void softcap(struct gguf *g) { gguf_f32(g, "llama.attn_logit_softcapping", 50); }
static void not_causal(struct gguf *g) { gguf_bool(g, "llama.attention.causal", false); }
static void vocab(struct gguf *g) { set_u32(g, llama, "vocab_size", VOCAB + 1); }
static void values(struct gguf *g) { set_u32(g, llama, "attention.value_length", HEAD + 1); }
static void stranger(struct gguf *g) { add(g, "blk.0.attn_q_norm.weight", HEAD, 0); }
static void third_layer(struct gguf *g) { add(g, "blk.2.attn_norm.weight", DIM, 0); }
static void wrong_shape(struct gguf *g)
{
    write_keys(g, llama);
    add(g, "token_embd.weight", VOCAB, DIM);
    add(g, "output_norm.weight", DIM + 1, 0);
}
static void missing(struct gguf *g)
{
    write_keys(g, llama);
    add(g, "token_embd.weight", VOCAB, DIM);
}
static void wrong_matrix(struct gguf *g)
{
    missing(g);
    add(g, "output_norm.weight", DIM, 0);
    add(g, "blk.0.attn_norm.weight", DIM, 0);
    add(g, "blk.0.ffn_norm.weight", DIM, 0);
    add(g, "blk.0.attn_q.weight", KV_DIM, DIM);
}
static void groups(struct gguf *g)
{
    gguf_str(g, "general.architecture", "llama");
    set_u32(g, llama, "block_count", 1);
    set_u32(g, llama, "embedding_length", DIM);
    set_u32(g, llama, "feed_forward_length", FF);
    set_u32(g, llama, "context_length", CTX);
    set_u32(g, llama, "attention.head_count", 6);
    set_u32(g, llama, "attention.head_count_kv", 4);
}
/* More than 0 in the file, 0 as a float: its powers would be infinite. */
static void base_of_nothing(struct gguf *g)
{
    gguf_str(g, "general.architecture", "llama");
    set_u32(g, llama, "block_count", 1);
    set_u32(g, llama, "embedding_length", DIM);
    set_u32(g, llama, "feed_forward_length", FF);
    set_u32(g, llama, "context_length", CTX);
    set_u32(g, llama, "attention.head_count", 5);
    gguf_raw(g, "llama.rope.freq_base", 12, &(double){1e-50}, sizeof(double));
}

static void test_refusals(void **state)
{
    (void)state;
    refuse(no_change, false, true, "no key general.architecture");
    refuse(unknown_arch, false, true, "unknown architecture \"mamba\", known are gpt2, llama");
    refuse(experts, true, true, "llama.expert_count is 8: mixtures of experts");
    refuse(window, true, true, "attention.sliding_window is 64, less than the context of 400");
    refuse(yarn, true, true, "rope.scaling.type is \"yarn\"");
    refuse(factor, true, true, "rope.scaling.factor is 4");
    refuse(freqs, true, true, "rope_freqs.weight");
    refuse(softcap, true, true, "attn_logit_softcapping is 50");
    refuse(not_causal, true, true, "attention.causal is false");
    refuse(vocab, true, true, "vocab_size is 38, tensor token_embd.weight has 37");
    refuse(values, true, true, "value_length is 7, keys have 6");
    refuse(stranger, true, true, "tensor blk.0.attn_q_norm.weight is no part of a llama");
    refuse(third_layer, true, true, "tensor blk.2.attn_norm.weight is no part of a llama");
    refuse(wrong_shape, false, false, "output_norm.weight is [81] of 1 dimensions, wanted [80]");
    refuse(missing, false, false, "no tensor output_norm.weight");
    refuse(wrong_matrix, false, false,
           "blk.0.attn_q.weight is [12, 80] of 2 dimensions, wanted [36, 80]");
    refuse(groups, false, true, "head_count_kv is 4: 6 heads");
    refuse(base_of_nothing, false, true, "rope.freq_base is 1e-50, wanted a number from 1e-30");
}

/* Loading gives up between tensors. */
static void test_stop(void **state)
{
    struct gguf g = {0};
    struct error err = {0};
    struct hparams h;
    atomic_bool stop = true;
    struct model_options o = {.max_rows = 1, .max_logits = 1, .max_context = 16, .stop = &stop};
    (void)state;
    write_keys(&g, llama);
    write_tensors(&g, llama);
    struct checkpoint *c = reopen(&g, &err);
    struct workers *workers = workers_open(2, &err);
    assert_non_null(workers);
    assert_int_equal(hparams_read(&h, c, &err), 0);
    assert_null(model_open(c, &h, &o, workers, &err));
    assert_int_equal(err.code, ERR_DRAINING);
    assert_int_equal(mem_held(MEM_WEIGHTS), 0);
    stop = false;
    struct model *m = model_open(c, &h, &o, workers, &err);
    assert_non_null(m);
    model_close(m);
    workers_close(workers);
    checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_every_bias),
        cmocka_unit_test(test_bits),       cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_company),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
