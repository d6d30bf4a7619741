/* [kv] Which pages are mine: the page table of one timeline. Position p lies in pages[p /
 * page_tokens]. A seq is made of shared pages (read-only, complete) and private ones. ON_ENGINE
 * writes; workers read inside a step.
 *
 * A seq holds one reference to each of its pages and the reservation for those to come. Rows of a
 * step are written behind n_tokens, which the owner raises when the step is done. */
#pragma once

#include "core/kv/pages.h"

struct seq {
    uint32_t *pages; /* [cap_pages], the first n_pages valid */
    uint32_t n_pages, cap_pages;
    uint32_t n_tokens;   /* positions whose K and V are computed */
    uint32_t n_reserved; /* pages that it may still take */
};

/* A page table for up to max_tokens positions, empty; nothing is reserved yet. */
int seq_open(struct seq *s, const struct kv_pool *pool, uint32_t max_tokens, struct error *err);

/* Drops every page, the last first (so that a prefix outlives what follows it), and gives back the
 * reservation. seq_close also frees the table; a zeroed or closed seq is fine. */
void seq_clear(struct seq *s, struct kv_pool *pool);
void seq_close(struct seq *s, struct kv_pool *pool);

/* Reserves the pages of n_tokens positions beyond those it has. False: not now (nothing changed). */
bool seq_reserve(struct seq *s, struct kv_pool *pool, uint32_t n_tokens);

/* Takes pages, of its reservation, until n_tokens positions are covered. */
void seq_cover(struct seq *s, struct kv_pool *pool, uint32_t n_tokens);

/* Appends a complete page that it does not own alone, one reference more; n_tokens must lie on a
 * page's end. A page that was reserved for the place is given back. False: kv_page_share's. */
bool seq_share(struct seq *s, struct kv_pool *pool, uint32_t page);

/* Covers one page more and copies n_tokens positions of `from` into it. As seq_share, but private. */
void seq_copy(struct seq *s, struct kv_pool *pool, uint32_t from, uint32_t n_tokens);
