/* [kernel] attention.c: pages of keys and values at every CPU level against attention in double,
 * and bit for bit against themselves: one query or many, garbage behind the last key or none. */
#include "core/kernel/attention.h"
#include "core/kernel/cpu.h"
#include "core/kernel/ops.h"
#include "core/kernel/quant.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_DIM = 129, MAX_PAGE = 256, MAX_Q = 23, N_PAGES = 3 };

/* N_PAGES pages of one head, as floats and as what the kernels read. */
struct pages {
    enum kv_type type;
    uint32_t dim, page_tokens;
    float *k[N_PAGES], *v[N_PAGES];        /* K by kv_column, V [page_tokens][dim], as rounded */
    void *raw_k[N_PAGES], *raw_v[N_PAGES]; /* scales behind the codes */
};

static uint64_t seed = 7;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(seed >> 40) / (float)(1 << 23) - 1;
}

static void *checked(void *p)
{
    assert_non_null(p);
    return p;
}

static float *scales_of(const struct pages *p, void *raw)
{
    return p->type == KV_Q8 ? (float *)(void *)((int8_t *)raw + (size_t)p->dim * p->page_tokens)
                            : NULL;
}

static size_t place_of_k(const struct pages *p, uint32_t t, uint32_t d)
{
    return kv_column(t, p->dim) + (size_t)d * KV_COLUMNS;
}

/* What value i of K or V, of position t, is. */
static float value_of(const struct pages *p, void *raw, size_t i, uint32_t t)
{
    if (p->type == KV_F32)
        return ((float *)raw)[i];
    if (p->type == KV_Q8)
        return (float)((int8_t *)raw)[i] * scales_of(p, raw)[t];
    return quant_half_to_float(((uint16_t *)raw)[i]);
}

/* Positions of one page, stored one by one; each with values of another size. */
static void page_fill(struct pages *p, int page)
{
    float k[MAX_DIM], v[MAX_DIM];
    for (uint32_t t = 0; t < p->page_tokens; t++) {
        for (uint32_t d = 0; d < p->dim; d++) {
            k[d] = 2 * uniform();
            v[d] = uniform() * (float)(1 + t % 3);
        }
        attention_store(p->type, k, v, t, p->raw_k[page], p->raw_v[page], p->dim, p->page_tokens);
        for (uint32_t d = 0; d < p->dim; d++) {
            size_t at_k = place_of_k(p, t, d), at_v = (size_t)t * p->dim + d;
            p->k[page][at_k] = value_of(p, p->raw_k[page], at_k, t);
            p->v[page][at_v] = value_of(p, p->raw_v[page], at_v, t);
            /* halves: 11 bits; codes: half a step of 127 to the greatest, which is under 2 and 3 */
            double off = p->type == KV_F32 ? 0 : p->type == KV_F16 ? 0.001 : 1.5 / 127 + 1e-6;
            assert_true(fabs(p->k[page][at_k] - k[d]) <= off);
            assert_true(fabs(p->v[page][at_v] - v[d]) <= off);
        }
    }
}

static void pages_open(struct pages *p, uint32_t dim, uint32_t page_tokens, enum kv_type type)
{
    size_t n = (size_t)dim * page_tokens;
    *p = (struct pages){.type = type, .dim = dim, .page_tokens = page_tokens};
    for (int i = 0; i < N_PAGES; i++) {
        p->raw_k[i] = checked(malloc(n * sizeof(float) + page_tokens * sizeof(float)));
        p->raw_v[i] = checked(malloc(n * sizeof(float) + page_tokens * sizeof(float)));
        p->k[i] = checked(malloc(n * sizeof(float)));
        p->v[i] = checked(malloc(n * sizeof(float)));
        page_fill(p, i);
    }
}

static void pages_close(struct pages *p)
{
    for (int i = 0; i < N_PAGES; i++) {
        free(p->raw_k[i]);
        free(p->raw_v[i]);
        free(p->k[i]);
        free(p->v[i]);
    }
}

static void spoil(const struct pages *p, void *raw, size_t i, uint32_t t)
{
    if (p->type == KV_F16)
        ((uint16_t *)raw)[i] = 0x7E01;
    else if (p->type == KV_F32)
        ((float *)raw)[i] = -NAN;
    else
        scales_of(p, raw)[t] = NAN;
}

