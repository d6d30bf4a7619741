/* [base] what subcommands need of the engine's parts: a vocabulary, a description, logits, figures.
 * Logits and figures go through the same opening, pages, batches and kernels as the server's. */
#include "core/tool.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/kernel/cpu.h"
#include "core/kv/seq.h"
#include "core/model/arch.h"
#include "core/open.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { CHUNK = 512 }; /* rows of a prefill step where nobody said */

struct text *tool_text(const char *model, struct error *err)
{
    struct checkpoint *c = checkpoint_open(model, err);
    if (!c)
        return NULL;
    struct text *text = text_open(c, err);
    checkpoint_close(c);
    return text;
}

int tool_model_open(const char *model, struct tool_model *m, struct error *err)
{
    struct hparams h = {0};
    const char *arch = "";
    size_t n = 0;
    *m = (struct tool_model){.arch = ""};
    m->checkpoint = checkpoint_open(model, err);
    if (!m->checkpoint)
        return -1;
    m->n_params = open_count_types(m->checkpoint, true, m->types, sizeof(m->types));
    if (meta_str(m->checkpoint, "general.architecture", &arch, &n)) {
        char *name = mem_new(n + 1, 1);
        if (!name) {
            tool_model_close(m);
            return error_set(err, ERR_NO_MEMORY, "no memory for the keys of %s", model);
        }
        memcpy(name, arch, n);
        m->arch = name;
    }
    m->known = hparams_read(&h, m->checkpoint, &m->why_unknown) == 0;
    m->n_layers = h.n_layers;
    m->dim = h.dim;
    m->n_heads = h.n_heads;
    m->n_kv_heads = h.n_kv_heads;
    m->head_dim = h.head_dim;
    m->ff_dim = h.ff_dim;
    m->n_vocab = h.n_vocab;
    m->n_ctx = h.n_ctx;
    return 0;
}

void tool_model_close(struct tool_model *m)
{
    checkpoint_close(m->checkpoint);
    if (m->arch && m->arch[0])
        free((void *)m->arch);
    *m = (struct tool_model){.arch = ""};
}

/* A model and the timelines that a tool runs through it. */
struct bench {
    struct opened o;
    struct seq *seqs; /* [n_seqs] */
    uint32_t n_seqs;
    struct batch_row *rows; /* [o.max_rows] */
};

static void bench_close(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_seqs; i++)
        seq_close(&b->seqs[i], b->o.kv);
    free(b->seqs);
    free(b->rows);
    open_close(&b->o);
}

/* Opens the model with n_seqs empty timelines that have their pages for n_tokens. */
static int bench_open(struct bench *b, const struct open_options *options, uint32_t n_seqs,
                      uint32_t n_tokens, struct error *err)
{
    struct engine_options e = *options->engine;
    struct open_options mine = *options;
    *b = (struct bench){0};
    e.max_running = n_seqs;
    mine.engine = &e;
    if (open_model(&b->o, &mine, err))
        return -1;
    if (n_tokens > b->o.info.context) {
        error_set_context(err, n_tokens, b->o.info.context);
        goto failed;
    }
    b->seqs = mem_new(n_seqs, sizeof(*b->seqs));
    b->rows = mem_new(options->max_rows, sizeof(*b->rows));
    if (!b->seqs || !b->rows) {
        error_set(err, ERR_NO_MEMORY, "no memory for %u timelines", n_seqs);
        goto failed;
    }
    for (; b->n_seqs < n_seqs; b->n_seqs++) {
        struct seq *s = &b->seqs[b->n_seqs];
        if (seq_open(s, b->o.kv, n_tokens, err))
            goto failed;
        if (!seq_reserve(s, b->o.kv, n_tokens)) {
            seq_close(s, b->o.kv);
            error_set(err, ERR_NO_MEMORY,
                      "%u timelines of %u tokens do not fit into %u pages of %u tokens", n_seqs,
                      n_tokens, b->o.kv->n_pages, b->o.info.page_tokens);
            goto failed;
        }
        seq_cover(s, b->o.kv, n_tokens);
    }
    return 0;
failed:
    bench_close(b);
    return -1;
}

