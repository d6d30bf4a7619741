/* [kernel] ops.c: every operation at every CPU level of this machine against the same in double. */
#include "core/kernel/cpu.h"
#include "core/kernel/ops.h"
#include "core/kernel/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX = 600, GUARD = 32 };

static const uint32_t sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 576};
#define N_SIZES (sizeof(sizes) / sizeof(*sizes))

static uint64_t seed = 1;

static float uniform(float low, float high)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (float)(seed >> 40) / (float)(1 << 24);
}

static void fill(float *x, uint32_t n, float low, float high)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = uniform(low, high);
}

static void assert_close(double got, double want, double relative, double absolute)
{
    if (!(fabs(got - want) <= fabs(want) * relative + absolute))
        fail_msg("level %s: got %.9g, want %.9g", cpu_level_name(cpu_level()), got, want);
}

/* Runs check at every level for every size. */
static void each(void (*check)(uint32_t n))
{
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        for (uint32_t i = 0; i < N_SIZES; i++)
            check(sizes[i]);
    }
    cpu_force(cpu_detect());
}

static void check_layer_norm(uint32_t n)
{
    float x[MAX] = {0}, gain[MAX] = {0}, bias[MAX] = {0}, y[MAX + GUARD];
    double mean = 0, var = 0;
    fill(x, n, -3, 5);
    fill(gain, n, -1, 1);
    fill(bias, n, -1, 1);
    memset(y, 0x55, sizeof(y));
    for (uint32_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (uint32_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / n;
    ops_layer_norm(x, gain, bias, 1e-5f, y, n);
    for (uint32_t i = 0; i < n; i++)
        assert_close(y[i], (x[i] - mean) / sqrt(var + 1e-5f) * gain[i] + bias[i], 2e-6, 2e-6);
    for (uint32_t i = n; i < n + GUARD; i++)
        assert_memory_equal(&y[i], "\x55\x55\x55\x55", 4);
    ops_layer_norm(x, gain, NULL, 1e-5f, x, n); /* in place, without a bias */
    for (uint32_t i = 0; i < n; i++)
        assert_close(x[i], (double)y[i] - bias[i], 2e-6, 2e-6);
}

static void check_rms_norm(uint32_t n)
{
    float x[MAX] = {0}, gain[MAX] = {0}, y[MAX + GUARD];
    double square = 0;
    fill(x, n, -3, 5);
    fill(gain, n, -1, 1);
    memset(y, 0x55, sizeof(y));
    for (uint32_t i = 0; i < n; i++)
        square += (double)x[i] * x[i] / n;
    ops_rms_norm(x, gain, 1e-5f, y, n);
    for (uint32_t i = 0; i < n; i++)
        assert_close(y[i], x[i] / sqrt(square + 1e-5f) * gain[i], 2e-6, 1e-9);
    for (uint32_t i = n; i < n + GUARD; i++)
        assert_memory_equal(&y[i], "\x55\x55\x55\x55", 4);
}

static double gelu_new(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void check_activations(uint32_t n)
{
    float x[MAX] = {0}, up[MAX] = {0}, silu[MAX], gelu[MAX], plain[MAX];
    fill(x, n, -12, 12);
    fill(up, n, -2, 2);
    ops_silu(x, up, silu, n);
    ops_gelu_tanh(x, up, gelu, n);
    ops_gelu_tanh(x, NULL, plain, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_close(silu[i], x[i] / (1 + exp(-(double)x[i])) * up[i], 1e-6, 1e-12);
        assert_close(gelu[i], gelu_new(x[i]) * up[i], 4e-6, 1e-9);
        assert_close(plain[i], gelu_new(x[i]), 4e-6, 1e-9);
    }
    ops_silu(x, NULL, x, n); /* in place, without a gate */
    for (uint32_t i = 0; i < n; i++)
        assert_close((double)x[i] * up[i], silu[i], 1e-6, 1e-12);
}

static void check_sums(uint32_t n)
{
    float x[MAX] = {0}, y[MAX] = {0}, z[MAX], back[MAX];
    uint16_t half[MAX];
    fill(x, n, -100, 100);
    fill(y, n, -1, 1);
    memcpy(z, x, sizeof(z));
    ops_add(z, y, n);
    ops_scale(x, 0.37f, back, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(z[i] == x[i] + y[i]);
        assert_true(back[i] == x[i] * 0.37f);
    }
    ops_to_half(x, half, n);
    for (uint32_t i = 0; i < n; i++)
        assert_close(quant_half_to_float(half[i]), x[i], 1.0 / 2048, 0);
}

static void test_layer_norm(void **state)
{
    (void)state;
    each(check_layer_norm);
}

static void test_rms_norm(void **state)
{
    (void)state;
    each(check_rms_norm);
}

static void test_activations(void **state)
{
    (void)state;
    each(check_activations);
}

static void test_sums(void **state)
{
    (void)state;
    each(check_sums);
}

static void test_exp(void **state)
{
    enum { N = 4096 };
    static float x[N], y[N], one[1];
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        fill(x, N, -87.3f, 88.0f);
        ops_exp(x, y, N);
        for (int i = 0; i < N; i++)
            assert_close(y[i], exp((double)x[i]), 2.5e-7, 0);
        /* a value's bits do not depend on its lane, nor on how many stand beside it */
        for (int i = 0; i < 64; i++) {
            ops_exp(x + i, one, 1);
            assert_memory_equal(one, y + i, sizeof(*one));
        }
        const float edge[] = {0, -INFINITY, -87.4f, -1e30f, 88.0f, 1e30f, NAN};
        ops_exp(edge, y, 7);
        assert_true(y[0] == 1);
        assert_true(y[1] == 0 && y[2] == 0 && y[3] == 0);
        assert_true(y[5] == y[4] && isfinite(y[5]));
        assert_true(isnan(y[6]));
    }
}

/* Two heads of n values and 3 behind the pairs; in place too. */
static void check_rope(uint32_t n)
{
    enum { POS = 100000 };
    double freq[MAX / 2];
    float turn[MAX], x[2 * MAX], out[2 * MAX + GUARD];
    uint32_t n_pairs = n / 2, dim = 2 * n_pairs + 3;
    for (uint32_t i = 0; i < n_pairs; i++)
        freq[i] = pow(0.5, i);
    fill(x, 2 * dim, -3, 3);
    memset(out, 0x55, sizeof(out));
    ops_rope_turn(turn, POS, freq, n_pairs);
    ops_rope_pairs(x, 0.37f, turn, n_pairs, out, 2, dim);
    for (uint32_t h = 0; h < 2 * dim; h += dim) {
        for (uint32_t i = 0; i < n_pairs; i++) {
            double c = cos(POS * freq[i]), s = sin(POS * freq[i]);
            double a = 0.37 * x[h + 2 * i], b = 0.37 * x[h + 2 * i + 1];
            assert_close(out[h + 2 * i], a * c - b * s, 1e-6, 1e-6);
            assert_close(out[h + 2 * i + 1], a * s + b * c, 1e-6, 1e-6);
        }
        for (uint32_t i = 2 * n_pairs; i < dim; i++)
            assert_true(out[h + i] == x[h + i] * 0.37f);
    }
    for (uint32_t i = 2 * dim; i < 2 * dim + GUARD; i++)
        assert_memory_equal(&out[i], "\x55\x55\x55\x55", 4);
    ops_rope_pairs(x, 0.37f, turn, n_pairs, x, 2, dim);
    assert_memory_equal(x, out, 2 * dim * sizeof(*x));
}

static void test_rope(void **state)
{
    (void)state;
    each(check_rope);
}

/* A few columns of several rows: x * gain exactly, sums of squares within rounding, and nothing beyond
 * the columns. */
static void test_gain(void **state)
{
    enum { ROWS = 5, N = 32, STRIDE = 40 };
    float x[ROWS * STRIDE], gain[N], h[ROWS * STRIDE], square[ROWS];
    (void)state;
    for (int i = 0; i < ROWS * STRIDE; i++)
        x[i] = sinf((float)i) * 3;
    for (int i = 0; i < N; i++)
        gain[i] = cosf((float)i);
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level))
        for (uint32_t n = 1; n <= N; n++) {
            struct ops_gain job = {.x = x,
                                   .gain = gain,
                                   .h = h,
                                   .square = square,
                                   .x_stride = STRIDE,
                                   .h_stride = STRIDE,
                                   .n_rows = ROWS,
                                   .n = n};
            cpu_force((enum cpu_level)level);
            for (int i = 0; i < ROWS * STRIDE; i++)
                h[i] = 77;
            ops_gain(&job);
            for (size_t r = 0; r < ROWS; r++) {
                double sum = 0;
                for (size_t i = 0; i < STRIDE; i++) {
                    float v = x[r * STRIDE + i];
                    assert_true(h[r * STRIDE + i] == (i < n ? v * gain[i] : 77));
                    sum += i < n ? (double)v * v : 0;
                }
                assert_true(fabs(square[r] - sum) <= 8 * 0x1p-23 * sum);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gain),     cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_rms_norm), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_exp),
        cmocka_unit_test(test_rope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
