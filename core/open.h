/* [base] opening a model, the same for the server (engine.c) and the subcommands (tool.c): file
 * -> shapes -> does it fit into memory? -> workers -> packed weights -> KV pool. Settings of 0
 * are resolved here against the file, the processors and the memory; defaults shrink to what fits
 * and the log says so, explicit values that do not fit are refused with the sum written out.
 *
 * Owner: the thread that opened is worker 0 and the only one that runs batches. */
#pragma once

#include "core/base/error.h"
#include "core/base/workers.h"
#include "core/engine.h"
#include "core/kv/pages.h"
#include "core/load/checkpoint.h"
#include "core/model/model.h"
#include "core/sched/draft.h"
#include "core/text/text.h"

#include <stdatomic.h>
#include <stdint.h>

struct open_options {
    const struct engine_options *engine; /* wake and sessions are not looked at */
    uint32_t max_rows;                   /* of a batch */
    uint32_t max_logits;                 /* rows of logits of a batch */
    bool text;                           /* open the vocabulary too */
    atomic_bool *stop;                   /* NULL, or set by another thread: give up */
    _Atomic uint64_t *heartbeat;         /* NULL, or raised as loading proceeds */
};

/* Not to be moved: info points into it. */
struct opened {
    struct engine_model info; /* its strings live in `names`, path and file_name in `path` */
    struct hparams hparams;
    struct text *text; /* NULL where not asked for */
    struct workers *workers;
    struct model *model;
    struct kv_pool *kv;
    float *logits; /* [max_logits, n_vocab] */
    size_t logits_bytes;
    uint32_t max_rows, max_logits;
    enum activations activations;
    char *path;
    struct {
        char arch[64], types[128], blas[64];
    } names;
};

/* 0, or -1 with *o empty. */
int open_model(struct opened *o, const struct open_options *options, struct error *err);
void open_close(struct opened *o); /* zeroed is fine */

/* Words of settings -> enums; an unknown word is ERR_USAGE with the known ones. */
int open_kv_type(const char *word, enum kv_type *type, struct error *err);
int open_activations(const char *word, enum activations *activations, struct error *err);
int open_blas(const char *word, enum blas_mode *blas, struct error *err);
int open_speculation(const char *word, enum speculation *speculation, struct error *err);

/* "210 Q4_1, 61 F32, 1 Q8_0" (or "Q4_1, F32, Q8_0") of a checkpoint's tensors, most frequent first;
 * returns how many values they have. */
uint64_t open_count_types(const struct checkpoint *c, bool counts, char *types, size_t n_types);

/* How much context and how many pages fit: pure arithmetic. */
struct open_fit {
    uint64_t available, weights, activations; /* bytes */
    uint64_t page_bytes;
    uint32_t page_tokens;
    uint32_t n_ctx;            /* of the model */
    uint32_t max_running;      /* at least 1 */
    uint32_t asked_context;    /* 0 = the model's, at most what fits */
    uint64_t asked_kv;         /* bytes, 0 = what fits */
    uint32_t context, n_pages; /* the answer */
};
int open_fit(struct open_fit *f, struct error *err);
