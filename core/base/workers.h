/* [base] The workers: n threads, of which worker 0 is the engine thread itself, that run one
 * function side by side over slices of the same work (fork-join, SPMD). Idle workers spin for a
 * moment, then yield, then sleep on a futex: a step costs microseconds, an idle server nothing.
 *
 * workers_run is called by one thread at a time (worker 0 of the pool). Inside, every worker
 * gets the same fn and its own `struct worker`; worker_barrier is a meeting of all of them.
 * No result may depend on n (README: the same bits): slices only say who computes, never how. */
#pragma once

#include "core/base/error.h"

#include <stdint.h>

struct workers;

struct worker {
    uint32_t id; /* 0 .. n-1 */
    uint32_t n;
    struct workers *pool; /* NULL where n == 1 in tests: barriers are no-ops */
};

typedef void workers_fn(const struct worker *w, void *arg);

struct workers *workers_open(uint32_t n, struct error *err); /* starts threads 1..n-1 */
void workers_close(struct workers *pool);                    /* NULL is fine */
uint32_t workers_count(const struct workers *pool);

/* Runs fn(worker, arg) on all workers and returns when all have returned. */
void workers_run(struct workers *pool, workers_fn *fn, void *arg);

/* All workers of the running fn wait for each other; memory written before is seen after. */
void worker_barrier(const struct worker *w);

/* [*begin, *end): this worker's share of n items, contiguous, in whole items. */
static inline void worker_slice(const struct worker *w, uint32_t n, uint32_t *begin, uint32_t *end)
{
    *begin = (uint32_t)((uint64_t)n * w->id / w->n);
    *end = (uint32_t)((uint64_t)n * (w->id + 1) / w->n);
}
