/* [kernel] speed of matrix products: one JSON line for each type, shape, number of planes, rows and
 * CPU level, with the operations executed (two planes: twice as many) and the bytes of W read in a
 * second, and the same for one row quantised. Medians of the threads' own time.
 *
 *   bench_matmul [--type q4_1,...] [--shape 1536x576,...] [--planes 1,2,0] [--rows 1,4,...]
 *                [--level best | all | NAME] [--threads 1] [--set MB] [--repeats 5] [--ms 4]
 *                [--sparse N] [--scatter 1]
 *
 * planes 0: float activations. set: as many copies of W, read in turn, as have that size: more than
 * the caches hold and less measure the memory. sparse: of two planes the second is read of every Nth
 * block of a row only, though all are counted; scatter: of other blocks in every row. A shape is
 * columns x rows of W^T: n_out x n_in. */
#include "core/base/sort.h"
#include "core/base/workers.h"
#include "core/kernel/cpu.h"
#include "core/kernel/matmul.h"
#include "core/kernel/panel.h"
#include "tests/lib/matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64, SETS = 4096 };

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525 + 1013904223; }

/* Random codes, scales of about 0.01; floats of that size, none so small that it takes a trap. */
static uint8_t *weights_new(const struct quant *q, size_t n_elems)
{
    size_t n = n_elems / q->block_elems * q->block_bytes;
    uint8_t *data = malloc(n);
    if (!data)
        abort();
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(next() >> 24);
    for (size_t i = 0; i + 1 < n; i += 2) /* no exponents near infinity anywhere */
        data[i + 1] &= 0xbf;
    const size_t step = q->panel == PANEL_f32 ? 4 : q->panel == PANEL_bf16 ? 2 : n + 1;
    for (size_t i = step - 1; i < n; i += step)
        data[i] = (uint8_t)(0x3c | (data[i] & 0x80));
    return data;
}

struct options {
    const char *types, *shapes, *planes, *rows, *level;
    uint32_t threads, set_mb, repeats, ms, sparse, scatter;
};

struct job {
    const struct options *o;
    struct workers *pool;
    struct matrix w[SETS];
    uint32_t n_w;
    struct matmul_input in;
    const float *least; /* [n_rows], or NULL: all blocks are read fine */
    uint8_t *room;      /* for matmul_choose */
    float *y;
    double ns[MOST]; /* of a pass, each worker */
};

/* The thread's own time: neighbours do not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void pass(const struct worker *worker, void *arg)
{
    struct job *job = arg;
    uint64_t start = cpu_ns(), now;
    uint32_t n = 0;
    do {
        for (uint32_t i = 0; i < job->n_w; i++) {
            struct matmul_output out = {.y = job->y, .stride = job->w[i].n_out};
            matmul_slice(&job->w[i], &job->in, &out, worker);
        }
        n++;
    } while ((now = cpu_ns()) - start < job->o->ms * 1000000ULL);
    job->ns[worker->id] = (double)(now - start) / n;
}

static double median(double *v, uint32_t n)
{
    sort_doubles(v, n);
    return v[n / 2];
}

/* Nanoseconds of a pass over all matrices, as if the threads' rates were added. */
static double pass_ns(struct job *job)
{
    double ns[MOST];
    for (uint32_t r = 0; r < job->o->repeats; r++) {
        double rate = 0;
        workers_run(job->pool, pass, job);
        for (uint32_t i = 0; i < job->o->threads; i++)
            rate += 1 / job->ns[i] / job->o->threads;
        ns[r] = 1 / rate;
    }
    return median(ns, job->o->repeats);
}

static double quantise_ns(struct job *job)
{
    double ns[MOST];
    const struct planes_part all = {
        .x = job->in.x, .stride = job->in.n_in, .n_rows = job->in.n_rows, .n = job->in.n_in};
    for (uint32_t r = 0; r < job->o->repeats; r++) {
        uint64_t start = cpu_ns(), now;
        uint32_t n = 0;
        do {
            matmul_quantise_part(&job->in, &all);
            n += job->in.n_rows;
        } while ((now = cpu_ns()) - start < 1000000);
        ns[r] = (double)(now - start) / n;
    }
    return median(ns, job->o->repeats);
}

static void bench(struct job *job, const char *type)
{
    static const uint32_t planes[] = {1, 2, 1};
    const struct matrix *w = job->w;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        const char *wanted = job->o->level;
        if (!strcmp(wanted, "best")
                ? level != (int)cpu_detect()
                : strcmp(wanted, "all") && strcmp(wanted, cpu_level_name(level)))
            continue;
        cpu_force(level);
        double row_ns = quantise_ns(job);
        if (job->least && job->in.activations == ACTIVATIONS_INT16)
            matmul_choose(&job->in, job->least, job->room);
        double ns = pass_ns(job);
        double ops = 2.0 * job->in.n_rows * w->n_out * w->n_in * planes[job->in.activations];
        printf("{\"bench\":\"matmul\",\"type\":\"%s\",\"n_out\":%u,\"n_in\":%u,\"planes\":%u,"
               "\"rows\":%u,\"level\":\"%s\",\"threads\":%u,\"set_mb\":%.0f,\"gop_s\":%.1f,"
               "\"gb_s\":%.2f,\"us\":%.2f,\"quantise_ns\":%.0f}\n",
               type, w->n_out, w->n_in,
               job->in.activations == ACTIVATIONS_FLOAT ? 0 : planes[job->in.activations],
               job->in.n_rows, cpu_level_name(level), job->o->threads,
               (double)w->n_bytes * job->n_w * 1e-6, ops * job->n_w / ns,
               (double)w->n_bytes * job->n_w / ns, ns / job->n_w * 1e-3, row_ns);
        fflush(stdout);
    }
}

