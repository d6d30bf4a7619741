/* [kernel] Attention of a few queries over pages of keys and values, one page at a time with a
 * running softmax (Milakov and Gimelshein 2018; Dao et al. 2022): per query m, the greatest score
 * so far, l, the sum of the weights e^score / e^m, and o, the sum of weights times v. As e^x is
 * 2^(x log2 e), m is kept times log2 e. A page holds K, turned so that a vector is 16 positions of
 * one dimension (kv_column), and V [page_tokens][head_dim]. Codes are multiplied as they are: the
 * scales of K make scores of sums, those of V are taken into the weights.
 *
 * A query's bits depend on itself and its keys only: every sum runs over dimensions or positions
 * in one order, whole pages are masked (weight exactly 0), nothing is read of V beyond the last
 * key and what lies beyond it in K is dropped: it may be anything, NaN too. ANY_THREAD: pure
 * functions of their arguments; a variant per CPU level. */
#pragma once

#include "core/kernel/kv_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ATTENTION_BLOCK = 6 }; /* queries that share the registers' loads of a page */

/* Queries that read the same keys: rows x heads of a group. All arrays are the caller's. */
struct attention {
    uint32_t n_q, head_dim;
    uint32_t page_tokens; /* a multiple of 16 */
    const float *q;       /* [n_q, head_dim], times 1 / sqrt(head_dim) */
    const uint32_t
        *n_keys; /* [n_q]: keys of the page at hand that a query may see, 0 .. page_tokens */
    float *s;    /* [ATTENTION_BLOCK, page_tokens]: scores, then weights */
    float *m, *l, *decay; /* [n_q]; decay: 2^(m before - m after) of the page */
    float *o;             /* [n_q, head_dim] */
    float *floats; /* [2, page_tokens * head_dim]: a page's values as floats, for many queries */
};

/* K and V of one layer and KV head. */
struct attention_page {
    enum kv_type type;
    const void *k, *v;
    const float *k_scales, *v_scales; /* [page_tokens]; NULL: values are no codes */
    const void *next_k, *next_v; /* of the page read after this one, to be fetched meanwhile (not
                                    floats); where there is none, this page's */
};

/* Rounds k and v [head_dim] of a position to the page's type: column t of K, row t of V. */
void attention_store(enum kv_type type, const float *k, const float *v, uint32_t t, void *page_k,
                     void *page_v, uint32_t head_dim, uint32_t page_tokens);

void attention_begin(const struct attention *a); /* no keys yet: m = -FLT_MAX, l = 0, o = 0 */

/* All keys of a page that the queries may see. */
void attention_page(const struct attention *a, const struct attention_page *page);

/* Its three parts, of at most ATTENTION_BLOCK queries.
 * scores:  s = q K, up to the greatest n_keys, rounded up to whole vectors
 * weights: masks, moves m, s = 2^(s log2 e - m) (0.0 from n_keys on), l = l decay + sum s
 *          and last, where V is codes, s times their scales
 * values:  o = o decay + s V */
void attention_scores(const struct attention *a, const struct attention_page *page);
void attention_weights(const struct attention *a, const struct attention_page *page);
void attention_values(const struct attention *a, const struct attention_page *page);

/* Joins parts that saw later keys to the sums of earlier ones: both are first brought to the
 * greater m. n queries: m, l, part_m, part_l [n], o, part_o [n, head_dim]. To m = -FLT_MAX, l = 0,
 * o = 0 a part is joined bit for bit. */
void attention_join(uint32_t n, float *m, float *l, float *o, const float *part_m,
                    const float *part_l, const float *part_o, uint32_t head_dim);

/* out = o / l: o, out [n, head_dim]; out may be o. */
void attention_end(uint32_t n, const float *l, const float *o, float *out, uint32_t head_dim);