/* Appends n tokens to a timeline in one step; logits of all of them, or of none. */
static void bench_append(struct bench *b, struct seq *s, const uint32_t *ids, uint32_t n,
                         bool logits)
{
    for (uint32_t i = 0; i < n; i++)
        b->rows[i] = (struct batch_row){.token = ids[i],
                                        .pos = s->n_tokens + i,
                                        .seq = s,
                                        .logits_row = logits ? (int32_t)i : -1};
    struct batch batch = {b->rows, n, logits ? n : 0};
    model_forward(b->o.model, &batch, b->o.kv, b->o.workers, b->o.logits);
    s->n_tokens += n;
}

static int check_ids(const struct tool_logits *job, const struct opened *o, struct error *err)
{
    for (uint32_t i = 0; i < job->n_ids; i++)
        if (job->ids[i] >= o->info.n_vocab)
            return error_set_field(err, ERR_INVALID, "tokens",
                                   "token %u (number %u) is not in the vocabulary of %u",
                                   job->ids[i], i + 1, o->info.n_vocab);
    return 0;
}

static int write_logits(FILE *out, const float *logits, size_t n, struct error *err)
{
    uint32_t block[1024];
    for (size_t at = 0; at < n;) {
        size_t k = n - at < 1024 ? n - at : 1024;
        memcpy(block, logits + at, k * sizeof(*block));
        for (size_t i = 0; i < k; i++)
            block[i] = htole32(block[i]);
        if (fwrite(block, sizeof(*block), k, out) != k)
            return error_set(err, ERR_IO, "cannot write logits: %s", strerror(errno));
        at += k;
    }
    return 0;
}

int tool_logits(const struct tool_logits *job, struct error *err)
{
    struct bench b;
    struct engine_options e = job->engine;
    uint32_t chunk = job->decode ? 1 : e.prefill_chunk ? e.prefill_chunk : CHUNK;
    int rc = -1;
    if (job->n_ids < 1)
        return error_set_field(err, ERR_INVALID, "tokens", "no tokens: name at least one");
    chunk = chunk < job->n_ids ? chunk : job->n_ids;
    e.model = job->model;
    struct open_options options = {.engine = &e, .max_rows = chunk, .max_logits = chunk};
    if (bench_open(&b, &options, 1, job->n_ids, err))
        return -1;
    if (check_ids(job, &b.o, err))
        goto out;
    for (uint32_t at = 0; at < job->n_ids; at += chunk) {
        uint32_t n = job->n_ids - at < chunk ? job->n_ids - at : chunk;
        bench_append(&b, &b.seqs[0], job->ids + at, n, true);
        if (write_logits(job->out, b.o.logits, (size_t)n * b.o.info.n_vocab, err))
            goto out;
    }
    if (fflush(job->out) != 0) {
        error_set(err, ERR_IO, "cannot write logits: %s", strerror(errno));
        goto out;
    }
    rc = 0;
out:
    bench_close(&b);
    return rc;
}

/* Any token will do: spread over the vocabulary, the same every time. */
static uint32_t some_token(const struct bench *b, uint32_t i)
{
    return (uint32_t)((i + 1) * (uint64_t)2654435761u % b->o.info.n_vocab);
}

/* Computes the prompt of the first timeline in steps; its tokens a second. */
static double time_prefill(struct bench *b, uint32_t n_tokens, uint32_t chunk, uint32_t *ids)
{
    struct seq *s = &b->seqs[0];
    for (uint32_t i = 0; i < n_tokens; i++)
        ids[i] = some_token(b, i);
    bench_append(b, s, ids, n_tokens < chunk ? n_tokens : chunk, false); /* warms up */
    s->n_tokens = 0;
    uint64_t begin = clock_ns();
    while (s->n_tokens < n_tokens) {
        uint32_t left = n_tokens - s->n_tokens;
        bench_append(b, s, ids + s->n_tokens, left < chunk ? left : chunk, false);
    }
    return n_tokens / ((double)(clock_ns() - begin) / 1e9);
}