/* The next of a list of numbers, or 0 and *at NULL. */
static uint32_t number(const char **at)
{
    char *end;
    uint32_t n = (uint32_t)strtoul(*at, &end, 10);
    *at = *end ? end + 1 : NULL;
    return n;
}

/* Whether a block has large values, for which its second plane is read. */
static bool is_fine(const struct options *o, size_t row, size_t block)
{
    uint32_t h = o->scatter ? (uint32_t)(row * 4096 + block) * 2654435761U >> 12 : (uint32_t)block;
    return h % o->sparse == 0;
}

static void bench_shape(struct job *job, int id, uint32_t n_out, uint32_t n_in)
{
    struct error err;
    uint8_t *data = weights_new(&quant_table[id], (size_t)n_out * n_in);
    uint32_t most = 1;
    for (const char *at = job->o->rows; at;) {
        uint32_t n = number(&at);
        most = n > most ? n : most;
    }
    job->n_w = 0;
    do {
        struct matrix *w = &job->w[job->n_w++];
        if (matrix_open(w, id, n_out, n_in, &err)) {
            fprintf(stderr, "bench_matmul: %s\n", err.text);
            exit(1);
        }
        if (job->n_w == 1)
            matrix_pack(w, id, data, 0, n_out);
        else
            memcpy(w->panels, job->w[0].panels, w->n_bytes);
    } while (job->n_w < SETS && job->n_w * job->w[0].n_bytes < job->o->set_mb * 1000000UL);
    float *x = aligned_alloc(64, ((size_t)most * n_in * sizeof(float) + 63) / 64 * 64);
    uint8_t *buffer = aligned_alloc(64, matmul_input_bytes(most, n_in, ACTIVATIONS_INT16) + 64);
    job->y = aligned_alloc(64, ((size_t)most * n_out * sizeof(float) + 63) / 64 * 64);
    for (size_t i = 0; i < (size_t)most * n_in; i++)
        x[i] = (float)(int32_t)next() * 0x1p-31F *
               (is_fine(job->o, i / n_in, i % n_in / PLANES_BLOCK) ? 8 : 1);
    float *least = aligned_alloc(64, (most * sizeof(float) + 63) / 64 * 64);
    for (uint32_t r = 0; r < most; r++)
        least[r] = matmul_least(2); /* between 1 and 8 */
    job->least = job->o->sparse > 1 ? least : NULL;
    job->room = malloc(matmul_fine_bytes(most, n_in));
    for (const char *planes = job->o->planes; planes;) {
        uint32_t n = number(&planes);
        for (const char *rows = job->o->rows; rows;) {
            job->in = (struct matmul_input){
                x,      number(&rows),
                n_in,   n == 1 ? ACTIVATIONS_INT8 : n == 2 ? ACTIVATIONS_INT16 : ACTIVATIONS_FLOAT,
                buffer, NULL};
            bench(job, quant_table[id].name);
        }
    }
    for (uint32_t i = 0; i < job->n_w; i++)
        matrix_close(&job->w[i]);
    free(x);
    free(job->y);
    free(buffer);
    free(least);
    free(job->room);
    free(data);
}

static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n]))
            return true;
    return false;
}

static struct options options_of(int argc, char **argv)
{
    struct options o = {"q4_1", "1536x576", "1,2,0", "1,2,4,8,16,128,512", "all", 1, 0, 5, 4, 1, 0};
    const struct {
        const char *name;
        const char **text;
        uint32_t *n;
    } rows[] = {{"--type", &o.types, NULL},     {"--shape", &o.shapes, NULL},
                {"--planes", &o.planes, NULL},  {"--rows", &o.rows, NULL},
                {"--level", &o.level, NULL},    {"--threads", NULL, &o.threads},
                {"--set", NULL, &o.set_mb},     {"--repeats", NULL, &o.repeats},
                {"--ms", NULL, &o.ms},          {"--sparse", NULL, &o.sparse},
                {"--scatter", NULL, &o.scatter}};
    for (int i = 1; i < argc; i += 2) {
        bool known = false;
        for (size_t j = 0; j < sizeof(rows) / sizeof(*rows) && i + 1 < argc; j++)
            if (!strcmp(argv[i], rows[j].name)) {
                known = true;
                if (rows[j].text)
                    *rows[j].text = argv[i + 1];
                else
                    *rows[j].n = (uint32_t)strtoul(argv[i + 1], NULL, 10);
            }
        if (!known || o.threads < 1 || o.threads > MOST || o.repeats < 1 || o.repeats > MOST ||
            o.sparse < 1) {
            fprintf(stderr, "bench_matmul: %s\n", argv[i]);
            exit(1);
        }
    }
    return o;
}

int main(int argc, char **argv)
{
    static struct job job;
    struct options o = options_of(argc, argv);
    struct error err;
    job.o = &o;
    job.pool = workers_open(o.threads, &err);
    if (!job.pool) {
        fprintf(stderr, "bench_matmul: %s\n", err.text);
        return 1;
    }
    for (int id = 0; id < QUANT_COUNT; id++)
        for (const char *at = listed(o.types, quant_table[id].name) ? o.shapes : NULL; at;) {
            uint32_t n_out = number(&at);
            bench_shape(&job, id, n_out, at ? number(&at) : 0);
        }
    workers_close(job.pool);
    return 0;
}
