/* [12 block] The transformer: weights packed for this machine, and one function that runs a batch
 * through it. Owner: engine.c (or tool.c). model_forward: ON_ENGINE, uses all workers; nothing is
 * allocated in it. */
#pragma once

#include "core/base/error.h"
#include "core/base/workers.h"
#include "core/kernel/matmul.h"
#include "core/kv/pages.h"
#include "core/load/checkpoint.h"
#include "core/model/batch.h"
#include "core/model/hparams.h"

#include <stdatomic.h>

struct model;

enum blas_mode { BLAS_AUTO, BLAS_OFF };

struct model_options {
    enum activations activations;
    enum blas_mode blas;
    uint32_t max_rows;           /* of a batch */
    uint32_t max_logits;         /* of a batch */
    uint32_t max_context;        /* positions */
    atomic_bool *stop;           /* NULL, or: set by another thread to give up loading */
    _Atomic uint64_t *heartbeat; /* NULL, or: raised after every tensor loaded and layer computed */
};

/* Packs the weights of c; the mapping of each tensor is let go as it is packed. The checkpoint
 * may be closed after. Errors name the tensor or key. */
struct model *model_open(const struct checkpoint *c, const struct hparams *h,
                         const struct model_options *options, struct workers *workers,
                         struct error *err);
void model_close(struct model *m); /* NULL is fine */

/* Other activations from the next step on: any where the model was opened with int16, for which it
 * has room, else only those it was opened with. Between steps. */
void model_set_activations(struct model *m, enum activations activations);

/* Bytes that model_open will hold: panels, and activations for max_rows rows. */
uint64_t model_weight_bytes(const struct checkpoint *c, const struct hparams *h);
uint64_t model_activation_bytes(const struct hparams *h, const struct model_options *options,
                                uint32_t n_workers);

bool model_all_float(const struct model *m); /* no quantised matrix: OpenBLAS may be used */

/* What a step costs at least. */
struct model_cost {
    uint64_t step_bytes;   /* of weights, read once however many rows there are */
    uint64_t layer_params; /* weights that each row is multiplied with, */
    uint64_t head_params;  /* and those of the LM head: rows whose logits are wanted */
    bool floats;           /* as model_all_float */
};
struct model_cost model_cost(const struct model *m);

/* One step: writes K and V of all rows into their pages and the logits of the wanted rows,
 * logits [n_logits, n_vocab]. n_rows <= max_rows. */
void model_forward(struct model *m, const struct batch *b, const struct kv_pool *kv,
                   struct workers *workers, float *logits);

/* Scores q.k computed so far, of one layer and head (the unit test of "t+1 scores a step"). */
uint64_t model_scores(const struct model *m);
