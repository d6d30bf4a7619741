/* [09 attention] speed of attention over pages, alone: what one layer of a model takes to store K
 * and V of its rows and to read all keys before them. One JSON line per shape, KV type, number of
 * threads and task. bench_attention [TYPE [TASK]], default all.
 *
 * decode: one row at the end of a context; gb_s counts the K and V bytes of its pages. prefill: all
 * rows of a prompt in batches of 512; gflop_s counts 4 head_dim n_heads for each query and key
 * that it may see. One thread is timed by its own processor time, two by the clock. */
#include "core/base/mem.h"
#include "core/base/sort.h"
#include "core/kernel/cpu.h"
#include "core/kernel/ops.h"
#include "core/model/model.h"
#include "core/model/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROWS = 512, MAX_CONTEXT = 8192, PAGE_TOKENS = 64, REPEATS = 7 };

struct shape {
    const char *name;
    uint32_t n_layers, n_heads, n_kv_heads, head_dim;
};

static const struct shape shapes[] = {{"135M", 30, 9, 3, 64}, {"1B", 16, 32, 8, 64}};

struct task {
    const char *name;
    uint32_t n_tokens;
    bool prefill;
};

static const struct task tasks[] = {{"decode", 512, false},
                                    {"decode", 2048, false},
                                    {"decode", 8192, false},
                                    {"prefill", 512, true},
                                    {"prefill", 2048, true}};

struct bed {
    struct model m;
    struct workers *workers;
    struct kv_pool *kv;
    struct seq seq;
    struct batch_row rows[MAX_ROWS];
    struct batch batch;
};

static void *checked(void *p, const struct error *err)
{
    if (!p) {
        fprintf(stderr, "bench_attention: %s\n", err->text);
        exit(1);
    }
    return p;
}

/* Random values of about 1, as any KV type reads them. */
static void fill(struct kv_pool *kv)
{
    uint32_t state = 1;
    uint16_t *half = (uint16_t *)(void *)kv->memory;
    for (size_t i = 0; i < kv->n_pages * kv->page_bytes / sizeof(*half); i++) {
        state = state * 1664525 + 1013904223;
        half[i] = (uint16_t)(0x3800 | (state >> 22) | (state >> 16 & 0x8000));
    }
}

static void bed_open(struct bed *b, const struct shape *s, enum kv_type type, uint32_t n_threads)
{
    struct error err = {0};
    struct kv_geometry g = {s->n_layers, s->n_kv_heads, s->head_dim, PAGE_TOKENS, type};
    memset(b, 0, sizeof(*b));
    b->m.h = (struct hparams){.arch = &arch_llama,
                              .n_layers = s->n_layers,
                              .dim = s->n_heads * s->head_dim,
                              .n_heads = s->n_heads,
                              .n_kv_heads = s->n_kv_heads,
                              .head_dim = s->head_dim,
                              .ff_dim = 64,
                              .n_vocab = 1,
                              .rope_dims = s->head_dim,
                              .rope_theta = 1e5F};
    b->m.max_rows = MAX_ROWS;
    b->m.max_context = MAX_CONTEXT;
    b->m.n_workers = n_threads;
    b->m.w.layers = checked(calloc(s->n_layers, sizeof(*b->m.w.layers)), &err);
    b->workers = checked(workers_open(n_threads, &err), &err);
    b->kv = checked(kv_pool_open(&g, MAX_CONTEXT / PAGE_TOKENS, &err), &err);
    if (model_buffers_open(&b->m, &err) || seq_open(&b->seq, b->kv, MAX_CONTEXT, &err))
        checked(NULL, &err);
    if (!seq_reserve(&b->seq, b->kv, MAX_CONTEXT))
        abort();
    seq_cover(&b->seq, b->kv, MAX_CONTEXT);
    size_t width = (size_t)(s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    for (size_t i = 0; i < MAX_ROWS * width; i++)
        b->m.act.qkv[i] = (float)((i * 2654435761U) >> 8 & 0xFFFF) * 0x1p-15F - 1;
    fill(b->kv);
    b->batch.rows = b->rows;
}

static void bed_close(struct bed *b)
{
    seq_close(&b->seq, b->kv);
    kv_pool_close(b->kv);
    model_buffers_close(&b->m);
    free(b->m.w.layers);
    workers_close(b->workers);
}

/* What embed_rows prepares for attention. */
static void turn_rows(const struct step *s)
{
    uint32_t dims = s->m->h.rope_dims;
    struct share share = share_begin(s->worker, s->batch->n_rows, 1);
    for (uint32_t r, end; share_take(&share, &r, &end);)
        for (; r < end; r++)
            ops_rope_turn(s->a->turn + (size_t)r * dims, s->batch->rows[r].pos, s->m->freq,
                          dims / 2);
}

static void all_layers(const struct worker *worker, void *arg)
{
    struct bed *b = arg;
    struct step s = step_begin(&b->m, worker, &b->batch, b->kv);
    const struct hparams *h = &b->m.h;
    uint32_t begin, end, heads = h->n_heads + 2 * h->n_kv_heads;
    turn_rows(&s);
    worker_barrier(worker);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        struct share share = share_begin(worker, heads, 1);
        while (share_take(&share, &begin, &end))
            attention_keep(&s, layer, begin * h->head_dim, end * h->head_dim);
        worker_barrier(worker);
        attention_apply(&s, layer);
    }
}

