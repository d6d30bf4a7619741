/* [base] fork-join over persistent threads: a generation counter to start, a counting barrier to
 * meet. Waiting goes spin (about 50 us) -> sched_yield -> futex, for a futex costs 30 us on
 * each side (measured) and a spinner on a shared processor costs the one it waits for. */
#include "core/base/workers.h"

#include "core/base/mem.h"
#include "core/base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 2000, YIELDS = 64 };

struct workers {
    _Alignas(64) atomic_uint generation; /* raised to start a run */
    _Alignas(64) atomic_uint running;    /* workers 1.. that have not returned from fn */
    _Alignas(64) atomic_uint arrived;    /* at the barrier */
    _Alignas(64) atomic_uint phase;      /* raised when all have arrived */
    _Alignas(64) atomic_uint sleepers;
    workers_fn *fn;
    void *arg;
    atomic_bool stop;
    uint32_t n, n_started;
    struct worker self;
    struct {
        pthread_t thread;
        struct worker w;
    } * others; /* [n - 1] */
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns when *word differs from seen. */
static void wait_change(struct workers *pool, atomic_uint *word, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return;
        pause_cpu();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return;
        sched_yield();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void wake_all(struct workers *pool, atomic_uint *word)
{
    if (atomic_load(&pool->sleepers))
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct workers *pool = w->pool;
    unsigned seen = 0;
    thread_name("attend-worker-%u", w->id);
    for (;;) {
        wait_change(pool, &pool->generation, seen);
        seen++;
        if (atomic_load(&pool->stop))
            return NULL;
        pool->fn(w, pool->arg);
        if (atomic_fetch_sub(&pool->running, 1) == 1)
            wake_all(pool, &pool->running);
    }
}

struct workers *workers_open(uint32_t n, struct error *err)
{
    struct workers *pool = aligned_alloc(64, sizeof(*pool));
    sigset_t before;
    if (!pool) {
        error_set(err, ERR_NO_MEMORY, "no memory for %u workers", n);
        return NULL;
    }
    memset(pool, 0, sizeof(*pool));
    pool->n = n;
    pool->self = (struct worker){0, n, pool};
    pool->others = mem_new(n, sizeof(*pool->others));
    if (!pool->others) {
        free(pool);
        error_set(err, ERR_NO_MEMORY, "no memory for %u workers", n);
        return NULL;
    }
    thread_block_signals(&before);
    for (uint32_t i = 1; i < n; i++) {
        pool->others[i - 1].w = (struct worker){i, n, pool};
        int rc =
            pthread_create(&pool->others[i - 1].thread, NULL, worker_main, &pool->others[i - 1].w);
        if (rc) {
            error_set(err, ERR_NO_MEMORY, "cannot start worker %u of %u: %s", i, n, strerror(rc));
            break;
        }
        pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->n_started + 1 < n) {
        workers_close(pool);
        return NULL;
    }
    return pool;
}

void workers_close(struct workers *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->generation, 1);
    wake_all(pool, &pool->generation);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->others[i].thread, NULL);
    free(pool->others);
    free(pool);
}

uint32_t workers_count(const struct workers *pool) { return pool->n; }

void workers_run(struct workers *pool, workers_fn *fn, void *arg)
{
    pool->fn = fn;
    pool->arg = arg;
    atomic_store(&pool->running, pool->n - 1);
    atomic_fetch_add(&pool->generation, 1);
    wake_all(pool, &pool->generation);
    fn(&pool->self, arg);
    for (unsigned left; (left = atomic_load_explicit(&pool->running, memory_order_acquire)) != 0;)
        wait_change(pool, &pool->running, left);
}

void worker_barrier(const struct worker *w)
{
    struct workers *pool = w->pool;
    if (w->n == 1)
        return;
    unsigned phase = atomic_load_explicit(&pool->phase, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) == w->n - 1) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_fetch_add(&pool->phase, 1);
        wake_all(pool, &pool->phase);
    } else {
        wait_change(pool, &pool->phase, phase);
    }
}
