/* [base] The workers: n threads, of which worker 0 is the engine thread itself, that run one
 * function side by side over slices of the same work (fork-join, SPMD). Idle workers spin for a
 * moment, then yield, then sleep on a futex: a step costs microseconds, an idle server nothing.
 *
 * Where there is a worker for every processor allowed, each is pinned to its own, as long as the
 * processors are theirs; beside busy processes the pins go and some sit out (crowd.h).
 *
 * workers_run is called by one thread at a time (worker 0 of the pool). Inside, every worker that
 * runs gets the same fn and its own `struct worker`; worker_barrier is a meeting of all of them.
 * No result may depend on n (README: the same bits): slices only say who computes, never how. */
#pragma once

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct workers;

struct worker {
    uint32_t id;          /* 0 .. n-1 */
    uint32_t n;           /* that run now */
    struct workers *pool; /* NULL in tests that call slices one by one: barriers are no-ops */
};

typedef void workers_fn(const struct worker *w, void *arg);

struct workers *workers_open(uint32_t n, struct error *err); /* starts threads 1..n-1 */
void workers_close(struct workers *pool);                    /* NULL is fine */
uint32_t workers_count(const struct workers *pool);          /* n: the most that ever run */

/* Runs fn(worker, arg) on the workers and returns when all have returned. */
void workers_run(struct workers *pool, workers_fn *fn, void *arg);

/* All workers of the running fn wait for each other; memory written before is seen after. */
void worker_barrier(const struct worker *w);

/* Barriers met so far, of pools of two workers and more. */
uint32_t workers_barriers(const struct workers *pool);

/* [*begin, *end): this worker's share of n items, contiguous, in whole items. */
static inline void worker_slice(const struct worker *w, uint32_t n, uint32_t *begin, uint32_t *end)
{
    *begin = (uint32_t)((uint64_t)n * w->id / w->n);
    *end = (uint32_t)((uint64_t)n * (w->id + 1) / w->n);
}

/* n items handed out in chunks: a worker takes those of its own slice, about eight and of `least`
 * items at least, one after the other, and then what is left of the others', so that one that was
 * held up costs little. All workers begin the same shares in the same order, with a barrier between
 * two of them:
 *
 *   struct share s = share_begin(w, n, 1);
 *   for (uint32_t begin, end; share_take(&s, &begin, &end);) ... */
struct share {
    const struct worker *w;
    uint32_t n, least;
    uint32_t owner, from; /* of whose slice is taken, and how far from one's own that is */
    uint32_t set;         /* which of the counters */
};
struct share share_begin(const struct worker *w, uint32_t n, uint32_t least);
bool share_take(struct share *s, uint32_t *begin, uint32_t *end);
