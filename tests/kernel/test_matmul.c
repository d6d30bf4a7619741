/* [kernel] Y = X W^T + b on every CPU level this machine has: every file type, random and edge
 * data, against sums made one value at a time in the order that the kernels promise (equal bits), and
 * against a double sum; a row's bits whatever the number of rows, workers, panels. */
#include "core/kernel/cpu.h"
#include "core/kernel/matmul.h"
#include "tests/lib/matrix.h"

#include "weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

struct problem {
    enum quant_id type;
    enum data weights, rows;
    enum activations activations;
    uint32_t n_rows, n_out, n_in;
    float least; /* 16 bits of all rows' blocks with a value of at least this; 0: of all blocks */
};

/* Of rows_new's random rows some have all blocks above it, some none, some both. */
#define LEAST (0.96F * 31)

static const char *describe(const struct problem *p)
{
    static char text[160];
    snprintf(text, sizeof(text), "%s %s weights %s x %s activations %d, least %a [%u x %u -> %u]",
             cpu_level_name(cpu_level()), quant_table[p->type].name, data_names[p->weights],
             data_names[p->rows], (int)p->activations, p->least, p->n_rows, p->n_in, p->n_out);
    return text;
}

static float *floats_new(size_t n)
{
    float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    if (!p)
        abort();
    return p;
}

static float *rows_new(enum data d, uint32_t n_rows, uint32_t n_in)
{
    float *x = floats_new((size_t)n_rows * n_in);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t k = 0; k < n_in; k++) {
            float v = random_float();
            switch (d) {
            case DATA_ZERO:
                v = 0;
                break;
            case DATA_MOST:
                v = 127;
                break;
            case DATA_LEAST:
                v = k % 32 ? -128 : -32639; /* low plane at its ends */
                break;
            case DATA_LARGE:
                v *= 1e30F;
                break;
            case DATA_TINY:
                v *= 1e-42F;
                break;
            case DATA_UNIT: /* the scale becomes 1: integers stay integers */
                v = k % 32 == 7 ? 127 : (float)(int)(v * 127);
                break;
            default:
                v *= (float)(1 + r % 5 * 30);
            }
            x[(size_t)r * n_in + k] = v;
        }
    return x;
}

/* One row of activations as integers: one scale per 32. */
static void ref_quantise(const struct problem *p, const float *x, int32_t *q, float *scale)
{
    float steps = p->activations == ACTIVATIONS_INT8 ? 127 : 32639;
    for (uint32_t b = 0; b < p->n_in / 32; b++) {
        float top = 0;
        for (uint32_t k = 32 * b; k < 32 * b + 32; k++)
            top = fmaxf(top, fabsf(x[k]));
        scale[b] = top < 0x1p-100F ? 0 : top / steps;
        for (uint32_t k = 32 * b; k < 32 * b + 32; k++)
            q[k] = scale[b] == 0 ? 0 : (int32_t)nearbyintf(x[k] * (steps / top));
    }
}

static float fused(float a, float b, float c)
{
    return cpu_level() == CPU_SCALAR ? c + a * b : fmaf(a, b, c);
}

/* One plane of a block: codes q and their scale. */
static float ref_plane(const struct problem *p, const struct part *w, const int32_t *q, float s,
                       float acc)
{
    uint32_t group = ref_group(p->type);
    int64_t sum_q = 0;
    for (uint32_t k = 0; k < 32; k += group) {
        int64_t sum = 0;
        for (uint32_t i = k; i < k + group; i++) {
            sum += (int64_t)w[i].code * q[i];
            sum_q += q[i];
        }
        acc = fused(w[k].scale * (float)sum, s, acc);
    }
    if (p->type == QUANT_q4_1 || p->type == QUANT_q5_1 || p->type == QUANT_q4_k)
        acc = fused(w[0].min, s * (float)sum_q, acc);
    return acc;
}

