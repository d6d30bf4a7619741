/* [kernel] Attention of a few queries over pages of keys and values, one page at a time with a
 * running softmax (Milakov and Gimelshein 2018; Dao et al. 2022): per query m, the greatest score
 * so far, l, the sum of e^(score - m), and o, the sum of e^(score - m) v. A page holds K
 * [head_dim][page_tokens], transposed so that a vector is 16 positions of one dimension, and V
 * [page_tokens][head_dim].
 *
 * A query's bits depend on itself and its keys only: every sum runs over dimensions or positions
 * in one order, whole pages are masked (weight exactly 0), nothing is read of V beyond the last
 * key and what lies beyond it in K is dropped: it may be anything, NaN too. ANY_THREAD: pure
 * functions of their arguments; a variant per CPU level. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Queries that read the same keys: rows x heads of a group. All arrays are the caller's. */
struct attention {
    uint32_t n_q, head_dim;
    uint32_t page_tokens; /* a multiple of 16 */
    const float *q;       /* [n_q, head_dim], times 1 / sqrt(head_dim) */
    const uint32_t
        *n_keys; /* [n_q]: keys of the page at hand that a query may see, 0 .. page_tokens */
    float *s;    /* [n_q, page_tokens]: scores, then weights e^(s - m) */
    float *m, *l, *decay; /* [n_q]; decay: e^(m before - m after) of the page */
    float *o;             /* [n_q, head_dim] */
    float *floats; /* [page_tokens * head_dim]: a page of halves as floats, for many queries */
};

void attention_begin(const struct attention *a); /* no keys yet: m = -FLT_MAX, l = 0, o = 0 */

/* The three parts of a page; half: K and V are IEEE halves, else floats.
 * scores:  s = q K, up to the greatest n_keys, rounded up to whole vectors
 * weights: masks, moves m, s = e^(s - m) (0.0 from n_keys on), l = l decay + sum s
 * values:  o = o decay + s V */
void attention_scores(const struct attention *a, const void *k, bool half);
void attention_weights(const struct attention *a);
void attention_values(const struct attention *a, const void *v, bool half);

/* All three. */
void attention_page(const struct attention *a, const void *k, const void *v, bool half);

/* Joins a part that saw later keys to the sums of earlier ones: both are first brought to the
 * greater m. Beginning with m = -FLT_MAX, l = 0, o = 0. One query: o, part_o [head_dim]. */
void attention_join(float *m, float *l, float *o, float part_m, float part_l, const float *part_o,
                    uint32_t head_dim);

/* out = o / l [head_dim] */
void attention_end(float l, const float *o, float *out, uint32_t head_dim);
