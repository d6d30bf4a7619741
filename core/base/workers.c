/* [base] fork-join over persistent threads: a word to start each, a counting barrier to meet.
 * Waiting goes spin (about 50 us) -> sched_yield -> futex, for a futex costs 30 us on each
 * side (measured) and a spinner on a shared processor costs the one it waits for.
 *
 * A run is open until worker 0 returns from fn: then nobody enters any more, and it waits for those
 * that are in. Who takes part is counted in the word that counts arrivals: a worker is added to a
 * section while at least one has not arrived, and leaves instead of arriving. */
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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OPEN     (1U << 31)
#define ONE_MORE (UINT64_C(1) << 16)

enum { SPIN_NS = 50000, SPINS = 32 /* between looks at the clock */, YIELDS = 64 };
enum { PARTS = 16 }; /* a chunk is at most a 16th of a slice, unless the caller says otherwise */
/* A guest works for so long and then rests: less than half of the time, so that it is let in at once
 * when it wakes, and its stretch ends before a time slice (3 to 4 ms) might. */
enum { STRETCH_NS = 1000000, REST_NS = 1500000 };

/* A word that is waited for, and how many sleep on it. */
struct signal {
    _Alignas(64) atomic_uint value;
    atomic_uint sleepers;
};

/* A worker's own; what others write or read lies on lines of its own. */
struct slot {
    struct signal go;                    /* raised to start a run */
    _Alignas(64) _Atomic uint64_t taken; /* section << 32 | chunks of its slice that are taken */
    uint32_t processor;                  /* of those allowed, where it is pinned */
    _Alignas(64) struct worker w;
    pthread_t thread;
    atomic_bool is_guest; /* of a busy process on its processor: rests before that takes it */
    bool takes_part, leaves;
    uint32_t section;   /* it is in, or passes through */
    uint64_t awake_ns;  /* it has not rested since */
    uint64_t lost_ns;   /* to other threads, summed since the last look */
    uint64_t slept_ns;  /* in the run, waiting */
    uint64_t waited_ns; /* thread_waited_ns, when it was asked last */
};

struct workers {
    struct signal running;                 /* OPEN, and workers 1.. that are in fn */
    struct signal section;                 /* raised when all have arrived */
    _Alignas(64) _Atomic uint64_t meeting; /* section << 32 | taking part << 16 | arrived */
    _Alignas(64) workers_fn *fn;
    void *arg;
    atomic_bool stop;
    uint32_t first, n_runs; /* section that the run began with; runs so far */
    uint32_t n, n_started;
    bool pinned; /* the workers are, each to its own processor */
    cpu_set_t allowed;
    struct crowd crowd;
    atomic_uint stretch_ns, rest_ns; /* of guests */
    struct slot *slots;              /* [n] */
    uint64_t *lost_ns;               /* [n]: what a look is taken at */
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

/* Returns when the value differs from seen. A guest does not yield: its neighbour might keep the
 * processor for a whole time slice, and one that slept is let in at once. */
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
    bool yields = !atomic_load_explicit(&self->is_guest, memory_order_relaxed);
    for (int i = 0; i < YIELDS && yields; i++) {
        if (changed(s, seen))
            return;
        sched_yield();
    }
    begin = clock_ns();
    atomic_fetch_add(&s->sleepers, 1);
    while (atomic_load(&s->value) == seen)
        syscall(SYS_futex, &s->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&s->sleepers, 1);
    begin = clock_ns() - begin;
    self->slept_ns += begin;
    self->awake_ns += begin;
}