/* The chain that panel_int.h promises, and the sum that it stands for. w: [n_in] values. */
static float ref_int(const struct problem *p, const struct part *w, const int32_t *q,
                     const float *scale, double *exact, double *size)
{
    float acc = 0;
    *exact = *size = 0;
    for (uint32_t k = 0; k < p->n_in; k += 32) {
        int32_t high[32], low[32];
        float s = scale[k / 32];
        bool fine = p->activations == ACTIVATIONS_INT16, both = fine && !(s < p->least / 32639);
        for (uint32_t i = 0; i < 32; i++) {
            high[i] = fine ? (q[k + i] + 128) >> 8 : q[k + i];
            low[i] = fine ? q[k + i] - 256 * high[i] : 0;
            double code = w[k + i].code, x = (fine ? 256.0 * high[i] : high[i]) * s;
            x += both ? (double)low[i] * s : 0;
            *exact += (code * w[k + i].scale + w[k + i].min) * x;
            *size += (fabs(code * w[k + i].scale) + fabs((double)w[k + i].min)) *
                     (fabs(x) + fabs((double)low[i] * s));
        }
        acc = ref_plane(p, w + k, high, fine ? 256 * s : s, acc);
        if (both)
            acc = ref_plane(p, w + k, low, s, acc);
    }
    return acc;
}

/* Whether x is rounded to BF16: the processor then says how it adds two products, and the references
 * give the sum only. */
static bool rounds(const struct problem *p)
{
    bool coarse =
        p->activations == ACTIVATIONS_INT8 || (p->activations == ACTIVATIONS_INT16 && p->least > 0);
    return coarse && p->type == QUANT_bf16 && cpu_level() == CPU_AVX512BF16;
}