/* NaN in everything that positions from n_keys on hold. */
static void pages_spoil(struct pages *p, uint32_t n_keys)
{
    for (uint32_t pos = n_keys; pos < N_PAGES * p->page_tokens; pos++) {
        uint32_t page = pos / p->page_tokens, t = pos % p->page_tokens;
        for (uint32_t d = 0; d < p->dim; d++) {
            spoil(p, p->raw_k[page], place_of_k(p, t, d), t);
            spoil(p, p->raw_v[page], (size_t)t * p->dim + d, t);
        }
    }
}

/* out [n_q, dim]: query i sees n_keys[i] positions of all pages together. */
static void attend(const struct pages *p, const float *q, const uint32_t *n_keys, uint32_t n_q,
                   float *out)
{
    static float s[ATTENTION_BLOCK * MAX_PAGE], m[MAX_Q], l[MAX_Q], decay[MAX_Q];
    static float o[MAX_Q * MAX_DIM], floats[2 * MAX_DIM * MAX_PAGE];
    uint32_t here[MAX_Q];
    struct attention a = {n_q, p->dim, p->page_tokens, q, here, s, m, l, decay, o, floats};
    attention_begin(&a);
    for (uint32_t page = 0; page < N_PAGES; page++) {
        uint32_t before = page * p->page_tokens;
        for (uint32_t i = 0; i < n_q; i++) {
            uint32_t left = n_keys[i] > before ? n_keys[i] - before : 0;
            here[i] = left < p->page_tokens ? left : p->page_tokens;
        }
        uint32_t next = page + 1 < N_PAGES ? page + 1 : page;
        const struct attention_page at = {.type = p->type,
                                          .k = p->raw_k[page],
                                          .v = p->raw_v[page],
                                          .k_scales = scales_of(p, p->raw_k[page]),
                                          .v_scales = scales_of(p, p->raw_v[page]),
                                          .next_k = p->raw_k[next],
                                          .next_v = p->raw_v[next]};
        attention_page(&a, &at);
        for (uint32_t t = here[n_q - 1]; t < p->page_tokens && n_q == 1; t++)
            assert_true(s[t] == 0); /* exactly */
    }
    attention_end(n_q, l, o, out, p->dim);
}

/* The definition, in double. */
static void attend_double(const struct pages *p, const float *q, uint32_t n_keys, double *out)
{
    double s[N_PAGES * MAX_PAGE], top = -INFINITY, sum = 0;
    for (uint32_t pos = 0; pos < n_keys; pos++) {
        uint32_t page = pos / p->page_tokens, t = pos % p->page_tokens;
        s[pos] = 0;
        for (uint32_t d = 0; d < p->dim; d++)
            s[pos] += (double)q[d] * p->k[page][place_of_k(p, t, d)];
        top = fmax(top, s[pos]);
    }
    memset(out, 0, p->dim * sizeof(*out));
    for (uint32_t pos = 0; pos < n_keys; pos++) {
        double w = exp(s[pos] - top);
        const float *v = p->v[pos / p->page_tokens] + (size_t)(pos % p->page_tokens) * p->dim;
        sum += w;
        for (uint32_t d = 0; d < p->dim; d++)
            out[d] += w * v[d];
    }
    for (uint32_t d = 0; d < p->dim; d++)
        out[d] /= sum;
}

