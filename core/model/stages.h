/* [12 block] What flows between the stages [06] to [13], and their functions. Private to
 * core/model and its tests.
 *
 * Every worker runs every stage over the same batch (SPMD). A matrix product is shared out by
 * panels of its output, for all rows, and what follows it is done at once to the columns that a worker
 * has just computed: keys and values go to their pages, activations are applied, the residual is
 * added and normed, and all is quantised for the next product. Attention is shared out by units of
 * (rows, KV head, split of the keys). So a layer has five meetings of the workers: after QKV, attention,
 * its output, and the two halves of the MLP.
 *
 * An RMSNorm divides a row by one number, known only when all its columns are there. The product
 * after it waits for them anyway and does the division: W (x gain / rms) = (W (x gain)) / rms. Other
 * norms need whole rows. A few are normed by whoever brings the last of their columns, more of them are
 * shared out, after two meetings more. */
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
    float rms;         /* root mean square of the gain, nearly that of a normed row; 1 without */
};

/* One to three matrices that read the same input and write side by side: Y = X [W0; W1; W2]^T + b.
 * Of one type and whole panels they are packed as one. */
struct stack {
    struct matrix w[3];
    uint32_t n;
    uint32_t n_out;    /* of all */
    const float *bias; /* [n_out] or NULL */
    bool quantised;    /* one of them reads integers */
    bool floats;       /* one of them reads floats */
    float fine;        /* with int8 activations: how many times the row's root mean square one of 32
                        * values must be for 16 bits to be read of all; 0: always; INFINITY: never */
};

/* The norms around a branch, by where they stand (arch.h); absent ones are NULL inside. */
struct branch {
    struct norm before, on, after;
};

