/* [kernel] OpenBLAS: named, called for float matrices of 64 rows and more and only there, right, and
 * by two workers at once. Skipped by name where the library is absent. */
#include "core/kernel/matmul.h"
#include "tests/lib/matrix.h"

#include "weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static char name[96];

static bool blas_on(void)
{
    struct error err;
    if (matmul_blas(true, name, sizeof(name), &err) == 0)
        return true;
    printf("skipped: %s\n", err.text);
    return false;
}

static void test_name(void **state)
{
    (void)state;
    if (!blas_on())
        skip();
    assert_ptr_equal(strstr(name, "OpenBLAS "), name);
    assert_null(strstr(name, "Prescott"));
    assert_string_equal(getenv("OPENBLAS_NUM_THREADS"), "1");
    assert_int_equal(matmul_blas(false, name, sizeof(name), NULL), 0);
    assert_string_equal(name, "");
}

struct job {
    const struct matrix *w;
    const struct matmul_input *in;
    struct matmul_output out;
};

static void run(const struct worker *worker, void *arg)
{
    const struct job *job = arg;
    struct share halves = share_begin(worker, 2, 1);
    for (uint32_t i, end; share_take(&halves, &i, &end);)
        for (uint32_t from, to; i < end; i++) {
            worker_slice(&(struct worker){.id = i, .n = 2}, job->w->n_panels, &from, &to);
            if (from < to)
                matmul_run_panels(job->w, job->in, &job->out, from, to, worker->id);
        }
}

/* sgemm calls of one product, set (rows scaled) or added, which is checked against a double sum. */
static uint64_t calls_of(enum matmul_store store, enum quant_id type, uint32_t n_rows,
                         uint32_t n_out, uint32_t n_in)
{
    bool add = store == MATMUL_ADD;
    size_t row_bytes = data_row_bytes(type, n_in), y_stride = n_out + 3;
    uint8_t *data = data_weights(type, DATA_RANDOM, n_out, n_in);
    float *x = aligned_alloc(64, ((size_t)n_rows * n_in * 4 + 63) / 64 * 64);
    float *y = malloc(n_rows * y_stride * sizeof(float)), *bias = malloc(n_out * sizeof(float));
    float *scale = malloc(n_rows * sizeof(float)), *old = malloc(n_rows * y_stride * sizeof(float));
    for (size_t i = 0; i < (size_t)n_rows * n_in; i++)
        x[i] = random_float();
    for (uint32_t o = 0; o < n_out; o++)
        bias[o] = random_float();
    for (uint32_t r = 0; r < n_rows; r++)
        scale[r] = add ? 1 : random_float();
    for (size_t i = 0; i < n_rows * y_stride; i++)
        y[i] = old[i] = add ? random_float() : 0;
    struct matrix w;
    struct workers *pool = workers_open(2, NULL);
    assert_int_equal(matrix_open(&w, type, n_out, n_in, NULL), 0);
    matrix_pack(&w, type, data, 0, n_out);
    struct matmul_input in = {x, n_rows, n_in, ACTIVATIONS_FLOAT, NULL, NULL};
    struct job job = {&w, &in, {.y = y, .stride = y_stride, .bias = bias, .store = store}};
    job.out.scale = add ? NULL : scale;
    uint64_t before = matmul_blas_calls();
    workers_run(pool, run, &job);
    for (uint32_t r = 0; r < n_rows; r += 9)
        for (uint32_t o = 0; o < n_out; o++) {
            double sum = (double)old[r * y_stride + o] + bias[o], size = fabs(sum);
            for (uint32_t k = 0; k < n_in; k++) {
                double product = (double)ref_float(type, data + o * row_bytes, k) *
                                 x[(size_t)r * n_in + k] * scale[r];
                sum += product;
                size += fabs(product);
            }
            if (!(fabs(sum - y[r * y_stride + o]) <= 4 * sqrt(n_in) * 0x1p-23 * size))
                fail_msg("%s %s: y[%u, %u] = %a, wanted %a", name, quant_table[type].name, r, o,
                         y[r * y_stride + o], sum);
        }
    workers_close(pool);
    matrix_close(&w);
    free(data);
    free(x);
    free(y);
    free(bias);
    free(scale);
    free(old);
    return matmul_blas_calls() - before;
}

static void test_called(void **state)
{
    (void)state;
    if (!blas_on())
        skip();
    for (enum matmul_store s = MATMUL_SET; s <= MATMUL_ADD; s++) {
        assert_int_equal(calls_of(s, QUANT_f32, 64, 96, 40), 2);   /* one for each half */
        assert_int_equal(calls_of(s, QUANT_f16, 70, 545, 515), 8); /* 256 columns, 512 of k each */
        assert_int_equal(calls_of(s, QUANT_bf16, 100, 1, 33), 1);
        assert_int_equal(calls_of(s, QUANT_f32, MATMUL_BLAS_ROWS - 1, 96, 40), 0);
        assert_int_equal(calls_of(s, QUANT_q8_0, 64, 96, 64), 0);
    }
    assert_int_equal(matmul_blas(false, name, sizeof(name), NULL), 0);
    assert_int_equal(calls_of(MATMUL_SET, QUANT_f32, 64, 96, 40), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
