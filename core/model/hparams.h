/* [load] Shapes of a model, read from its file and checked (hparams.c). A stage asks these, never
 * the file. */
#pragma once

#include "core/base/error.h"
#include "core/load/checkpoint.h"

#include <stdint.h>

struct arch;

struct hparams {
    const struct arch *arch; /* which norm, which position, which activation (arch.h) */
    uint32_t n_layers;
    uint32_t dim; /* of the residual stream */
    uint32_t n_heads;
    uint32_t n_kv_heads; /* divides n_heads */
    uint32_t head_dim;
    uint32_t ff_dim;
    uint32_t n_vocab;
    uint32_t n_ctx; /* positions the model was trained for */
    uint32_t rope_dims;
    float rope_theta;
    float norm_eps;
};

/* Errors: `unknown architecture "x", known are gpt2, llama`; a key that is missing or contradicts
 * another, with both values. */
int hparams_read(struct hparams *h, const struct checkpoint *c, struct error *err);
