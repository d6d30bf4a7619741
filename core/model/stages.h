/* [12 block] What flows between the stages [06] to [13], and their functions. Private to
 * core/model and its tests.
 *
 * Every worker runs every stage over the same batch (SPMD). Row-wise work (embedding, norms,
 * activations, quantising) is shared out by rows; matrix products by panels of output; attention
 * by units of (rows, KV head, split of the keys). They meet at barriers. A batch of few rows is
 * run `solo`: each worker keeps the residual stream and does the row-wise work for itself, which
 * takes as long as waiting for another to do it and spares the barrier. The bits are the same
 * either way (README: the same bits). */
#pragma once

#include "core/base/workers.h"
#include "core/kernel/matmul.h"
#include "core/kv/pages.h"
#include "core/model/arch.h"
#include "core/model/batch.h"
#include "core/model/hparams.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- weights ---- */

struct norm {
    const float *gain; /* [dim]; NULL = no norm in this place */
    const float *bias; /* [dim] or NULL */
};

/* One to three matrices that read the same input and write side by side: Y = X [W0; W1; W2]^T + b.
 * Of one type and whole panels they are packed as one. */
struct stack {
    struct matrix w[3];
    uint32_t n;
    uint32_t n_out;    /* of all */
    const float *bias; /* [n_out] or NULL */
    bool quantised;    /* one of them reads integers */
    bool fine;         /* reads 16 bits where activations are int8 (stack_activations) */
};

/* The norms around a branch, by where they stand (arch.h); absent ones are NULL inside. */
struct branch {
    struct norm before, on, after;
};

struct layer {
    struct branch attn, ffn;
    struct stack qkv;  /* [(n_heads + 2 n_kv_heads) head_dim, dim] */
    struct stack out;  /* [dim, n_heads head_dim] */
    struct stack up;   /* [ff_dim, dim], or gate and up: [2 ff_dim, dim] */
    struct stack down; /* [dim, ff_dim] */
};

struct weights {
    struct matrix embed;    /* [n_vocab, dim] */
    struct matrix position; /* [n_ctx, dim], or none */
    struct layer *layers;   /* [n_layers] */
    struct norm output_norm;
    struct stack head; /* [n_vocab, dim]; tied: embed's matrix with a bias of its own */
    bool tied;
    uint8_t *memory; /* all panels, gains and biases */
    size_t memory_bytes;
};

struct weights_options {
    struct workers *workers;
    atomic_bool *stop; /* as model_options */
    _Atomic uint64_t *heartbeat;
};

int weights_open(struct weights *w, const struct checkpoint *c, const struct hparams *h,
                 const struct weights_options *options, struct error *err);
void weights_close(struct weights *w);

/* Bytes of all panels and vectors; 0 where the tensors do not fit the shapes (weights_open says
 * why). */
uint64_t weights_bytes(const struct checkpoint *c, const struct hparams *h);
bool weights_all_float(const struct weights *w, const struct hparams *h);

/* ---- buffers ---- */

/* Rows of a batch on their way. Shared by all workers, or in solo the worker's own; the outputs of
 * matrix products, which all workers write, are always shared. */
struct act {
    float *x;        /* [rows, dim]: the residual stream */
    float *h;        /* [rows, dim]: a norm of it, the input of a branch */
    float *ctx;      /* [rows, n_heads * head_dim]: what attention brought */
    float *mid;      /* [rows, ff_dim]: the MLP's activations */
    float *turn;     /* [rows, rope_dims]: cosines and sines of the positions */
    uint8_t *planes; /* the input of the next matrix product, quantised */
    float *qkv;      /* [rows, (n_heads + 2 n_kv_heads) * head_dim] */
    float *ff;       /* [rows, ff_dim or 2 ff_dim] */
    float *y;        /* [rows, dim]: what a branch adds to x */
};

/* A worker's own room for one unit of attention (kernel/attention.h). */
struct scratch {
    float *q, *o, *all_o;                 /* [queries, head_dim] */
    float *s;                             /* [ATTENTION_BLOCK, page_tokens] */
    float *m, *l, *decay, *all_m, *all_l; /* [queries] */
    uint32_t *n_keys;                     /* [queries] */
    float *floats;                        /* [2, page_tokens, head_dim] */
};

