/* [base] fork-join over persistent threads: a word to start each, a counting barrier to meet.
 * Waiting goes spin (about 50 us) -> sched_yield -> futex, for a futex costs 30 us on each
 * side (measured) and a spinner on a shared processor costs the one it waits for. */
#include "core/base/workers.h"

#include "core/base/clock.h"
#include "core/base/crowd.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_NS = 50000, SPINS = 32 /* between looks at the clock */, YIELDS = 64, CHUNKS = 8 };

/* A word that is waited for, and how many sleep on it. */
struct signal {
    _Alignas(64) atomic_uint value;
    atomic_uint sleepers;
};

/* A worker's own; what others write or read lies on lines of its own. */
struct slot {
    struct signal go; /* raised to start a run */
    _Alignas(64)
        atomic_uint taken[2]; /* chunks of its slice that are taken, of every other share */
    _Alignas(64) struct worker w;
    pthread_t thread;
    uint32_t n_shares;
    uint64_t ran_ns, lost_ns, slept_ns; /* of the last run; summed since the last look; asleep */
};

struct workers {
    struct signal running; /* workers 1.. that have not returned from fn */
    struct signal phase;   /* raised when all have arrived */
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) workers_fn *fn;
    void *arg;
    atomic_bool stop;
    uint32_t n, n_started;
    bool pinned; /* the workers are, each to its own processor */
    cpu_set_t allowed;
    struct crowd crowd;
    struct slot *slots; /* [n] */
    uint64_t *lost_ns;  /* [n]: what a look is taken at */
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool changed(const struct signal *s, unsigned seen)
{
    return atomic_load_explicit(&s->value, memory_order_acquire) != seen;
}

/* Returns when the value differs from seen. */
static void signal_wait(struct slot *self, struct signal *s, unsigned seen)
{
    uint64_t begin = 0;
    do {
        for (int i = 0; i < SPINS; i++) {
            if (changed(s, seen))
                return;
            pause_cpu();
        }
        begin = begin ? begin : clock_ns();
    } while (clock_ns() - begin < SPIN_NS);
    for (int i = 0; i < YIELDS; i++) {
        if (changed(s, seen))
            return;
        sched_yield();
    }
    begin = clock_ns();
    atomic_fetch_add(&s->sleepers, 1);
    while (atomic_load(&s->value) == seen)
        syscall(SYS_futex, &s->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&s->sleepers, 1);
    self->slept_ns += clock_ns() - begin;
}