/* To the nearest, of two to the even one; the instruction takes tiny ones for 0. */
static float ref_bf16(float x)
{
    uint32_t bits;
    if (fabsf(x) < 0x1p-126F)
        return 0;
    memcpy(&bits, &x, sizeof(bits));
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float ref_floats(const struct problem *p, const struct part *w, const float *x,
                        double *exact, double *size)
{
    float acc = 0;
    *exact = *size = 0;
    for (uint32_t k = 0; k < p->n_in; k++) {
        float v = part_float(p->type, w[k]), with = rounds(p) ? ref_bf16(x[k]) : x[k];
        acc = fused(v, with, acc);
        *exact += (double)v * with;
        *size += fabs((double)v * with);
    }
    return acc;
}

static bool exact_path(const struct problem *p)
{
    return p->type <= QUANT_bf16 || p->activations == ACTIVATIONS_FLOAT;
}

/* One element of y against both references. */
static void check_one(const struct problem *p, float got, float want, double exact, double size)
{
    if (!(got == want) && !rounds(p)) /* equal zeros may differ in sign */
        fail_msg("%s: %a, wanted %a", describe(p), got, want);
    if (!(fabs(got - exact) <= 4 * sqrt(p->n_in) * 0x1p-23 * size + 1e-37))
        fail_msg("%s: %a, in double %a", describe(p), got, exact);
}

static void check(const struct problem *p, const uint8_t *data, const float *x, const float *bias,
                  const float *y)
{
    size_t row_bytes = data_row_bytes(p->type, p->n_in), n_blocks = p->n_in / 32 + 1;
    int32_t *q = malloc((size_t)p->n_rows * p->n_in * sizeof(*q));
    float *scale = floats_new(p->n_rows * n_blocks);
    struct part *w = malloc(p->n_in * sizeof(*w));
    for (uint32_t r = 0; r < p->n_rows && !exact_path(p); r++)
        ref_quantise(p, x + (size_t)r * p->n_in, q + (size_t)r * p->n_in, scale + r * n_blocks);
    for (uint32_t o = 0; o < p->n_out; o++) {
        for (uint32_t k = 0; k < p->n_in; k++)
            w[k] = ref_value(p->type, data + o * row_bytes, k);
        for (uint32_t r = 0; r < p->n_rows; r++) {
            double exact, size, more = bias ? bias[o] : 0;
            size_t at = (size_t)r * p->n_in;
            float want = exact_path(p) ? ref_floats(p, w, x + at, &exact, &size)
                                       : ref_int(p, w, q + at, scale + r * n_blocks, &exact, &size);
            check_one(p, y[(size_t)r * p->n_out + o], want + (float)more, exact + more,
                      size + fabs(more));
        }
    }
    free(q);
    free(scale);
    free(w);
}

static void pack(struct matrix *w, const struct problem *p, const uint8_t *data)
{
    struct error err;
    if (matrix_open(w, p->type, p->n_out, p->n_in, &err))
        fail_msg("%s: %s", describe(p), err.text);
    matrix_pack(w, p->type, data, 0, p->n_out);
}

/* y [n_rows, n_out], computed by n_workers slices one after the other. */
static void run(const struct problem *p, const struct matrix *w, const float *x, const float *bias,
                uint32_t n_workers, float *y)
{
    size_t n_bytes = matmul_input_bytes(p->n_rows, p->n_in, p->activations);
    uint8_t *buffer = n_bytes ? aligned_alloc(64, n_bytes) : NULL;
    float *least = floats_new(p->n_rows);
    uint8_t *room = malloc(matmul_fine_bytes(p->n_rows, p->n_in));
    struct matmul_input in = {x, p->n_rows, p->n_in, p->activations, buffer, NULL};
    struct matmul_output out = {.y = y, .stride = p->n_out, .bias = bias};
    for (uint32_t r = 0; r < p->n_rows; r++)
        least[r] = matmul_least(p->least);
    for (uint32_t i = 0; i < n_workers; i++)
        matmul_quantise(&in, p->n_rows * i / n_workers, p->n_rows * (i + 1) / n_workers);
    if (p->least > 0)
        matmul_choose(&in, least, room);
    for (uint32_t i = 0; i < n_workers; i++) {
        struct worker worker = {i, n_workers, NULL};
        matmul_slice(w, &in, &out, &worker);
    }
    free(buffer);
    free(room);
    free(least);
}

static void solve(const struct problem *p, bool with_bias)
{
    uint8_t *data = data_weights(p->type, p->weights, p->n_out, p->n_in);
    float *x = rows_new(p->rows, p->n_rows, p->n_in), *bias = floats_new(p->n_out);
    float *y = floats_new((size_t)p->n_rows * p->n_out);
    struct matrix w;
    for (uint32_t o = 0; o < p->n_out; o++)
        bias[o] = random_float();
    pack(&w, p, data);
    run(p, &w, x, with_bias ? bias : NULL, 1, y);
    check(p, data, x, with_bias ? bias : NULL, y);
    matrix_close(&w);
    free(data);
    free(x);
    free(y);
    free(bias);
}

static void each_level(void (*test)(void))
{
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force(level);
        test();
    }
}

/* All data against all data, on small shapes whose tails are odd where the type lets them. */
static void edges(void)
{
    static const uint32_t outs[] = {1, 33, 32, 40}, rows[] = {1, 2, 5, 13};
    uint32_t turn = 0;
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int d = 0; d < DATAS; d++)
            for (int e = 0; e < DATAS; e++)
                for (int a = 0; a < 3; a++, turn++) {
                    uint32_t elems = quant_table[type].block_elems;
                    uint32_t n_in = elems == 1    ? 1 + turn % 70
                                    : elems == 32 ? 32 * (1 + turn % 3)
                                                  : 256;
                    if (d == DATA_LARGE && e == DATA_LARGE)
                        continue; /* beyond floats */
                    if (d != e && (d + e + type) % 3 != a)
                        continue; /* a third of them will do */
                    struct problem p = {type,
                                        d,
                                        e,
                                        a,
                                        rows[turn / 3 % 4],
                                        outs[turn % 4],
                                        n_in,
                                        turn % 3 ? LEAST : 0};
                    solve(&p, turn % 2);
                }
}
static void test_edges(void **state)
{
    (void)state;
    each_level(edges);
}