/* After the value was changed. */
static void signal_wake(struct signal *s)
{
    if (atomic_load(&s->sleepers))
        syscall(SYS_futex, &s->value, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* What a thread has had of its processor. Up to the last tick only, but to ask for more (the
 * thread's clock) makes the scheduler think, and may cost the processor right in the middle of a
 * run. */
struct use {
    uint64_t ns, wall_ns;
    long n_taken; /* how often the processor was given to another thread */
};

static struct use use_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    uint64_t us = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000U +
                  (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    return (struct use){us * 1000, clock_ns(), u.ru_nivcsw};
}

/* ---- sections ---- */

static uint32_t section_of(uint64_t meeting) { return (uint32_t)(meeting >> 32); }

static bool all_arrived(uint64_t meeting) { return (uint16_t)meeting == (uint16_t)(meeting >> 16); }

/* By the last that arrived or left. */
static void next_section(struct workers *pool, uint64_t meeting)
{
    uint32_t next = section_of(meeting) + 1;
    uint64_t taking_part = meeting & (UINT64_C(0xffff) << 16);
    atomic_store_explicit(&pool->meeting, (uint64_t)next << 32 | taking_part, memory_order_release);
    atomic_store(&pool->section.value, next);
    signal_wake(&pool->section);
}

/* True: the others are in this section, and will wait for this worker at its end. */
static bool join(struct workers *pool, uint32_t section)
{
    uint64_t seen = atomic_load(&pool->meeting);
    for (uint32_t i = 1;; i++) {
        if (section_of(seen) == section && !all_arrived(seen)) {
            if (atomic_compare_exchange_weak(&pool->meeting, &seen, seen + ONE_MORE))
                return true;
        } else if ((int32_t)(section_of(seen) - section) > 0) {
            return false;
        } else { /* about to end, by one that may need this processor for it */
            if (i % SPINS)
                pause_cpu();
            else
                sched_yield();
            seen = atomic_load(&pool->meeting);
        }
    }
}

static void leave(struct workers *pool)
{
    uint64_t meeting = atomic_fetch_sub(&pool->meeting, ONE_MORE) - ONE_MORE;
    if (all_arrived(meeting))
        next_section(pool, meeting);
}

static void meet(struct workers *pool, struct slot *self)
{
    uint64_t meeting = atomic_fetch_add(&pool->meeting, 1) + 1;
    if (all_arrived(meeting)) {
        next_section(pool, meeting);
        return;
    }
    for (;;) { /* the signal may lag behind the meeting */
        uint32_t seen = atomic_load_explicit(&pool->section.value, memory_order_acquire);
        if ((int32_t)(seen - self->section) > 0)
            return;
        signal_wait(self, &pool->section, seen);
    }
}

void worker_barrier(const struct worker *w)
{
    struct workers *pool = w->pool;
    if (!pool)
        return;
    struct slot *self = &pool->slots[w->id];
    if (!self->takes_part)
        self->takes_part = !self->leaves && join(pool, ++self->section);
    else if (!self->leaves) {
        meet(pool, self);
        self->section++;
    } else {
        leave(pool);
        self->takes_part = false;
    }
}

bool worker_takes(const struct worker *w)
{
    if (!w->pool)
        return true;
    struct slot *self = &w->pool->slots[w->id];
    if (!self->takes_part || self->leaves)
        return false;
    if (atomic_load_explicit(&self->is_guest, memory_order_relaxed))
        self->leaves = clock_ns() - self->awake_ns > w->pool->stretch_ns;
    return !self->leaves;
}

uint32_t workers_barriers(const struct workers *pool)
{
    return atomic_load_explicit(&pool->section.value, memory_order_relaxed) - pool->n_runs;
}

/* ---- runs ---- */

/* What other threads had of a run: where the machine itself took much of it (steal), a thread that
 * ran for microseconds is not to blame. Asked only if there was any, for asking takes microseconds. */
static uint64_t lost_in(struct slot *self, const struct use *before, const struct use *after)
{
    uint64_t last = self->waited_ns, had = after->ns - before->ns + self->slept_ns;
    uint64_t ran = after->wall_ns - before->wall_ns;
    if (after->n_taken == before->n_taken)
        return 0;
    self->waited_ns = thread_waited_ns();
    if (self->waited_ns == UINT64_MAX) /* nobody knows */
        return ran > had ? ran - had : 0;
    uint64_t waited = self->waited_ns > last ? self->waited_ns - last : 0;
    uint64_t most = ran > self->slept_ns ? ran - self->slept_ns : 0;
    return waited < most ? waited : most;
}

/* Runs fn and notes what went to other processes of the time it took, which is returned. */
static uint64_t run(struct slot *self, workers_fn *fn, void *arg)
{
    struct use before = use_now();
    self->slept_ns = 0;
    self->leaves = false;
    self->section = self->w.pool->first;
    self->takes_part = self->w.id == 0 || join(self->w.pool, self->section);
    fn(&self->w, arg);
    struct use after = use_now();
    self->lost_ns += lost_in(self, &before, &after);
    return after.wall_ns - before.wall_ns;
}

/* Into the run that is open; false: there is none. */
static bool enter(struct workers *pool)
{
    unsigned seen = atomic_load(&pool->running.value);
    while (seen & OPEN)
        if (atomic_compare_exchange_weak(&pool->running.value, &seen, seen + 1))
            return true;
    return false;
}

/* A guest whose stretch is over lets its host have the processor. */
static void rest(struct slot *self)
{
    const struct workers *pool = self->w.pool;
    const struct timespec t = {0, (long)pool->rest_ns};
    if (!atomic_load(&self->is_guest) || clock_ns() - self->awake_ns <= pool->stretch_ns)
        return;
    nanosleep(&t, NULL);
    self->awake_ns = clock_ns();
}

static void *worker_main(void *arg)
{
    struct slot *self = arg;
    struct workers *pool = self->w.pool;
    thread_name("attend-worker-%u", self->w.id);
    for (unsigned seen = 0, done = 0; !atomic_load(&pool->stop); rest(self)) {
        seen = atomic_load(&self->go.value);
        if (seen == done) {
            signal_wait(self, &self->go, seen);
        } else if (!enter(pool)) {
            done = seen;
        } else {
            run(self, pool->fn, pool->arg);
            done = self->leaves ? done : seen;
            if (atomic_fetch_sub(&pool->running.value, 1) == 1)
                signal_wake(&pool->running);
        }
    }
    return NULL;
}

/* Worker i to its processor, or to all that are allowed. */
static void pin(const struct workers *pool, uint32_t i, bool pinned)
{
    cpu_set_t one;
    uint32_t n = 0;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &pool->allowed) && n++ == pool->slots[i].processor)
            CPU_SET(cpu, &one);
    pthread_setaffinity_np(pool->slots[i].thread, sizeof(one), pinned ? &one : &pool->allowed);
}

/* Pins all workers, where there is one for each processor allowed. */
static void place(struct workers *pool)
{
    pool->pinned = (uint32_t)CPU_COUNT(&pool->allowed) == pool->n;
    for (uint32_t i = 0; i < pool->n && pool->pinned; i++)
        pin(pool, i, true);
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
    for (uint32_t i = 0; i < n; i++) {
        slots[i].w = (struct worker){i, n, pool};
        slots[i].processor = i;
    }
    slots[0].thread = pthread_self();
    pool->n_started = 1;
    atomic_store(&pool->stretch_ns, STRETCH_NS);
    atomic_store(&pool->rest_ns, REST_NS);
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
    place(pool);
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

static void exchange_processors(struct workers *pool, uint32_t i, uint32_t j)
{
    uint32_t processor = pool->slots[i].processor;
    pool->slots[i].processor = pool->slots[j].processor;
    pool->slots[j].processor = processor;
    pin(pool, i, pool->pinned);
    pin(pool, j, pool->pinned);
}

static void name_guests(struct workers *pool)
{
    for (uint32_t i = 0; i < pool->n; i++)
        atomic_store(&pool->slots[i].is_guest, i >= pool->crowd.n_hosts);
}

/* After a run: who is a guest in the next ones. */
static void look_around(struct workers *pool, uint64_t ran_ns)
{
    struct crowd *c = &pool->crowd;
    for (uint32_t i = 0; i < pool->n; i++)
        pool->lost_ns[i] = pool->slots[i].lost_ns;
    if (pool->n == 1 || !crowd_look(c, pool->lost_ns, ran_ns, clock_ns()))
        return;
    if (c->moved < pool->n)
        exchange_processors(pool, c->moved, c->n_hosts);
    for (uint32_t i = 0; i < pool->n; i++)
        pool->slots[i].lost_ns = 0;
    name_guests(pool);
}

void workers_guests(struct workers *pool, uint32_t n_hosts, uint32_t stretch_ns, uint32_t rest_ns)
{
    atomic_store(&pool->stretch_ns, stretch_ns);
    atomic_store(&pool->rest_ns, rest_ns);
    pool->crowd.n_hosts = n_hosts;
    name_guests(pool);
}

/* Opens a run and calls all workers. */
static void start(struct workers *pool)
{
    pool->first = atomic_load(&pool->section.value) + 1;
    pool->n_runs++;
    atomic_store(&pool->section.value, pool->first);
    atomic_store(&pool->meeting, (uint64_t)pool->first << 32 | ONE_MORE);
    atomic_store(&pool->running.value, OPEN);
    for (uint32_t i = 1; i < pool->n; i++) {
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
    start(pool);
    uint64_t ran_ns = run(self, fn, arg);
    atomic_fetch_and(&pool->running.value, ~OPEN);
    for (unsigned left; (left = atomic_load_explicit(&pool->running.value, memory_order_acquire));)
        signal_wait(self, &pool->running, left);
    look_around(pool, ran_ns);
}

/* ---- shares ---- */

struct share share_begin(const struct worker *w, uint32_t n, uint32_t least)
{
    return (struct share){.w = w, .n = n, .least = least, .parts = PARTS, .owner = w->id};
}

/* Chunk i of a slice; false: there are no more. */
static bool chunk_of(const struct share *s, uint32_t i, uint32_t *begin, uint32_t *end)
{
    const uint32_t n = *end - *begin, most = n / s->parts + (n % s->parts != 0);
    for (uint32_t size; *begin < *end; *begin += size) {
        uint32_t left = *end - *begin;
        size = left - left / 2 < most ? left - left / 2 : most;
        size = size > s->least ? size : s->least;
        size = size < left ? size : left;
        if (i-- == 0) {
            *end = *begin + size;
            return true;
        }
    }
    return false;
}

/* The next chunk of the slice [*begin, *end), which is the owner's; false: all are taken. Who only finds
 * that out writes nothing. */
static bool take_chunk(const struct share *s, struct slot *owner, uint32_t section, uint32_t *begin,
                       uint32_t *end)
{
    uint64_t seen = atomic_load_explicit(&owner->taken, memory_order_relaxed), n;
    uint32_t b, e;
    do {
        n = section_of(seen) == section ? (uint32_t)seen : 0;
        b = *begin;
        e = *end;
        if (!chunk_of(s, (uint32_t)n, &b, &e))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&owner->taken, &seen,
                                                    ((uint64_t)section << 32) + n + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    *begin = b;
    *end = e;
    return true;
}

bool share_take(struct share *s, uint32_t *begin, uint32_t *end)
{
    const struct worker *w = s->w;
    ASSERT(s->least > 0 && s->parts > 0);
    if (!worker_takes(w))
        return false;
    for (; s->from < w->n; s->from++, s->owner = (w->id + s->from) % w->n) {
        const struct worker owner = {s->owner, w->n, w->pool};
        worker_slice(&owner, s->n, begin, end);
        if (!w->pool) { /* its own slice at once */
            s->from = w->n;
            return *begin < *end;
        }
        struct slot *slots = w->pool->slots;
        if (take_chunk(s, &slots[s->owner], slots[w->id].section, begin, end))
            return true;
    }
    return false;
}