static void run_rows(struct bed *b, uint32_t pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        b->rows[i] = (struct batch_row){0, pos + i, &b->seq, (int32_t)i};
    b->batch.n_rows = b->batch.n_logits = n;
    plan_batch(&b->m, &b->batch, b->kv);
    workers_run(b->workers, all_layers, b);
}

static void run(struct bed *b, const struct task *t)
{
    if (!t->prefill)
        run_rows(b, t->n_tokens - 1, 1);
    for (uint32_t pos = 0; t->prefill && pos < t->n_tokens; pos += MAX_ROWS)
        run_rows(b, pos, MAX_ROWS);
}

static double now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The median of REPEATS, each of at least 20 ms. */
static double measure_ns(struct bed *b, const struct task *t)
{
    clockid_t clock = b->m.n_workers == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    double ns[REPEATS];
    run(b, t);
    for (int i = 0; i < REPEATS; i++) {
        double begin = now_ns(clock);
        uint32_t n = 0;
        for (; !n || now_ns(clock) - begin < 2e7; n++)
            run(b, t);
        ns[i] = (now_ns(clock) - begin) / n;
    }
    sort_doubles(ns, REPEATS);
    return ns[REPEATS / 2];
}

static void bench(struct bed *b, const struct shape *s, const char *type, const struct task *t)
{
    double ns = measure_ns(b, t), n = t->n_tokens, layers = s->n_layers;
    double bytes = n * (double)kv_token_bytes(&b->kv->geometry);
    double ops = 4.0 * s->head_dim * s->n_heads * layers * (n * (n + 1) / 2);
    printf("{\"bench\":\"attention\",\"shape\":\"%s\",\"kv\":\"%s\",\"threads\":%u,"
           "\"task\":\"%s\",\"tokens\":%u,\"ms\":%.3f,\"ns_token_layer\":%.0f,\"%s\":%.1f}\n",
           s->name, type, b->m.n_workers, t->name, t->n_tokens, ns / 1e6,
           ns / layers / (t->prefill ? n : 1), t->prefill ? "gflop_s" : "gb_s",
           (t->prefill ? ops : bytes) / ns);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const char *const types[] = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8] = "q8"};
    static struct bed bed;
    struct error err = {0};
    if (cpu_init(&err))
        checked(NULL, &err);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (size_t type = 0; type < sizeof(types) / sizeof(*types); type++)
            for (uint32_t n_threads = 1; n_threads <= 2; n_threads++) {
                if (argc > 1 && strcmp(argv[1], types[type]) != 0)
                    continue;
                bed_open(&bed, &shapes[i], type, n_threads);
                for (size_t t = 0; t < sizeof(tasks) / sizeof(*tasks); t++)
                    if (argc < 3 || strcmp(argv[2], tasks[t].name) == 0)
                        bench(&bed, &shapes[i], types[type], &tasks[t]);
                bed_close(&bed);
            }
    return 0;
}