/* Longer than the chunks of k and of rows that the loops take. */
static void long_shapes(void)
{
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int a = 0; a < 3; a++) {
            struct problem p = {type, DATA_RANDOM, DATA_RANDOM, a, a == 2 ? 3 : 50, 1, 1024 + 512,
                                0};
            solve(&p, true);
            p.least = LEAST;
            if (a == ACTIVATIONS_INT16)
                solve(&p, true);
        }
}
static void test_long(void **state)
{
    (void)state;
    each_level(long_shapes);
}

/* One element as integers: every scale is 1. */
static float whole_sum(const struct problem *p, const uint8_t *w, const float *x)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < p->n_in; k++)
        sum += (int64_t)ref_float(p->type, w, k) * (int64_t)x[k];
    return (float)sum;
}

/* Scales of 1 make every float step exact: levels must agree in every bit, so the integers do. */
static void integers(const struct problem *p)
{
    size_t row_bytes = data_row_bytes(p->type, p->n_in), n = (size_t)p->n_rows * p->n_out;
    uint8_t *data = data_weights(p->type, p->weights, p->n_out, p->n_in);
    float *x = rows_new(p->rows, p->n_rows, p->n_in), *y = floats_new(n), *want = floats_new(n);
    struct matrix w;
    pack(&w, p, data);
    for (size_t i = 0; i < n; i++)
        want[i] = whole_sum(p, data + i % p->n_out * row_bytes, x + i / p->n_out * p->n_in);
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force(level);
        run(p, &w, x, NULL, 1, y);
        for (size_t i = 0; i < n; i++)
            if (y[i] != want[i])
                fail_msg("%s: y[%zu] = %.0f, wanted %.0f", describe(p), i, y[i], want[i]);
    }
    matrix_close(&w);
    free(data);
    free(x);
    free(y);
    free(want);
}
static void test_integers(void **state)
{
    (void)state;
    for (int type = QUANT_q4_0; type < QUANT_COUNT; type++)
        for (uint32_t n_rows = 1; n_rows <= 50; n_rows += 7) {
            struct problem p = {type, DATA_UNIT, DATA_UNIT, ACTIVATIONS_INT8, n_rows, 33, 512, 0};
            integers(&p);
        }
}

/* A row has the same bits alone and among any others, for any workers. */
static void company(void)
{
    static const uint32_t counts[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 64, 100};
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int a = 0; a < 4; a++) { /* 3: 16 bits for some */
            struct problem p = {type, DATA_RANDOM, DATA_RANDOM, a, 100, 65, 256, 0};
            if (a == 3) {
                p.activations = ACTIVATIONS_INT16;
                p.least = LEAST;
            }
            uint8_t *data = data_weights(type, p.weights, p.n_out, p.n_in);
            float *x = rows_new(p.rows, 100, p.n_in);
            float *alone = floats_new(6500), *y = floats_new(6500);
            struct matrix w;
            pack(&w, &p, data);
            /* scalar code takes one row at a time: a few will do */
            const uint32_t n_alone = cpu_level() == CPU_SCALAR ? 30 : 100;
            for (uint32_t r = 0; r < n_alone; r++) {
                p.n_rows = 1;
                run(&p, &w, x + (size_t)r * p.n_in, NULL, 1, alone + (size_t)r * 65);
            }
            for (uint32_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
                uint32_t n = counts[i], from = n < n_alone ? i * 7 % (n_alone - n) : 0;
                if (n > n_alone)
                    continue;
                p.n_rows = n;
                memset(y, 0xff, 100UL * 65 * sizeof(float));
                run(&p, &w, x + (size_t)from * p.n_in, NULL, 1 + i % 5, y);
                if (memcmp(y, alone + (size_t)from * 65, (size_t)n * 65 * sizeof(float)) != 0)
                    fail_msg("%s: bits depend on company", describe(&p));
            }
            matrix_close(&w);
            free(data);
            free(x);
            free(alone);
            free(y);
        }
}
static void test_company(void **state)
{
    (void)state;
    each_level(company);
}