/* After the value was changed. */
static void signal_wake(struct signal *s)
{
    if (atomic_load(&s->sleepers))
        syscall(SYS_futex, &s->value, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Runs fn, and notes the time it took and what of that went to other processes. */
static void run(struct slot *self, workers_fn *fn, void *arg)
{
    uint64_t wall = clock_ns(), cpu = thread_ns();
    self->slept_ns = self->n_shares = 0;
    fn(&self->w, arg);
    cpu = thread_ns() - cpu + self->slept_ns;
    self->ran_ns = clock_ns() - wall;
    self->lost_ns += self->ran_ns > cpu ? self->ran_ns - cpu : 0;
}

static void *worker_main(void *arg)
{
    struct slot *self = arg;
    struct workers *pool = self->w.pool;
    thread_name("attend-worker-%u", self->w.id);
    for (unsigned seen = 0;; seen++) {
        signal_wait(self, &self->go, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        run(self, pool->fn, pool->arg);
        if (atomic_fetch_sub(&pool->running.value, 1) == 1)
            signal_wake(&pool->running);
    }
}

/* Worker i to the i-th processor allowed, or to all of them. */
static void pin(const struct workers *pool, uint32_t i, bool pinned)
{
    cpu_set_t one;
    uint32_t n = 0;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &pool->allowed) && n++ == i)
            CPU_SET(cpu, &one);
    pthread_setaffinity_np(pool->slots[i].thread, sizeof(one), pinned ? &one : &pool->allowed);
}

/* Pins all workers, where there is one for each processor allowed, or none. */
static void place(struct workers *pool, bool pinned)
{
    if (pinned == pool->pinned || (uint32_t)CPU_COUNT(&pool->allowed) != pool->n)
        return;
    pool->pinned = pinned;
    for (uint32_t i = 0; i < pool->n; i++)
        pin(pool, i, pinned);
}

/* The calling thread is worker 0 from now on. */
static void adopt(struct workers *pool)
{
    pool->slots[0].thread = pthread_self();
    if (pool->pinned)
        pin(pool, 0, true);
}

static struct workers *make(uint32_t n)
{
    struct workers *pool = aligned_alloc(64, sizeof(*pool));
    struct slot *slots = aligned_alloc(64, n * sizeof(*slots));
    uint64_t *lost_ns = mem_new(n, sizeof(*lost_ns));
    if (!pool || !slots || !lost_ns) {
        free(pool);
        free(slots);
        free(lost_ns);
        return NULL;
    }
    memset(pool, 0, sizeof(*pool));
    memset(slots, 0, n * sizeof(*slots));
    pool->n = n;
    pool->slots = slots;
    pool->lost_ns = lost_ns;
    for (uint32_t i = 0; i < n; i++)
        slots[i].w = (struct worker){i, n, pool};
    slots[0].thread = pthread_self();
    pool->n_started = 1;
    crowd_begin(&pool->crowd, n);
    if (sched_getaffinity(0, sizeof(pool->allowed), &pool->allowed))
        CPU_ZERO(&pool->allowed);
    return pool;
}

struct workers *workers_open(uint32_t n, struct error *err)
{
    struct workers *pool = make(n);
    sigset_t before;
    if (!pool) {
        error_set(err, ERR_NO_MEMORY, "no memory for %u workers", n);
        return NULL;
    }
    thread_block_signals(&before);
    for (uint32_t i = 1; i < n; i++) {
        int rc = pthread_create(&pool->slots[i].thread, NULL, worker_main, &pool->slots[i]);
        if (rc) {
            error_set(err, ERR_NO_MEMORY, "cannot start worker %u of %u: %s", i, n, strerror(rc));
            break;
        }
        pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->n_started < n) {
        workers_close(pool);
        return NULL;
    }
    place(pool, true);
    return pool;
}

void workers_close(struct workers *pool)
{
    if (!pool)
        return;
    if (pool->pinned && pthread_equal(pool->slots[0].thread, pthread_self()))
        pin(pool, 0, false);
    atomic_store(&pool->stop, true);
    for (uint32_t i = 1; i < pool->n_started; i++) {
        atomic_fetch_add(&pool->slots[i].go.value, 1);
        signal_wake(&pool->slots[i].go);
        pthread_join(pool->slots[i].thread, NULL);
    }
    free(pool->lost_ns);
    free(pool->slots);
    free(pool);
}

uint32_t workers_count(const struct workers *pool) { return pool->n; }

/* After a run: who runs in the next one. */
static void look_around(struct workers *pool)
{
    struct crowd *c = &pool->crowd;
    for (uint32_t i = 0; i < c->n_active; i++)
        pool->lost_ns[i] = pool->slots[i].lost_ns;
    if (pool->n == 1 || !crowd_look(c, pool->lost_ns, pool->slots[0].ran_ns, clock_ns()))
        return;
    for (uint32_t i = 0; i < pool->n; i++)
        pool->slots[i].lost_ns = 0;
    place(pool, c->calm);
}

/* Starts workers 1.. of n. */
static void start(struct workers *pool, uint32_t n)
{
    atomic_store(&pool->running.value, n - 1);
    for (uint32_t i = 0; i < n; i++) {
        struct slot *s = &pool->slots[i];
        atomic_store_explicit(&s->taken[0], 0, memory_order_relaxed);
        if (s->w.n != n)
            s->w.n = n;
    }
    for (uint32_t i = 1; i < n; i++) {
        atomic_fetch_add(&pool->slots[i].go.value, 1);
        signal_wake(&pool->slots[i].go);
    }
}

void workers_run(struct workers *pool, workers_fn *fn, void *arg)
{
    struct slot *self = &pool->slots[0];
    if (!pthread_equal(self->thread, pthread_self()))
        adopt(pool);
    pool->fn = fn;
    pool->arg = arg;
    start(pool, pool->crowd.n_active);
    run(self, fn, arg);
    for (unsigned left; (left = atomic_load_explicit(&pool->running.value, memory_order_acquire));)
        signal_wait(self, &pool->running, left);
    look_around(pool);
}

void worker_barrier(const struct worker *w)
{
    struct workers *pool = w->pool;
    if (w->n == 1 || !pool)
        return;
    unsigned phase = atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) == w->n - 1) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_fetch_add(&pool->phase.value, 1);
        signal_wake(&pool->phase);
    } else {
        signal_wait(&pool->slots[w->id], &pool->phase, phase);
    }
}

uint32_t workers_barriers(const struct workers *pool)
{
    return atomic_load_explicit(&pool->phase.value, memory_order_relaxed);
}

/* ---- shares ---- */

struct share share_begin(const struct worker *w, uint32_t n, uint32_t least)
{
    struct share s = {.w = w, .n = n, .least = least, .owner = w->id};
    if (w->pool) {
        struct slot *self = &w->pool->slots[w->id];
        s.set = self->n_shares++ % 2;
        /* for the next share: nobody is in the last one any more, a barrier lies between */
        atomic_store_explicit(&self->taken[1 - s.set], 0, memory_order_relaxed);
    }
    return s;
}

/* Chunk i of a slice; false: there are no more. */
static bool chunk_of(uint32_t i, uint32_t least, uint32_t *begin, uint32_t *end)
{
    uint32_t n = *end - *begin, size = (n + CHUNKS - 1) / CHUNKS;
    size = size > least ? size : least;
    if (i >= CHUNKS || i * size >= n)
        return false;
    *begin += i * size;
    *end = *end - *begin > size ? *begin + size : *end;
    return true;
}

bool share_take(struct share *s, uint32_t *begin, uint32_t *end)
{
    const struct worker *w = s->w;
    for (; s->from < w->n; s->from++, s->owner = (w->id + s->from) % w->n) {
        const struct worker owner = {s->owner, w->n, w->pool};
        worker_slice(&owner, s->n, begin, end);
        if (!w->pool) { /* its own slice at once */
            s->from = w->n;
            return *begin < *end;
        }
        uint32_t i = atomic_fetch_add_explicit(&w->pool->slots[s->owner].taken[s->set], 1,
                                               memory_order_relaxed);
        if (chunk_of(i, s->least, begin, end))
            return true;
    }
    return false;
}
