/* [base] The workers: n threads, of which worker 0 is the engine thread itself, that run one
 * function side by side over shares of the same work (fork-join, SPMD). Idle workers spin for a
 * moment, then yield, then sleep on a futex: a step costs microseconds, an idle server nothing.
 *
 * Nobody waits for a worker that is not there. Barriers cut a run into sections; a worker takes part
 * in those at whose end the others wait for it. One that comes late (it slept, or its processor was
 * taken) passes through what is done already, taking nothing, until it comes to the section the
 * others are in. So a worker beside a busy neighbour can rest in the middle of a run, before
 * its processor is taken from it while the others wait (crowd.h).
 *
 * Where there is a worker for every processor allowed, each is pinned to its own.
 *
 * workers_run is called by one thread at a time (worker 0 of the pool, which takes part in
 * everything). Inside, every worker that comes gets the same fn and its own `struct worker`.
 * No result may depend on n or on who takes part (README: the same bits): shares only say who
 * computes, never how, and everything has to be handed out by shares (or a counter): slices by id
 * would be left undone. */
#pragma once

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct workers;

struct worker {
    uint32_t id;          /* 0 .. n-1 */
    uint32_t n;           /* workers_count */
    struct workers *pool; /* NULL in tests that call slices one by one: barriers are no-ops */
};

typedef void workers_fn(const struct worker *w, void *arg);

struct workers *workers_open(uint32_t n, struct error *err); /* starts threads 1..n-1 */
void workers_close(struct workers *pool);                    /* NULL is fine */
uint32_t workers_count(const struct workers *pool);          /* n */

/* Runs fn(worker, arg) on the workers and returns when all that came have returned. */
void workers_run(struct workers *pool, workers_fn *fn, void *arg);

/* All workers that take part wait for each other; memory written before is seen after. */
void worker_barrier(const struct worker *w);

/* False: this worker passes through the section and must not read what others write in it, nor take
 * anything from now on. share_take asks by itself. */
bool worker_takes(const struct worker *w);

/* For tests: workers from n_hosts (at least 1) on are guests, who take part for stretch_ns and then
 * rest for rest_ns (< 1 s), until the pool looks at the crowd again. */
void workers_guests(struct workers *pool, uint32_t n_hosts, uint32_t stretch_ns, uint32_t rest_ns);

/* Sections that were ended by a barrier so far. */
uint32_t workers_barriers(const struct workers *pool);

/* [*begin, *end): this worker's slice of n items, contiguous, in whole items. share_take begins with
 * it; alone it is for what may be left undone. */
static inline void worker_slice(const struct worker *w, uint32_t n, uint32_t *begin, uint32_t *end)
{
    *begin = (uint32_t)((uint64_t)n * w->id / w->n);
    *end = (uint32_t)((uint64_t)n * (w->id + 1) / w->n);
}

/* n items handed out in chunks: a worker takes those of its own slice, one after the other, and then what
 * is left of the others', so that one that was held up costs little, and one that does not take part
 * nothing. A chunk is half of what is left of the slice, but of `least` items at least, and at most one
 * of `parts` parts of the slice, 16 unless the caller sets another number. Taking one costs some 50 ns
 * (measured). A barrier lies between two shares:
 *
 *   struct share s = share_begin(w, n, 1);
 *   for (uint32_t begin, end; share_take(&s, &begin, &end);) ... */
struct share {
    const struct worker *w;
    uint32_t n, least, parts;
    uint32_t owner, from; /* of whose slice is taken, and how far from one's own that is */
};
struct share share_begin(const struct worker *w, uint32_t n, uint32_t least);
bool share_take(struct share *s, uint32_t *begin, uint32_t *end);
