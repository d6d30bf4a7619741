/* [base] the engine's other door, for subcommands: describe, tokenise, render, logits. Each call
 * stands alone: opens what it needs, on the caller's thread. */
#pragma once

#include "core/base/error.h"
#include "core/base/str.h"
#include "core/engine.h"
#include "core/load/checkpoint.h"
#include "core/text/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The vocabulary of a model file (tensors not needed). text_close when done. */
struct text *tool_text(const char *model, struct error *err);

struct tool_logits {
    const char *model;
    const uint32_t *ids;
    uint32_t n_ids;
    bool decode; /* one token at a time, else one prefill (in steps of prefill_chunk, 0 = 512) */
    struct engine_options
        engine; /* threads, context, kv_type, page_tokens, prefill_chunk, activations, blas */
    FILE *out;  /* float32 little endian [n_ids, n_vocab] */
};
/* As the server would compute them: the same pages, batches and kernels. */
int tool_logits(const struct tool_logits *job, struct error *err);

/* inspect: the file's keys, shapes, sizes. model may be a vocabulary alone. */
struct tool_model {
    struct checkpoint *checkpoint; /* of tool_model_close */
    const char *arch;              /* "" where it is unknown */
    bool known;                    /* hparams are valid */
    uint32_t n_layers, dim, n_heads, n_kv_heads, head_dim, ff_dim, n_vocab, n_ctx;
    uint64_t n_params;
    char types[128]; /* "210 Q4_1, 61 F32, 1 Q8_0" */
    struct error why_unknown;
};
int tool_model_open(const char *model, struct tool_model *m, struct error *err);
void tool_model_close(struct tool_model *m);

/* The rows of the tables, for the README and --version: "gpt2, llama" and "F32, F16, ...". */
void tool_tables(struct str *architectures, struct str *types);

/* For --version: the CPU level whose kernels will run ($ATTEND_CPU counts); NULL with *err. */
const char *tool_cpu(struct error *err);

/* bench: one JSON-able row per measurement. */
struct tool_bench {
    const char *model;
    uint32_t prefill, decode; /* tokens */
    uint32_t batch;           /* sequences decoded at once */
    struct engine_options engine;
    /* results */
    double prefill_tok_s, decode_tok_s; /* decode: summed over the sequences */
    double load_ms;
    uint64_t weight_bytes;
};
int tool_bench(struct tool_bench *job, struct error *err);