struct layer {
    struct branch attn, ffn;
    struct stack qkv;  /* [(n_heads + 2 n_kv_heads) head_dim, dim] */
    struct stack out;  /* [dim, n_heads head_dim] */
    struct stack up;   /* [ff_dim, dim], or gate and up, each [ff_dim, dim] */
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

/* Rows on their way into a stack: as floats, where one of its matrices reads those, and quantised. */
struct feed {
    float *x;        /* [rows, n_in] */
    uint8_t *planes; /* as the stack reads them */
};

/* Rows of a batch on their way, shared by all workers. */
struct act {
    float *x;      /* [rows, dim]: the residual stream */
    float *square; /* [dim / 32, max_rows]: sums of x^2 over 32 columns, where norms divide late */
    float *turn;   /* [rows, rope_dims]: cosines and sines of the positions */
    float *qkv;    /* [rows, (n_heads + 2 n_kv_heads) * head_dim] */
    float *y;      /* [rows, dim]: what a branch adds to x, where a norm stands between */
    struct feed h; /* [rows, dim]: a norm of x, the input of a branch; of the LM head */
    struct feed ctx; /* [rows, n_heads * head_dim]: what attention brought */
    struct feed mid; /* [rows, ff_dim]: the MLP's activations */
};

enum { TILE_PANELS = 8 };

/* Keys and values that a worker will read in a layer (ahead.c). */
struct ahead {
    struct matmul_fetch fetch; /* first: what `more` is given */
    const struct step *step;
    uint32_t layer, item, end, page; /* items: heads of units (attention.c) */
    bool values;                     /* after the keys of the page */
};

/* A worker's own room, most of it for one unit of attention (kernel/attention.h). */
struct scratch {
    float *tile;          /* [2, rows, up to TILE_PANELS panels]: columns just computed */
    float *scale;         /* [rows]: what a norm multiplies a product's rows by */
    float *least;         /* [rows]: from which scale on blocks are read in 16 bits */
    uint8_t *fine;        /* which these are (matmul_choose) */
    float *row;           /* [dim] */
    float *q, *o, *all_o; /* [queries, head_dim] */
    float *s;             /* [ATTENTION_BLOCK, page_tokens] */
    float *m, *l, *decay, *all_m, *all_l; /* [queries] */
    uint32_t *n_keys;                     /* [queries] */
    float *floats;                        /* [2, page_tokens, head_dim] */
    struct ahead ahead;
};

/* Some rows of one timeline on one page, and a range of splits of their keys. */
struct unit {
    uint32_t row, n_rows;
    uint32_t split_begin, split_end;
    bool parts; /* one split, whose sums go to parts; else all, and the result to ctx */
};

/* How attention is cut up: made once for a batch, by the plan of forward.c. */
struct plan {
    struct unit *units; /* [n_units], from the last to the first, with each KV head */
    uint32_t n_units, cap_units;
    int64_t *part; /* [max_rows]: first of a row's parts, or -1: ctx is written at once */
    uint32_t n_parts, cap_parts;
    float *part_o;     /* [cap_parts, n_heads, head_dim] */
    float *part_m;     /* [cap_parts, n_heads] */
    float *part_l;     /* [cap_parts, n_heads] */
    atomic_uint *left; /* [max_rows], at a unit's first row: units times KV heads still to come */
    atomic_uint *unstored; /* [n_kv_heads]: columns of their k and v still to come */
    atomic_uint *unjoined; /* panels of a branch's y still to come */
    uint32_t *wanted;      /* [n_wanted]: rows whose logits are wanted */
    int32_t *slot;         /* [max_rows]: a row's place among these, or -1 */
    uint32_t n_wanted;
    uint32_t split_pages, split_tokens; /* of a split: fixed by the page size */
};

static inline uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Splits that the keys of a position lie in. */
static inline uint32_t splits_of(const struct plan *p, uint32_t pos)
{
    return pos / p->split_tokens + 1;
}

struct model {
    struct hparams h;
    struct weights w;
    enum activations activations, room; /* room: what the buffers were made for */
    uint32_t max_rows, max_context, n_workers;
    double *freq; /* [rope_dims / 2]: angle per position */
    struct act act;
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

int model_buffers_open(struct model *m, struct error *err);
void model_buffers_close(struct model *m);

/* ---- the step ---- */

/* One batch as one worker sees it. */
struct step {
    struct model *m;
    const struct worker *worker;
    const struct batch *batch;
    const struct kv_pool *kv;
    const struct act *a;
    struct scratch *scratch;
};

/* Cuts the batch up; before the workers start. */
void plan_batch(struct model *m, const struct batch *batch, const struct kv_pool *kv);
struct step step_begin(struct model *m, const struct worker *worker, const struct batch *batch,
                       const struct kv_pool *kv);

/* Rows that leave attention: in the last layer only those whose logits are wanted. The i-th of them
 * is row i of what follows. */
uint32_t rows_after(const struct step *s, uint32_t layer);

/* Where row r of the batch goes, or -1: it ends in this layer. */
int32_t slot_of(const struct step *s, uint32_t layer, uint32_t r);

uint32_t stack_panels(const struct stack *w);

/* n_rows rows of a feed as the stack reads them: if in 16 bits, all blocks. */
struct matmul_input feed_input(const struct step *s, const struct stack *w, const struct feed *feed,
                               uint32_t n_rows);
bool feed_floats(const struct step *s, const struct stack *w); /* the floats of a feed are read */

/* Shares out the panels of a stack, n of them side by side. Few at a time cost OpenBLAS dearly; of a small
 * stack and for few rows the first chunks are large, for a panel takes about a microsecond there. */
struct share panels_share(const struct step *s, const struct stack *w, uint32_t n, uint32_t n_rows);

/* Where a norm's result goes: to h, for this stack. */
struct into {
    const struct norm *norm;
    const struct stack *to;
};
struct into branch_into(const struct branch *w, const struct stack *to);
struct into next_into(const struct step *s, uint32_t layer); /* after the MLP */

/* ---- the stages, in order ---- */

void embed_rows(const struct step *s); /* tokens -> x, h, turn */

/* The norm divides late: the next product scales its rows by norm_scale. */
bool norm_is_late(const struct model *m);
void norm_row(const struct model *m, const struct norm *w, const float *x, float *y); /* [dim] */
/* x -> h: rows [begin, end) of n_rows; or, of a late norm, panels [begin, end) of all rows. */
void norm_rows(const struct step *s, const struct into *into, uint32_t n_rows, uint32_t begin,
               uint32_t end);
void norm_panels(const struct step *s, const struct into *into, uint32_t n_rows, uint32_t begin,
                 uint32_t end);
/* [n_rows], or NULL: the norm divides at once, or this worker takes nothing. */
const float *norm_scale(const struct step *s, uint32_t n_rows);
/* The rows of h that this norm made, for the stack: in 16 bits those blocks that its `fine` says.
 * scale: norm_scale's. */
struct matmul_input norm_input(const struct step *s, const struct stack *w, const struct norm *norm,
                               const float *scale, uint32_t n_rows);

void qkv_project(const struct step *s, uint32_t layer); /* h -> qkv; K and V to their pages */
/* Columns [begin, end) of qkv are computed, for all rows. */
void attention_keep(const struct step *s, uint32_t layer, uint32_t begin, uint32_t end);
/* Item i of a layer's attention, of units times KV heads: whose slice they are is who reads them first. */
struct unit_head {
    const struct unit *u;
    uint32_t kv_head;
};
struct unit_head unit_head(const struct step *s, uint32_t item);
uint32_t unit_last_page(const struct step *s, const struct unit *u);
/* Before the product with w, of the layer or the end of the one before: from now on those of this worker,
 * by matmul_output.fetch, fetch what its attention will read; unless it is too early. */
void ahead_begin(const struct step *s, uint32_t layer, const struct stack *w);
void ahead_end(const struct step *s);                        /* what is left is read now */
void attention_apply(const struct step *s, uint32_t layer);  /* qkv, pages -> ctx */
void attn_out_project(const struct step *s, uint32_t layer); /* ctx -> y; x += y -> h */
void mlp_forward(const struct step *s, uint32_t layer);      /* h -> mid -> y; x += y -> h */

/* So few rows are joined by one worker sooner than by all, who would have to meet before. */
enum { JOINED_BY_ONE = 16 };

/* The end of a branch: y = W in, x += y with the branch's norms, and the next norm of it to h. */
struct ending {
    const struct stack *w;
    const struct feed *in;
    const struct branch *norms;
    struct into next;
};
void block_join(const struct step *s, const struct ending *e, uint32_t layer);
void block_forward(const struct step *s, uint32_t layer);
void lm_head(const struct step *s, float *logits); /* h -> logits */
