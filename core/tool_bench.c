/* [base] what `attend bench` times: prefill, and decode of one and of many timelines, against what
 * the machine could do at most.
 *
 * A step is one forward pass and, in decode, the likeliest token of each row, picked by the
 * sampler on the workers as the scheduler does it. There is no queue, no prefix cache and no
 * speculation. Repeats are medians. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/sort.h"
#include "core/tool.h"
#include "core/tool_run.h"

#include <string.h>
#include <unistd.h>

enum { CHUNK = 512, MAX_REPEATS = 100 }; /* rows of a prefill step where nobody said */

struct bench {
    struct tool_run run;
    struct tool_bench *job;
    struct model_cost cost;
    uint32_t chunk;
    uint32_t *ids;            /* [most tokens of a prompt] */
    uint32_t *next;           /* [most timelines]: the tokens to decode */
    struct sampler **sampler; /* [most timelines] */
    uint32_t n_samplers;
    bool *filled; /* [n_pages]: pages of the cache that were ever used */
};

static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t most_timelines(const struct tool_bench *job)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < job->n_batches; i++)
        n = most(n, job->batches[i]);
    return n;
}

/* Any token will do: spread over the vocabulary, the same every time. */
static uint32_t some_token(const struct bench *b, uint32_t i)
{
    return (uint32_t)((i + 1) * (uint64_t)2654435761u % b->run.o.info.n_vocab);
}

/* n timelines, empty, with pages for n_tokens each. */
static int timelines(struct bench *b, uint32_t n, uint32_t n_tokens, struct error *err)
{
    struct tool_run *run = &b->run;
    if (tool_run_timelines(run, n, n_tokens, err))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t p = 0; p < run->seqs[i].n_pages; p++)
            b->filled[run->seqs[i].pages[p]] = true;
    return 0;
}

/* Computes n tokens at the end of the first timeline in steps. */
static void prefill(struct bench *b, uint32_t n)
{
    for (uint32_t at = 0, k; at < n; at += k) {
        k = n - at < b->chunk ? n - at : b->chunk;
        tool_run_append(&b->run, &b->run.seqs[0], b->ids + at, k, false);
    }
}

/* The other timelines get copies of the first one's pages: as if each had computed its own. */
static void copy_prompt(struct bench *b, uint32_t n_tokens)
{
    struct tool_run *run = &b->run;
    for (uint32_t i = 1; i < run->n_seqs; i++)
        for (uint32_t p = 0; p < kv_pages_of(run->o.kv, n_tokens); p++)
            kv_page_copy(run->o.kv, run->seqs[i].pages[p], run->seqs[0].pages[p],
                         run->o.info.page_tokens);
}

static void pick_worker(const struct worker *w, void *arg)
{
    struct bench *b = arg;
    struct sample_choice choice;
    struct share share = share_begin(w, b->run.n_seqs, 1);
    for (uint32_t i, end; share_take(&share, &i, &end);)
        for (; i < end; i++) {
            sampler_pick(b->sampler[i], b->run.o.logits + (size_t)i * b->run.o.info.n_vocab,
                         b->run.seqs[i].n_tokens, NULL, 0, NULL, 0, &choice);
            b->next[i] = choice.id;
        }
}

/* One token more of every timeline. */
static void decode_step(struct bench *b)
{
    struct tool_run *run = &b->run;
    struct batch batch = {run->rows, run->n_seqs, run->n_seqs};
    for (uint32_t i = 0; i < run->n_seqs; i++)
        run->rows[i] = (struct batch_row){.token = b->next[i],
                                          .pos = run->seqs[i].n_tokens,
                                          .seq = &run->seqs[i],
                                          .logits_row = (int32_t)i};
    model_forward(run->o.model, &batch, run->o.kv, run->o.workers, run->o.logits);
    for (uint32_t i = 0; i < run->n_seqs; i++)
        run->seqs[i].n_tokens++;
    workers_run(run->o.workers, pick_worker, b);
}

static double since(uint64_t begin) { return (double)(clock_ns() - begin) / 1e9; }

