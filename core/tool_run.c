/* [base] a model and the timelines that a tool runs through it. */
#include "core/tool_run.h"

#include "core/base/mem.h"

static void close_timelines(struct tool_run *run)
{
    for (uint32_t i = 0; i < run->n_seqs; i++)
        seq_close(&run->seqs[i], run->o.kv);
    free(run->seqs);
    run->seqs = NULL;
    run->n_seqs = 0;
}

void tool_run_close(struct tool_run *run)
{
    close_timelines(run);
    free(run->rows);
    run->rows = NULL;
    open_close(&run->o);
}

int tool_run_timelines(struct tool_run *run, uint32_t n, uint32_t n_tokens, struct error *err)
{
    close_timelines(run);
    if (n_tokens > run->o.info.context)
        return error_set_context(err, n_tokens, run->o.info.context);
    run->seqs = mem_new(n, sizeof(*run->seqs));
    if (!run->seqs)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u timelines", n);
    for (; run->n_seqs < n; run->n_seqs++) {
        struct seq *s = &run->seqs[run->n_seqs];
        if (seq_open(s, run->o.kv, n_tokens, err))
            return -1;
        if (!seq_reserve(s, run->o.kv, n_tokens)) {
            seq_close(s, run->o.kv);
            return error_set(err, ERR_NO_MEMORY,
                             "%u timelines of %u tokens do not fit into %u pages of %u tokens", n,
                             n_tokens, run->o.kv->n_pages, run->o.info.page_tokens);
        }
        seq_cover(s, run->o.kv, n_tokens);
    }
    return 0;
}

int tool_run_open(struct tool_run *run, const struct open_options *options, uint32_t n_seqs,
                  uint32_t n_tokens, struct error *err)
{
    struct engine_options e = *options->engine;
    struct open_options mine = *options;
    *run = (struct tool_run){0};
    e.max_running = n_seqs ? n_seqs : e.max_running;
    mine.engine = &e;
    if (open_model(&run->o, &mine, err))
        return -1;
    run->rows = mem_new(options->max_rows, sizeof(*run->rows));
    if (!run->rows)
        error_set(err, ERR_NO_MEMORY, "no memory for %u rows", options->max_rows);
    if (run->rows && tool_run_timelines(run, n_seqs, n_tokens, err) == 0)
        return 0;
    tool_run_close(run);
    return -1;
}

int tool_run_check(const struct tool_run *run, const uint32_t *ids, uint32_t n, struct error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= run->o.info.n_vocab)
            return error_set_field(err, ERR_INVALID, "tokens",
                                   "token %u (number %u) is not in the vocabulary of %u", ids[i],
                                   i + 1, run->o.info.n_vocab);
    return 0;
}

void tool_run_append(struct tool_run *run, struct seq *s, const uint32_t *ids, uint32_t n,
                     bool logits)
{
    for (uint32_t i = 0; i < n; i++)
        run->rows[i] = (struct batch_row){.token = ids[i],
                                          .pos = s->n_tokens + i,
                                          .seq = s,
                                          .logits_row = logits ? (int32_t)i : -1};
    struct batch batch = {run->rows, n, logits ? n : 0};
    model_forward(run->o.model, &batch, run->o.kv, run->o.workers, run->o.logits);
    s->n_tokens += n;
}