/* Columns outside the worker's panels and beyond n_out stay as they were; y_stride is obeyed. */
static void test_slices(void **state)
{
    (void)state;
    struct problem p = {QUANT_q4_1, DATA_RANDOM, DATA_RANDOM, ACTIVATIONS_INT8, 2, 70, 64, 0};
    uint8_t *data = data_weights(p.type, p.weights, p.n_out, p.n_in);
    float *x = rows_new(p.rows, p.n_rows, p.n_in), y[2][80];
    struct matrix w;
    cpu_force(cpu_detect());
    pack(&w, &p, data);
    uint8_t *buffer = aligned_alloc(64, matmul_input_bytes(2, 64, ACTIVATIONS_INT8));
    struct matmul_input in = {x, 2, 64, ACTIVATIONS_INT8, buffer, NULL};
    struct matmul_output out = {.y = y[0], .stride = 80};
    matmul_quantise(&in, 0, 2);
    for (uint32_t i = 0; i < 3; i++) {
        struct worker worker = {i, 3, NULL};
        for (uint32_t j = 0; j < 160; j++)
            y[j / 80][j % 80] = NAN;
        matmul_slice(&w, &in, &out, &worker);
        for (uint32_t j = 0; j < 160; j++)
            assert_int_equal(isnan(y[j / 80][j % 80]), j % 80 >= 70 || j % 80 / 32 != i);
    }
    matrix_close(&w);
    free(buffer);
    free(data);
    free(x);
}

/* Rows quantised part by part, each from a place of its own, are those quantised whole. */
static void parts(void)
{
    enum { ROWS = 23, IN = 170 };
    static float x[ROWS * IN];
    for (size_t i = 0; i < ROWS * IN; i++)
        x[i] = random_float();
    for (int a = ACTIVATIONS_INT8; a <= ACTIVATIONS_INT16; a++) {
        size_t n = matmul_input_bytes(ROWS, IN, (enum activations)a);
        uint8_t *whole = aligned_alloc(64, n), *in_parts = aligned_alloc(64, n);
        struct matmul_input in = {x, ROWS, IN, (enum activations)a, whole, NULL};
        memset(whole, 0, n);
        memset(in_parts, 0, n);
        matmul_quantise(&in, 0, ROWS);
        in.x = NULL;
        in.buffer = in_parts;
        for (uint32_t row = 0; row < ROWS; row += 9)
            for (uint32_t k = 0; k < IN; k += 64) {
                struct planes_part part = {.x = x + row * IN + k,
                                           .stride = IN,
                                           .row = row,
                                           .n_rows = ROWS - row < 9 ? ROWS - row : 9,
                                           .k = k,
                                           .n = IN - k < 64 ? IN - k : 64};
                matmul_quantise_part(&in, &part);
            }
        assert_memory_equal(in_parts, whole, n);
        free(whole);
        free(in_parts);
    }
}
static void test_parts(void **state)
{
    (void)state;
    each_level(parts);
}

/* Every level quantises to the same bytes, whatever the rows of a tile and their values. */
static void same_planes(enum data d, uint32_t n_rows, enum activations a)
{
    enum { IN = 170 };
    float *x = rows_new(d, n_rows, IN);
    size_t n = matmul_input_bytes(n_rows, IN, a);
    uint8_t *want = aligned_alloc(64, n), *got = aligned_alloc(64, n);
    struct matmul_input in = {x, n_rows, IN, a, want, NULL};
    if (d == DATA_RANDOM && n_rows > 2) { /* a block of each of these among ordinary rows */
        x[IN + 40] = NAN;
        x[2 * IN + 169] = -INFINITY;
    }
    memset(want, 0, n);
    cpu_force(CPU_SCALAR);
    matmul_quantise(&in, 0, n_rows);
    in.buffer = got;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        const struct planes_part whole = {.x = x, .stride = IN, .n_rows = n_rows, .n = IN};
        memset(got, 0, n);
        cpu_force(level);
        matmul_quantise_part(&in, &whole);
        if (memcmp(got, want, n) != 0)
            fail_msg("%s: %u rows of data %d, activations %d: not the planes of scalar code",
                     cpu_level_name(level), n_rows, (int)d, (int)a);
    }
    free(x);
    free(want);
    free(got);
}
static void test_planes(void **state)
{
    (void)state;
    for (int d = 0; d < DATAS; d++)
        for (uint32_t n_rows = 1; n_rows <= 17; n_rows++)
            for (int a = ACTIVATIONS_INT8; a <= ACTIVATIONS_INT16; a++)
                same_planes((enum data)d, n_rows, (enum activations)a);
}

