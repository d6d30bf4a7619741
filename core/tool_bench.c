/* [base] what `attend bench` times. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/tool.h"
#include "core/tool_run.h"

enum { CHUNK = 512 }; /* rows of a prefill step where nobody said */

/* Any token will do: spread over the vocabulary, the same every time. */
static uint32_t some_token(const struct tool_run *b, uint32_t i)
{
    return (uint32_t)((i + 1) * (uint64_t)2654435761u % b->o.info.n_vocab);
}

/* Computes the prompt of the first timeline in steps; its tokens a second. */
static double time_prefill(struct tool_run *b, uint32_t n_tokens, uint32_t chunk, uint32_t *ids)
{
    struct seq *s = &b->seqs[0];
    for (uint32_t i = 0; i < n_tokens; i++)
        ids[i] = some_token(b, i);
    tool_run_append(b, s, ids, n_tokens < chunk ? n_tokens : chunk, false); /* warms up */
    s->n_tokens = 0;
    uint64_t begin = clock_ns();
    while (s->n_tokens < n_tokens) {
        uint32_t left = n_tokens - s->n_tokens;
        tool_run_append(b, s, ids + s->n_tokens, left < chunk ? left : chunk, false);
    }
    return n_tokens / ((double)(clock_ns() - begin) / 1e9);
}

/* The other timelines get copies of the first one's pages: as if each had computed its own. */
static void copy_prompt(struct tool_run *b, uint32_t n_tokens)
{
    for (uint32_t i = 1; i < b->n_seqs; i++) {
        for (uint32_t p = 0; p < kv_pages_of(b->o.kv, n_tokens); p++)
            kv_page_copy(b->o.kv, b->seqs[i].pages[p], b->seqs[0].pages[p], b->o.info.page_tokens);
        b->seqs[i].n_tokens = n_tokens;
    }
}

/* Decodes one token of every timeline at a time; tokens a second, summed. */
static double time_decode(struct tool_run *b, uint32_t n_steps)
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
    struct tool_run b;
    struct engine_options e = job->engine;
    uint32_t chunk = e.prefill_chunk ? e.prefill_chunk : CHUNK;
    uint32_t max_rows = chunk > job->batch ? chunk : job->batch;
    if (check_bench(job, err))
        return -1;
    e.model = job->model;
    struct open_options options = {.engine = &e, .max_rows = max_rows, .max_logits = job->batch};
    double begin = clock_ms();
    if (tool_run_open(&b, &options, job->batch, job->prefill + job->decode, err))
        return -1;
    job->load_ms = clock_ms() - begin;
    job->weight_bytes = mem_held(MEM_WEIGHTS);
    job->prefill_tok_s = job->decode_tok_s = 0;
    uint32_t *ids = mem_new((size_t)job->prefill + 1, sizeof(*ids));
    if (!ids) {
        tool_run_close(&b);
        return error_set(err, ERR_NO_MEMORY, "no memory for %u tokens", job->prefill);
    }
    if (job->prefill)
        job->prefill_tok_s = time_prefill(&b, job->prefill, chunk, ids);
    copy_prompt(&b, job->prefill);
    if (job->decode)
        job->decode_tok_s = time_decode(&b, job->decode);
    free(ids);
    tool_run_close(&b);
    return 0;
}
