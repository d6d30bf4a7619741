/* [kernel] speed of one matrix product in one thread, each CPU level against scalar: one JSON line
 * per level and number of rows. bench_matmul [type [n_out n_in]], default q4_1 1536 576. */
#include "core/kernel/cpu.h"
#include "core/kernel/matmul.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525 + 1013904223; }

/* Random codes, scales of about 0.01. */
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
    return data;
}

struct job {
    struct matrix w;
    struct matmul_input in;
    float *y;
};

/* The thread's own time: neighbours do not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static double giga_per_second(struct job *job)
{
    struct worker one = {0, 1, NULL};
    double ops = 2.0 * job->in.n_rows * job->w.n_out * job->w.n_in, best = 0;
    for (int repeat = 0; repeat < 5; repeat++) {
        uint64_t start = cpu_ns(), now;
        uint32_t n = 0;
        do {
            matmul_quantise(&job->in, 0, job->in.n_rows);
            matmul_run(&job->w, &job->in, NULL, job->y, job->w.n_out, &one);
            n++;
        } while ((now = cpu_ns()) - start < 20000000);
        double rate = ops * n / (double)(now - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static void bench(struct job *job, const char *type)
{
    double scalar = 0;
    for (int level = 0; level <= (int)cpu_detect(); level++) {
        cpu_force(level);
        double rate = giga_per_second(job);
        scalar = level == CPU_SCALAR ? rate : scalar;
        printf("{\"bench\":\"matmul\",\"type\":\"%s\",\"n_out\":%u,\"n_in\":%u,\"rows\":%u,"
               "\"activations\":%d,\"level\":\"%s\",\"gop_s\":%.1f,\"gb_s\":%.1f,\"ratio\":%.1f}\n",
               type, job->w.n_out, job->w.n_in, job->in.n_rows, (int)job->in.activations,
               cpu_level_name(level), rate,
               rate / (2.0 * job->in.n_rows * job->w.n_out * job->w.n_in) * (double)job->w.n_bytes,
               rate / scalar);
    }
}

int main(int argc, char **argv)
{
    static const uint32_t rows[] = {1, 4, 8, 16, 128};
    const char *type = argc > 1 ? argv[1] : "q4_1";
    uint32_t n_out = argc > 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1536;
    uint32_t n_in = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 576;
    int id = 0;
    while (id < QUANT_COUNT && strcmp(quant_table[id].name, type) != 0)
        id++;
    if (id == QUANT_COUNT) {
        fprintf(stderr, "bench_matmul: unknown type %s\n", type);
        return 1;
    }
    struct job job = {0};
    struct error err;
    if (matrix_open(&job.w, id, n_out, n_in, &err)) {
        fprintf(stderr, "bench_matmul: %s\n", err.text);
        return 1;
    }
    uint8_t *data = weights_new(&quant_table[id], (size_t)n_out * n_in);
    matrix_pack(&job.w, id, data, 0, n_out);
    free(data);
    float *x = aligned_alloc(64, 128UL * n_in * sizeof(float));
    job.y = aligned_alloc(64, 128UL * n_out * sizeof(float));
    uint8_t *buffer = aligned_alloc(64, matmul_input_bytes(128, n_in, ACTIVATIONS_INT16));
    for (size_t i = 0; i < 128UL * n_in; i++)
        x[i] = (float)(int32_t)next() * 0x1p-31F;
    for (int activations = ACTIVATIONS_INT8; activations <= ACTIVATIONS_FLOAT; activations++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            job.in = (struct matmul_input){x, rows[i], n_in, activations, buffer};
            bench(&job, type);
        }
    matrix_close(&job.w);
    free(x);
    free(job.y);
    free(buffer);
    return 0;
}
