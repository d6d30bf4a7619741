/* [04 tokenizer] merging the best-ranked neighbours, with a heap. An entry of the heap is stale
 * when the pair that now begins at its index has another rank. */
#include "core/text/merge.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

int merge_reserve(struct merge *m, size_t n, struct error *err)
{
    if (n <= m->cap)
        return 0;
    size_t cap = n < 64 ? 64 : n + n / 2;
    struct merge_symbol *symbol = mem_grow(m->symbol, cap, sizeof(*symbol));
    if (!symbol)
        return error_set(err, ERR_NO_MEMORY, "no memory to tokenize %zu bytes", n);
    m->symbol = symbol;
    m->cap = cap;
    return 0;
}

void merge_free(struct merge *m)
{
    free(m->symbol);
    free(m->heap);
    memset(m, 0, sizeof(*m));
}

static int heap_push(struct merge *m, uint64_t entry, struct error *err)
{
    if (m->n_heap == m->cap_heap) {
        size_t cap = m->cap_heap ? 2 * m->cap_heap : 64;
        uint64_t *heap = mem_grow(m->heap, cap, sizeof(*heap));
        if (!heap)
            return error_set(err, ERR_NO_MEMORY, "no memory for %zu pairs of symbols", cap);
        m->heap = heap;
        m->cap_heap = cap;
    }
    size_t i = m->n_heap++;
    while (i && m->heap[(i - 1) / 2] > entry) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = entry;
    return 0;
}

static uint64_t heap_pop(struct merge *m)
{
    uint64_t top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < m->n_heap) {
        child += child + 1 < m->n_heap && m->heap[child + 1] < m->heap[child];
        if (m->heap[child] >= last)
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

int merge_run(struct merge *m, uint32_t n, merge_rank_fn *rank, const void *arg, struct error *err)
{
    struct merge_symbol *sym = m->symbol;
    uint32_t id, step = 0;
    m->n_heap = 0;
    for (uint32_t i = 0; i < n; i = sym[i].next) {
        if (merge_stopped(m, step++))
            return error_set(err, ERR_INTERNAL, "stopped");
        sym[i].rank = sym[i].next < n ? rank(arg, m, i, sym[i].next, &id) : MERGE_NONE;
        if (sym[i].rank != MERGE_NONE && heap_push(m, (uint64_t)sym[i].rank << 32 | i, err) < 0)
            return -1;
    }
    while (m->n_heap) {
        if (merge_stopped(m, step++))
            return error_set(err, ERR_INTERNAL, "stopped");
        uint64_t top = heap_pop(m);
        uint32_t left = (uint32_t)top, right = sym[left].next;
        if (sym[left].rank != top >> 32)
            continue;
        rank(arg, m, left, right, &id);
        sym[left].id = id;
        sym[left].next = sym[right].next;
        sym[right].rank = MERGE_NONE;
        if (sym[left].next < n)
            sym[sym[left].next].prev = left;
        for (uint32_t pair = left, k = 0; k < 2; pair = sym[left].prev, k++) {
            if (pair == MERGE_NONE) /* nothing before the first */
                break;
            uint32_t next = sym[pair].next;
            sym[pair].rank = next < n ? rank(arg, m, pair, next, &id) : MERGE_NONE;
            if (sym[pair].rank != MERGE_NONE &&
                heap_push(m, (uint64_t)sym[pair].rank << 32 | pair, err) < 0)
                return -1;
        }
    }
    return 0;
}
