/* [04 tokenizer] The merging that both kinds of BPE share: a row of symbols, of which again and
 * again the pair of neighbours with the best rank becomes one (of equal ranks the first). A heap
 * of ranks makes it O(n log n) whatever the text. The rows differ in what a rank is. */
#pragma once

#include "core/base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_NONE UINT32_MAX

struct merge_symbol {    /* a symbol is named by the index where it begins */
    uint32_t prev, next; /* indices; next == end of the row: none */
    uint32_t id;         /* its token, or MERGE_NONE */
    uint32_t rank;       /* of the pair with next; MERGE_NONE: none, or the symbol is gone */
};

struct merge {
    struct merge_symbol *symbol; /* [cap]; only the indices where symbols begin are used */
    size_t cap;
    uint64_t *heap; /* rank << 32 | index */
    size_t n_heap, cap_heap;
    const atomic_bool *stop; /* may be NULL; where it becomes true, merge_run fails soon */
};

/* Rank of the pair left, right (lower is better; MERGE_NONE: they do not merge), and *id, the
 * token that they become. */
typedef uint32_t merge_rank_fn(const void *arg, const struct merge *m, uint32_t left,
                               uint32_t right, uint32_t *id);

int merge_reserve(struct merge *m, size_t n, struct error *err); /* symbols */
void merge_free(struct merge *m);

/* Whether to give up. Asked at each of many steps, it looks now and then. */
static inline bool merge_stopped(const struct merge *m, uint32_t step)
{
    return (step & 0xFFF) == 0 && m->stop && atomic_load_explicit(m->stop, memory_order_relaxed);
}

/* Merges the row that begins at 0 and ends at n; its links and ids are filled. */
int merge_run(struct merge *m, uint32_t n, merge_rank_fn *rank, const void *arg, struct error *err);