/* Two matrices whose panels take turns in one block: each as if alone. */
static void test_placed(void **state)
{
    enum { ROWS = 3, OUT = 70, IN = 256 };
    static float x[ROWS * IN], alone[ROWS * OUT], y[ROWS * OUT];
    struct problem p = {QUANT_q4_1, DATA_RANDOM, DATA_RANDOM, ACTIVATIONS_INT8, ROWS, OUT, IN, 0};
    uint8_t *buffer = aligned_alloc(64, matmul_input_bytes(ROWS, IN, p.activations)), *data[2];
    struct matmul_input in = {x, ROWS, IN, p.activations, buffer, NULL};
    struct matrix w, turns[2];
    (void)state;
    cpu_force(cpu_detect());
    for (size_t i = 0; i < ROWS * IN; i++)
        x[i] = random_float();
    matmul_quantise(&in, 0, ROWS);
    for (int i = 0; i < 2; i++) {
        data[i] = data_weights(p.type, p.weights, OUT, IN);
        assert_int_equal(matrix_shape(&turns[i], p.type, OUT, IN, NULL), 0);
        assert_null(turns[i].panels);
    }
    size_t panel = turns[0].panel_bytes;
    uint8_t *block = aligned_alloc(64, 2 * turns[0].n_bytes);
    memset(block, 0, 2 * turns[0].n_bytes);
    for (size_t i = 0; i < 2; i++) {
        matrix_place(&turns[i], block + i * panel, 2 * panel);
        matrix_pack(&turns[i], p.type, data[i], 0, OUT);
    }
    for (int i = 0; i < 2; i++) {
        struct matmul_output out = {.y = alone, .stride = OUT};
        pack(&w, &p, data[i]);
        matmul_run_panels(&w, &in, &out, 0, 3, 0);
        out.y = y;
        matmul_run_panels(&turns[i], &in, &out, 0, 3, 0);
        assert_memory_equal(y, alone, sizeof(y));
        matrix_close(&w);
        free(data[i]);
    }
    free(block);
    free(buffer);
}

/* Rows scaled by powers of two, which is exact, to the columns of panels 1 and 2. */
static void check_scaled(const struct matrix *w, const struct matmul_input *in)
{
    static float scale[64], plain[64 * 96], y[64 * 64];
    for (uint32_t r = 0; r < in->n_rows; r++)
        scale[r] = ldexpf(1, (int)(r % 5) - 2);
    struct matmul_output out = {.y = plain, .stride = 96};
    matmul_run_panels(w, in, &out, 0, 3, 0);
    out = (struct matmul_output){.y = y, .stride = 64, .first = 1, .scale = scale};
    matmul_run_panels(w, in, &out, 2, 3, 0);
    matmul_run_panels(w, in, &out, 1, 2, 0);
    for (uint32_t i = 0; i < 64 * in->n_rows; i++)
        assert_true(y[i] == scale[i / 64] * plain[i / 64 * 96 + 32 + i % 64]);
}