/* Some rows of one timeline on one page, and a range of splits of their keys. */
struct unit {
    uint32_t row, n_rows;
    uint32_t split_begin, split_end;
    bool parts; /* one split, whose sums go to parts; else all, and the result to ctx */
};

/* How attention is cut up: made once for a batch, by the plan of forward.c. */
struct plan {
    struct unit *units; /* [n_units], taken from the last to the first, with each KV head */
    uint32_t n_units, cap_units;
    int64_t *part; /* [max_rows]: first of a row's parts, or -1: ctx is written at once */
    uint32_t n_parts, cap_parts;
    float *part_o;        /* [cap_parts, n_heads, head_dim] */
    float *part_m;        /* [cap_parts, n_heads] */
    float *part_l;        /* [cap_parts, n_heads] */
    atomic_uint *next;    /* [n_layers]: units taken so far */
    uint32_t *wanted;     /* [max_rows]: rows whose logits are wanted */
    uint32_t split_pages; /* of a split: fixed by the page size */
    bool store_first;     /* keys are read by other units than the one that could store them */
    bool solo;
};

struct model {
    struct hparams h;
    struct weights w;
    enum activations activations, room; /* room: what the buffers were made for */
    uint32_t max_rows, max_context, n_workers;
    double *freq;            /* [rope_dims / 2]: angle per position */
    struct act act;          /* of all workers */
    struct act *own;         /* [n_workers]: for solo */
    struct scratch *scratch; /* [n_workers] */
    struct plan plan;
    uint8_t *memory; /* all buffers above */
    size_t memory_bytes;
    _Atomic uint64_t *heartbeat;
    _Atomic uint64_t scores;
};

/* Buffers of m->h, max_rows, max_context, n_workers and activations. Bytes, or with base NULL what
 * they would be. */
size_t model_layout(struct model *m, uint8_t *base);

/* What a stack reads. With int8 the inputs of Q, K, V, of the MLP's second matrix and of the LM
 * head, which a rounding error hurts most, have 16 bits all the same: free in decode, which waits
 * for memory. SmolLM2-135M Q4_1, four texts, against float64: KL of the last row up to 0.005
 * (0.020 without), mean negative log-likelihood within 0.6 % (3.8 %). */
enum activations stack_activations(const struct model *m, bool fine);

int model_buffers_open(struct model *m, struct error *err);
void model_buffers_close(struct model *m);

/* ---- the step ---- */

/* One batch as one worker sees it. */
struct step {
    struct model *m;
    const struct worker *worker;
    const struct batch *batch;
    const struct kv_pool *kv;
    const struct act *a; /* m->act, or in solo m->own of this worker */
    struct scratch *scratch;
};

/* Cuts the batch up; before the workers start. */
void plan_batch(struct model *m, const struct batch *batch, const struct kv_pool *kv);
struct step step_begin(struct model *m, const struct worker *worker, const struct batch *batch,
                       const struct kv_pool *kv);

/* The rows, of n, that this worker prepares: all in solo, else its slice. */
void step_rows(const struct step *s, uint32_t n, uint32_t *begin, uint32_t *end);

/* Prepared rows may now be read by all: a barrier, none in solo. */
void step_share(const struct step *s);

/* in [n_rows, n_in] -> y [n_rows, stack.n_out]: quantises, shares, multiplies, meets. */
void stack_run(const struct step *s, const struct stack *w, const float *in, uint32_t n_rows,
               float *y);

/* ---- the stages, in order ---- */

void embed_rows(const struct step *s); /* tokens -> x, turn */
void norm_row(const struct model *m, const struct norm *w, const float *x, float *y); /* [dim] */
void norm_apply(const struct step *s, const struct norm *w);                          /* x -> h */
void qkv_project(const struct step *s, const struct layer *w);                        /* h -> qkv */
void attention_apply(const struct step *s, uint32_t layer);         /* qkv, pages -> ctx */
void attn_out_project(const struct step *s, const struct layer *w); /* ctx -> y */
void mlp_forward(const struct step *s, const struct layer *w);      /* h -> y */
void block_join(const struct step *s, const struct branch *w);      /* x += y */
void block_forward(const struct step *s, uint32_t layer);
void lm_head(const struct step *s, float *logits); /* x -> logits */
