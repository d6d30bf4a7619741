/* [base] a model and the timelines that a tool runs through it. */
#include "core/tool_run.h"

#include "core/base/mem.h"

void tool_run_close(struct tool_run *run)
{
    for (uint32_t i = 0; i < run->n_seqs; i++)
        seq_close(&run->seqs[i], run->o.kv);
    free(run->seqs);
    free(run->rows);
    open_close(&run->o);
}

int tool_run_open(struct tool_run *run, const struct open_options *options, uint32_t n_seqs,
                  uint32_t n_tokens, struct error *err)
{
    struct engine_options e = *options->engine;
    struct open_options mine = *options;
    *run = (struct tool_run){0};
    e.max_running = n_seqs;
    mine.engine = &e;
    if (open_model(&run->o, &mine, err))
        return -1;
    if (n_tokens > run->o.info.context) {
        error_set_context(err, n_tokens, run->o.info.context);
        goto failed;
    }
    run->seqs = mem_new(n_seqs, sizeof(*run->seqs));
    run->rows = mem_new(options->max_rows, sizeof(*run->rows));
    if (!run->seqs || !run->rows) {
        error_set(err, ERR_NO_MEMORY, "no memory for %u timelines", n_seqs);
        goto failed;
    }
    for (; run->n_seqs < n_seqs; run->n_seqs++) {
        struct seq *s = &run->seqs[run->n_seqs];
        if (seq_open(s, run->o.kv, n_tokens, err))
            goto failed;
        if (!seq_reserve(s, run->o.kv, n_tokens)) {
            seq_close(s, run->o.kv);
            error_set(err, ERR_NO_MEMORY,
                      "%u timelines of %u tokens do not fit into %u pages of %u tokens", n_seqs,
                      n_tokens, run->o.kv->n_pages, run->o.info.page_tokens);
            goto failed;
        }
        seq_cover(s, run->o.kv, n_tokens);
    }
    return 0;
failed:
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
