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

/* bench: how fast the model is here, and how fast the machine could be. */
struct tool_limits {       /* all threads together, a second */
    double memory_bytes_s; /* reading more than the caches hold */
    double model_bytes_s;  /* reading, again and again, as much as a step reads of the weights */
    double int8_ops_s, float_ops_s;
};
struct tool_bench_row {
    const char *section; /* "prefill", "decode" */
    uint32_t tokens;     /* of each sequence */
    uint32_t batch;      /* sequences at once */
    uint32_t context;    /* tokens before these */
    double tok_s;        /* median, summed over the sequences */
    double limit_tok_s;  /* the most that the machine allows; 0: not measured */
};
struct tool_bench {
    const char *model;
    uint32_t prefill, decode;   /* tokens; 0: not measured */
    const uint32_t *batches;    /* [n_batches] sequences decoded at once, */
    uint32_t n_batches, prompt; /* each after so many tokens */
    uint32_t long_context;      /* and one after so many; 0: not measured */
    bool long_shrinks;          /* or as many as the model's context has room for */
    uint32_t repeats;           /* of which the median is taken */
    bool with_limits;
    struct engine_options engine;
    void (*say)(const struct tool_bench *job, const struct tool_bench_row *row); /* as they come */
    void *arg;                                                                   /* the caller's */
    /* known before the first row */
    struct tool_limits limits; /* zeros: not measured */
    double load_ms;            /* until the model and its vocabulary could be used */
    uint64_t weight_bytes;
    uint32_t threads;
    const char *cpu_level;
    /* known at the end */
    uint64_t resident_bytes, beyond_bytes; /* beyond: neither weights nor keys and values */
};
int tool_bench(struct tool_bench *job, struct error *err);

/* bench --accuracy: what rounded activations cost. The text is cut into windows, each a timeline of
 * its own; the logits of all positions are compared with those of float activations. */
enum { TOOL_ACCURACIES = 3 };
struct tool_accuracy_of {
    const char *activations;        /* "float", "int8", "int16" */
    double mean_kl, p99_kl, max_kl; /* of float's distribution to this one, nats */
    double flips;      /* share of the positions where another token is the likeliest */
    double perplexity; /* of the text, windows' first tokens excepted */
};
struct tool_accuracy {
    const char *model;
    const char *text; /* UTF-8 [n_text] */
    size_t n_text;
    uint32_t window;              /* tokens, 2 or more */
    struct engine_options engine; /* activations is not looked at */
    /* results */
    uint32_t n_tokens, n_predicted;
    struct tool_accuracy_of of[TOOL_ACCURACIES];
};
int tool_accuracy(struct tool_accuracy *job, struct error *err);