/* What the stores promise, from the products that MATMUL_SET leaves. */
static void stores(void)
{
    enum { ROWS = 50, OUT = 96 };
    static float x[ROWS * 256], bias[OUT], set[ROWS * OUT], add[ROWS * OUT];
    for (int type = 0; type < QUANT_COUNT; type++) {
        struct problem p = {type, DATA_RANDOM, DATA_RANDOM, ACTIVATIONS_INT16, ROWS, OUT, 256, 0};
        uint8_t *data = data_weights(type, p.weights, OUT, 256);
        uint8_t *buffer = aligned_alloc(64, matmul_input_bytes(ROWS, 256, p.activations));
        struct matmul_input in = {x, ROWS, 256, p.activations, buffer, NULL};
        struct matrix w;
        for (size_t i = 0; i < sizeof(x) / sizeof(*x); i++)
            x[i] = random_float();
        for (uint32_t o = 0; o < OUT; o++)
            bias[o] = random_float();
        pack(&w, &p, data);
        matmul_quantise(&in, 0, ROWS);
        for (size_t i = 0; i < ROWS * OUT; i++)
            add[i] = (float)i;
        struct matmul_output out = {.y = set, .stride = OUT, .bias = bias};
        matmul_run_panels(&w, &in, &out, 2, 3, 0);
        matmul_run_panels(&w, &in, &out, 0, 2, 0);
        out = (struct matmul_output){.y = add, .stride = OUT, .bias = bias, .store = MATMUL_ADD};
        matmul_run_panels(&w, &in, &out, 0, 3, 0);
        for (size_t i = 0; i < ROWS * OUT; i++)
            assert_true(add[i] == (float)i + set[i]);
        check_scaled(&w, &in);
        matrix_close(&w);
        free(buffer);
        free(data);
    }
}
static void test_stores(void **state)
{
    (void)state;
    each_level(stores);
}

/* NaN and infinity in a row are seen in its outputs, and in no other row's. */
static void not_finite(void)
{
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int a = 0; a < 3; a++) {
            struct problem p = {type, DATA_RANDOM, DATA_RANDOM, a, 3, 32, 256, 0};
            uint8_t *data = data_weights(type, p.weights, p.n_out, p.n_in);
            float *x = rows_new(p.rows, 3, p.n_in), *y = floats_new(96);
            struct matrix w;
            pack(&w, &p, data);
            x[256 + 17] = NAN;
            x[512 + 40] = INFINITY;
            run(&p, &w, x, NULL, 1, y);
            for (int o = 0; o < 32; o++) {
                assert_true(isfinite(y[o]));
                assert_true(isnan(y[32 + o]));
                assert_false(isfinite(y[64 + o]));
            }
            matrix_close(&w);
            free(data);
            free(x);
            free(y);
        }
}
static void test_not_finite(void **state)
{
    (void)state;
    each_level(not_finite);
}

/* An infinite minimum: what a row makes of it does not depend on whether others read low planes. */
static void infinite_minimum(void)
{
    enum { ROWS = 8, OUT = 40, IN = 256 };
    static const enum quant_id types[] = {QUANT_q4_1, QUANT_q5_1, QUANT_q4_k};
    static float alone[ROWS * OUT], y[ROWS * OUT];
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        struct problem p = {types[i], DATA_RANDOM, DATA_RANDOM, ACTIVATIONS_INT16,
                            1,        OUT,         IN,          LEAST};
        uint8_t *data = data_weights(p.type, p.weights, OUT, IN);
        float *x = rows_new(p.rows, ROWS, IN);
        struct matrix w;
        for (size_t o = 0; o < OUT; o += 3)
            put16(data + o * data_row_bytes(p.type, IN) + 2, o % 2 ? 0x7c00 : 0xfc00);
        pack(&w, &p, data);
        for (size_t r = 0; r < ROWS; r++)
            run(&p, &w, x + r * IN, NULL, 1, alone + r * OUT);
        for (p.n_rows = 2; p.n_rows <= ROWS; p.n_rows++) {
            run(&p, &w, x, NULL, 1, y);
            for (size_t k = 0; k < (size_t)p.n_rows * OUT; k++)
                if (!(y[k] == alone[k]) && !(isnan(y[k]) && isnan(alone[k])))
                    fail_msg("%s: y[%zu] = %a, alone %a", describe(&p), k, y[k], alone[k]);
        }
        matrix_close(&w);
        free(data);
        free(x);
    }
}
static void test_infinite_minimum(void **state)
{
    (void)state;
    each_level(infinite_minimum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_stores),
        cmocka_unit_test(test_placed),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_infinite_minimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