/* The other timelines get copies of the first one's pages: as if each had computed its own. */
static void copy_prompt(struct bench *b, uint32_t n_tokens)
{
    for (uint32_t i = 1; i < b->n_seqs; i++) {
        for (uint32_t p = 0; p < kv_pages_of(b->o.kv, n_tokens); p++)
            kv_page_copy(b->o.kv, b->seqs[i].pages[p], b->seqs[0].pages[p], b->o.info.page_tokens);
        b->seqs[i].n_tokens = n_tokens;
    }
}

/* Decodes one token of every timeline at a time; tokens a second, summed. */
static double time_decode(struct bench *b, uint32_t n_steps)
{
    struct batch batch = {b->rows, b->n_seqs, b->n_seqs};
    uint64_t begin = clock_ns();
    for (uint32_t step = 0; step < n_steps; step++) {
        for (uint32_t i = 0; i < b->n_seqs; i++)
            b->rows[i] = (struct batch_row){.token = some_token(b, step * b->n_seqs + i),
                                            .pos = b->seqs[i].n_tokens,
                                            .seq = &b->seqs[i],
                                            .logits_row = (int32_t)i};
        model_forward(b->o.model, &batch, b->o.kv, b->o.workers, b->o.logits);
        for (uint32_t i = 0; i < b->n_seqs; i++)
            b->seqs[i].n_tokens++;
    }
    return (double)n_steps * b->n_seqs / ((double)(clock_ns() - begin) / 1e9);
}

static int check_bench(const struct tool_bench *job, struct error *err)
{
    static const uint32_t max = 1u << 24;
    if (job->batch < 1 || job->batch > 4096)
        return error_set_field(err, ERR_USAGE, "batch", "batch is %u, allowed are 1 to 4096",
                               job->batch);
    if (job->prefill > max || job->decode > max || job->prefill + job->decode < 1)
        return error_set_field(err, ERR_USAGE, "prefill",
                               "prefill and decode are %u and %u, allowed are 0 to %u, not both 0",
                               job->prefill, job->decode, max);
    return 0;
}

int tool_bench(struct tool_bench *job, struct error *err)
{
    struct bench b;
    struct engine_options e = job->engine;
    uint32_t chunk = e.prefill_chunk ? e.prefill_chunk : CHUNK;
    uint32_t max_rows = chunk > job->batch ? chunk : job->batch;
    if (check_bench(job, err))
        return -1;
    e.model = job->model;
    struct open_options options = {.engine = &e, .max_rows = max_rows, .max_logits = job->batch};
    double begin = clock_ms();
    if (bench_open(&b, &options, job->batch, job->prefill + job->decode, err))
        return -1;
    job->load_ms = clock_ms() - begin;
    job->weight_bytes = mem_held(MEM_WEIGHTS);
    job->prefill_tok_s = job->decode_tok_s = 0;
    uint32_t *ids = mem_new((size_t)job->prefill + 1, sizeof(*ids));
    if (!ids) {
        bench_close(&b);
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", job->prefill);
    }
    if (job->prefill)
        job->prefill_tok_s = time_prefill(&b, job->prefill, chunk, ids);
    copy_prompt(&b, job->prefill);
    if (job->decode)
        job->decode_tok_s = time_decode(&b, job->decode);
    free(ids);
    bench_close(&b);
    return 0;
}

void tool_tables(struct str *architectures, struct str *types)
{
    for (int i = 0; i < ARCH_COUNT; i++)
        str_addf(architectures, "%s%s", i ? ", " : "", arch_table[i]->id);
    for (int i = 0; i < QUANT_COUNT; i++)
        str_addf(types, "%s%s", i ? ", " : "", quant_gguf_name(quant_table[i].gguf_id));
}

const char *tool_cpu(struct error *err)
{
    return cpu_init(err) == 0 ? cpu_level_name(cpu_level()) : NULL;
}
