/* [base] the machine's limits, all workers together: each runs a loop of core/kernel/limits.h for
 * some milliseconds, side by side, and their rates add up. The best of a few tries counts. */
#include "core/tool_run.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/kernel/limits.h"

#include <string.h>
#include <unistd.h>

enum { TRIES = 3, TRY_NS = 20000000, ROUNDS = 20000, MAX_WORKERS = 1024, PIECE = 1 << 20 };
enum { LEAST_SET = 1 << 28, MOST_SET = 1 << 30 }; /* bytes */

struct probe {
    uint64_t (*ops)(uint32_t n_rounds); /* NULL: read bytes */
    uint8_t *bytes;                     /* [n_bytes], in whole pieces */
    size_t n_bytes;
    double rate[MAX_WORKERS]; /* a second */
    uint64_t seen;            /* keeps what was read */
};

static void slice_of(const struct worker *w, const struct probe *p, uint8_t **begin, size_t *n)
{
    uint32_t from, to;
    worker_slice(w, (uint32_t)(p->n_bytes / PIECE), &from, &to);
    *begin = p->bytes + (size_t)from * PIECE;
    *n = (size_t)(to - from) * PIECE;
}

static void probe_worker(const struct worker *w, void *arg)
{
    struct probe *p = arg;
    uint8_t *bytes;
    size_t n;
    uint64_t done = 0, seen = 0, begin, now;
    slice_of(w, p, &bytes, &n);
    if (!p->ops) /* into the caches, as far as they go */
        seen ^= limits_read(bytes, n);
    worker_barrier(w);
    begin = clock_ns();
    do {
        if (p->ops)
            done += p->ops(ROUNDS);
        else
            seen ^= limits_read(bytes, n);
        done += p->ops ? 0 : n;
        now = clock_ns();
    } while (now - begin < TRY_NS);
    p->rate[w->id % MAX_WORKERS] = (double)done / ((double)(now - begin) / 1e9);
    __atomic_fetch_xor(&p->seen, seen, __ATOMIC_RELAXED);
}

static double best_rate(struct probe *p, struct workers *workers)
{
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double sum = 0;
        memset(p->rate, 0, sizeof(p->rate));
        workers_run(workers, probe_worker, p);
        for (int w = 0; w < MAX_WORKERS; w++)
            sum += p->rate[w];
        best = sum > best ? sum : best;
    }
    return best;
}

/* Memory is there only after it was written; each worker writes most of what it reads. */
static void touch_worker(const struct worker *w, void *arg)
{
    const struct probe *p = arg;
    struct share share = share_begin(w, (uint32_t)(p->n_bytes / PIECE), 1);
    for (uint32_t begin, end; share_take(&share, &begin, &end);)
        memset(p->bytes + (size_t)begin * PIECE, 1, (size_t)(end - begin) * PIECE);
}

/* Four times the last cache, within reason and a quarter of the memory there is. */
static size_t set_bytes(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t n = cache > 0 ? 4 * (uint64_t)cache : LEAST_SET, most = mem_available() / 4;
    n = n < LEAST_SET ? LEAST_SET : n > MOST_SET ? MOST_SET : n;
    n = n < most ? n : most;
    return (size_t)(n / PIECE * PIECE);
}

int tool_limits(struct tool_limits *l, struct workers *workers, uint64_t model_bytes,
                struct error *err)
{
    struct probe p = {.n_bytes = set_bytes()};
    size_t all = p.n_bytes, model = (size_t)(model_bytes / PIECE + 1) * PIECE;
    p.bytes = mem_big_new(all, MEM_OTHER);
    if (!p.bytes)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes to read", all);
    workers_run(workers, touch_worker, &p);
    l->memory_bytes_s = best_rate(&p, workers);
    p.n_bytes = model < all ? model : all;
    l->model_bytes_s = model < all ? best_rate(&p, workers) : l->memory_bytes_s;
    p.ops = limits_int8;
    l->int8_ops_s = best_rate(&p, workers);
    p.ops = limits_floats;
    l->float_ops_s = best_rate(&p, workers);
    mem_big_free(p.bytes, all, MEM_OTHER);
    return 0;
}
