/* [base] a model opened for a subcommand, and timelines that it appends to by hand: no queue, no
 * scheduler, no sampler, but the same pages, batches and kernels as the server's. Private to
 * core/tool*. The thread that opens is worker 0 and the only one that runs batches. */
#pragma once

#include "core/kv/seq.h"
#include "core/open.h"
#include "core/tool.h"

struct tool_run {
    struct opened o;
    struct seq *seqs; /* [n_seqs] */
    uint32_t n_seqs;
    struct batch_row *rows; /* [o.max_rows] */
};

/* Opens the model with n_seqs empty timelines that have their pages for n_tokens. */
int tool_run_open(struct tool_run *run, const struct open_options *options, uint32_t n_seqs,
                  uint32_t n_tokens, struct error *err);
void tool_run_close(struct tool_run *run); /* zeroed is fine */

/* Other timelines in place of those it has: n empty ones that have their pages for n_tokens. */
int tool_run_timelines(struct tool_run *run, uint32_t n, uint32_t n_tokens, struct error *err);

/* ERR_INVALID naming the first id that is not in the vocabulary. */
int tool_run_check(const struct tool_run *run, const uint32_t *ids, uint32_t n, struct error *err);

/* Appends n tokens to a timeline in one step; logits of all of them, or of none, to o.logits. */
void tool_run_append(struct tool_run *run, struct seq *s, const uint32_t *ids, uint32_t n,
                     bool logits);

/* Measures the machine with all workers, within a second; model_bytes: what a step reads. */
int tool_limits(struct tool_limits *limits, struct workers *workers, uint64_t model_bytes,
                struct error *err);