static double median(double *v, uint32_t n)
{
    sort_doubles(v, n);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- limits: what each section could be at most, 0 where nobody measured ---- */

static double limit_peak(const struct bench *b)
{
    return b->cost.floats ? b->job->limits.float_ops_s : b->job->limits.int8_ops_s;
}

static double limit_prefill(const struct bench *b)
{
    return limit_peak(b) / (2.0 * (double)b->cost.layer_params);
}

/* Rows share the weights, not their keys and values. */
static double limit_decode(const struct bench *b, uint32_t n_rows, double kv_bytes)
{
    if (!b->job->with_limits)
        return 0;
    double read = ((double)b->cost.step_bytes + n_rows * kv_bytes) / b->job->limits.model_bytes_s;
    double multiply =
        2.0 * (double)(b->cost.layer_params + b->cost.head_params) * n_rows / limit_peak(b);
    return n_rows / (n_rows > 1 && multiply > read ? multiply : read);
}

/* ---- sections ---- */

static void say(struct bench *b, struct tool_bench_row row, double *rates)
{
    row.tok_s = median(rates, b->job->repeats);
    b->job->say(b->job, &row);
}

static int bench_prefill(struct bench *b, struct error *err)
{
    double rates[MAX_REPEATS];
    uint32_t n = b->job->prefill;
    if (timelines(b, 1, n, err))
        return -1;
    prefill(b, n < b->chunk ? n : b->chunk); /* warms up */
    for (uint32_t i = 0; i < b->job->repeats; i++) {
        b->run.seqs[0].n_tokens = 0;
        uint64_t begin = clock_ns();
        prefill(b, n);
        rates[i] = n / since(begin);
    }
    say(b, (struct tool_bench_row){"prefill", n, 1, 0, 0, limit_prefill(b)}, rates);
    return 0;
}

/* Tokens a second of all timelines from `context` tokens on. */
static double decode(struct bench *b, uint32_t n, uint32_t context)
{
    for (uint32_t s = 0; s < n; s++) {
        b->run.seqs[s].n_tokens = context;
        b->next[s] = some_token(b, s);
    }
    uint64_t begin = clock_ns();
    for (uint32_t step = 0; step < b->job->decode; step++)
        decode_step(b);
    return (double)b->job->decode * n / since(begin);
}

/* counts_kv: reading keys and values is part of the limit. */
static int bench_decode(struct bench *b, uint32_t n, uint32_t context, bool counts_kv,
                        struct error *err)
{
    double rates[MAX_REPEATS];
    const struct tool_bench *job = b->job;
    uint32_t steps = job->decode;
    double kv = (context + steps / 2.0) * (double)b->run.o.info.kv_token_bytes;
    if (timelines(b, n, context + steps, err))
        return -1;
    prefill(b, context);
    copy_prompt(b, context);
    decode(b, n, context); /* warms up: the cache's pages are there from now on */
    for (uint32_t i = 0; i < job->repeats; i++)
        rates[i] = decode(b, n, context);
    say(b,
        (struct tool_bench_row){"decode", steps, n, context, 0,
                                limit_decode(b, n, counts_kv ? kv : 0)},
        rates);
    return 0;
}

/* What there is room for of it. */
static uint32_t long_context(const struct bench *b)
{
    const struct tool_bench *job = b->job;
    uint32_t context = b->run.o.info.context;
    uint32_t room = context > job->decode ? context - job->decode : 0;
    return job->long_shrinks && room < job->long_context ? room : job->long_context;
}

static int run_sections(struct bench *b, struct error *err)
{
    const struct tool_bench *job = b->job;
    if (job->prefill && bench_prefill(b, err))
        return -1;
    for (uint32_t i = 0; job->decode && i < job->n_batches; i++)
        if (bench_decode(b, job->batches[i], job->prompt, false, err))
            return -1;
    uint32_t context = long_context(b);
    return job->decode && context ? bench_decode(b, 1, context, true, err) : 0;
}

/* ---- the whole ---- */

static int check(const struct tool_bench *job, struct error *err)
{
    static const uint32_t limit = 1U << 24;
    for (uint32_t i = 0; i < job->n_batches; i++)
        if (job->batches[i] < 1 || job->batches[i] > 4096)
            return error_set_field(err, ERR_USAGE, "batch", "batch is %u, allowed are 1 to 4096",
                                   job->batches[i]);
    if (job->repeats < 1 || job->repeats > MAX_REPEATS)
        return error_set_field(err, ERR_USAGE, "repeat", "repeat is %u, allowed are 1 to %d",
                               job->repeats, MAX_REPEATS);
    if (job->prefill > limit || job->prompt > limit || job->decode > limit ||
        job->long_context > limit)
        return error_set_field(err, ERR_USAGE, "prefill", "at most %u tokens can be measured",
                               limit);
    return 0;
}

/* Resident memory that is neither weights nor keys and values. */
static void read_resident(struct bench *b)
{
    char line[128] = ""; /* sizes in pages: all, resident, ... */
    FILE *f = fopen("/proc/self/statm", "re");
    char *second = f && fgets(line, sizeof(line), f) ? strchr(line, ' ') : NULL;
    uint64_t pages = second ? strtoul(second, NULL, 10) : 0;
    if (f)
        fclose(f);
    uint64_t known = mem_held(MEM_WEIGHTS);
    for (uint32_t i = 0; i < b->run.o.kv->n_pages; i++)
        known += b->filled[i] ? kv_page_bytes(&b->run.o.kv->geometry) : 0;
    b->job->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    b->job->beyond_bytes = b->job->resident_bytes > known ? b->job->resident_bytes - known : 0;
}

static int prepare(struct bench *b, struct error *err)
{
    const struct tool_bench *job = b->job;
    const struct sample_params greedy = {.top_p = 1, .repeat_penalty = 1, .n_logprobs = -1};
    uint32_t n = most_timelines(job);
    uint32_t n_ids = most(most(job->prefill, job->prompt), job->long_context) + 1;
    b->ids = mem_new(n_ids, sizeof(*b->ids));
    b->next = mem_new(n, sizeof(*b->next));
    b->sampler = mem_new(n, sizeof(struct sampler *));
    b->filled = mem_new(b->run.o.kv->n_pages, sizeof(*b->filled));
    if (!b->ids || !b->next || !b->sampler || !b->filled)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", n_ids);
    for (uint32_t i = 0; i < n_ids; i++)
        b->ids[i] = some_token(b, i);
    for (; b->n_samplers < n; b->n_samplers++) {
        b->sampler[b->n_samplers] = sampler_open(&greedy, b->run.o.info.n_vocab, err);
        if (!b->sampler[b->n_samplers])
            return -1;
    }
    return 0;
}

static int open_timed(struct bench *b, struct error *err)
{
    struct tool_bench *job = b->job;
    struct engine_options e = job->engine;
    uint32_t n = most_timelines(job);
    b->chunk = e.prefill_chunk ? e.prefill_chunk : CHUNK;
    e.model = job->model;
    e.max_running = n;
    struct open_options options = {
        .engine = &e, .max_rows = most(b->chunk, n), .max_logits = n, .text = true};
    double begin = clock_ms();
    if (tool_run_open(&b->run, &options, 0, 0, err))
        return -1;
    job->load_ms = clock_ms() - begin;
    job->weight_bytes = mem_held(MEM_WEIGHTS);
    job->threads = b->run.o.info.threads;
    job->cpu_level = b->run.o.info.cpu_level;
    b->cost = model_cost(b->run.o.model);
    return job->with_limits ? tool_limits(&job->limits, b->run.o.workers, b->cost.step_bytes, err)
                            : 0;
}

int tool_bench(struct tool_bench *job, struct error *err)
{
    struct bench b = {.job = job};
    int rc = -1;
    if (check(job, err) || open_timed(&b, err) || prepare(&b, err))
        goto out;
    rc = run_sections(&b, err);
    read_resident(&b);
out:
    for (uint32_t i = 0; i < b.n_samplers; i++)
        sampler_close(b.sampler[i]);
    free(b.sampler);
    free(b.filled);
    free(b.next);
    free(b.ids);
    tool_run_close(&b.run);
    return rc;
}