static void check_pages(uint32_t dim, uint32_t page_tokens, enum kv_type type)
{
    float q[MAX_Q * MAX_DIM], together[MAX_Q * MAX_DIM], alone[MAX_DIM];
    double want[MAX_DIM];
    uint32_t n_keys[MAX_Q];
    struct pages p;
    pages_open(&p, dim, page_tokens, type);
    for (uint32_t i = 0; i < MAX_Q * dim; i++)
        q[i] = uniform() / sqrtf((float)dim);
    for (uint32_t i = 0; i < MAX_Q; i++) /* rising by one over the end of a page, as in prefill */
        n_keys[i] = 2 * page_tokens - MAX_Q / 2 + i;
    n_keys[0] = 1;
    attend(&p, q, n_keys, MAX_Q, together);
    for (uint32_t i = 0; i < MAX_Q; i++) {
        attend_double(&p, q + (size_t)i * dim, n_keys[i], want);
        for (uint32_t d = 0; d < dim; d++)
            if (!(fabs(together[i * dim + d] - want[d]) < 5e-6))
                fail_msg("%s dim %u page %u type %d query %u: got %.9g, want %.9g",
                         cpu_level_name(cpu_level()), dim, page_tokens, (int)type, i,
                         together[i * dim + d], want[d]);
    }
    for (uint32_t i = MAX_Q; i-- > 0;) { /* the same bits alone, with NaN behind its last key */
        pages_spoil(&p, n_keys[i]);
        attend(&p, q + (size_t)i * dim, n_keys + i, 1, alone);
        assert_memory_equal(alone, together + (size_t)i * dim, dim * sizeof(*alone));
    }
    pages_close(&p);
}

static void test_pages(void **state)
{
    const uint32_t dims[] = {1, 2, 8, 16, 20, 48, 64, 80, 128, 129}, tokens[] = {16, 48, 64, 256};
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        for (uint32_t i = 0; i < sizeof(dims) / sizeof(*dims); i++)
            for (uint32_t j = 0; j < sizeof(tokens) / sizeof(*tokens); j++)
                for (int type = 0; type < KV_TYPES; type++)
                    check_pages(dims[i], tokens[j], (enum kv_type)type);
    }
}

/* Rows that are zero, tiny, or have one great value, as codes: as near as 127 steps allow. */
static void test_codes(void **state)
{
    enum { N = 37 };
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        for (int kind = 0; kind < 4; kind++) {
            struct {
                int8_t codes[16 * N];
                float scales[16];
            } k, v;
            const float size[] = {0, 1e-20f, 1e4f, 1};
            float x[N];
            for (int i = 0; i < N; i++)
                x[i] = size[kind] * (kind == 3 && i == 7 ? -1000 : uniform());
            memset(&v, 0x55, sizeof(v));
            attention_store(KV_Q8, x, x, 5, &k.codes, &v.codes, N, 16);
            double most = 0;
            for (int i = 0; i < N; i++)
                most = fmax(most, fabs(x[i]));
            for (int i = 0; i < N; i++) {
                double got = (double)v.codes[5 * N + i] * v.scales[5];
                assert_true(fabs(got - x[i]) <= most / 253);
                assert_int_equal(v.codes[5 * N + i], k.codes[i * 16 + 5]);
            }
            assert_true(v.scales[5] == k.scales[5]);
            assert_memory_equal(&v.codes[6 * N], "\x55\x55\x55\x55", 4); /* the next row's */
        }
    }
}

/* Parts joined in order give attention over all keys, whatever their scores' sizes; the first joins
 * to nothing without a trace. */
static void test_join(void **state)
{
    (void)state;
    for (int level = 0; level < CPU_LEVELS; level = cpu_next(level)) {
        cpu_force((enum cpu_level)level);
        float m = -FLT_MAX, l = 0, o[3] = {0}, out[3];
        const float part_m[] = {-5, 3, 2.5f}, part_l[] = {1.5f, 1, 2};
        const float part_o[][3] = {{1, 2, 3}, {0.5f, 1, 0}, {-1, 0, 1}};
        double sum = 0, want[3] = {0};
        attention_join(1, &m, &l, o, part_m, part_l, part_o[0], 3);
        assert_true(m == -5 && l == 1.5f);
        assert_memory_equal(o, part_o[0], sizeof(o));
        attention_join(1, &m, &l, o, part_m + 1, part_l + 1, part_o[1], 3);
        attention_join(1, &m, &l, o, part_m + 2, part_l + 2, part_o[2], 3);
        attention_end(1, &l, o, out, 3);
        for (int i = 0; i < 3; i++) {
            sum += part_l[i] * exp2(part_m[i]);
            for (int d = 0; d < 3; d++)
                want[d] += part_o[i][d] * exp2(part_m[i]);
        }
        for (int d = 0; d < 3; d++)
            assert_true(fabs(out[d] - want[d] / sum) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
