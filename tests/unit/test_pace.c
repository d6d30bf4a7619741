/* The model of a step's time: on a machine that obeys it, steps keep to step_ms wherever in the
 * context a prompt is, and whatever else runs. */
#include "core/sched/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct machine {
    double base, row, decode, prompt, noise; /* ns; noise: part of the whole */
    uint32_t rng;
};

/* Weights are read once and rows computed meanwhile; scores come on top. */
static double exactly(const struct machine *m, const struct load *l)
{
    double rows = m->row * load_rows(l);
    return (rows > m->base ? rows : m->base) + m->decode * l->scores[LOAD_DECODE] +
           m->prompt * l->scores[LOAD_PROMPT];
}

static double run(struct machine *m, const struct load *l)
{
    m->rng = m->rng * 1664525u + 1013904223u;
    return exactly(m, l) * (1 + m->noise * ((double)(m->rng >> 8) / (1 << 23) - 1));
}

static struct load decoding(uint32_t n, uint32_t at)
{
    struct load l = {0};
    for (uint32_t i = 0; i < n; i++)
        load_add(&l, LOAD_DECODE, at, 1);
    return l;
}

/* Computes a prompt beside n decode rows at position at, each step under ns (and at least 8 rows);
 * returns the longest step after the first few. */
static double prefill(struct pace *p, struct machine *m, uint32_t n_prompt, uint32_t n, uint32_t at,
                      double ns, uint32_t *n_steps)
{
    double longest = 0;
    *n_steps = 0;
    for (uint32_t pos = 0; pos < n_prompt; ++*n_steps) {
        struct load l = decoding(n, at);
        uint32_t left = n_prompt - pos, rows = pace_rows(p, &l, pos, left, ns);
        assert_true(rows <= left);
        if (rows < 8)
            rows = left < 8 ? left : 8;
        load_add(&l, LOAD_PROMPT, pos, rows);
        double took = run(m, &l);
        pace_learn(p, &l, took);
        longest = *n_steps > 5 && took > longest ? took : longest;
        pos += rows;
    }
    return longest;
}

static const struct machine machines[] = {
    {.base = 7e6, .row = 2e5, .decode = 30, .prompt = 30, .noise = 0},
    {.base = 7e6, .row = 2e5, .decode = 400, .prompt = 30, .noise = 0.2},
    {.base = 1e5, .row = 3e3, .decode = 1, .prompt = 1, .noise = 0.1},
    {.base = 4e7, .row = 2e6, .decode = 900, .prompt = 300, .noise = 0.1},
};
enum { N_MACHINES = sizeof(machines) / sizeof(*machines) };

static void test_keeps_step_ms(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_MACHINES; i++) {
        struct machine m = machines[i];
        struct pace p;
        uint32_t n_steps;
        pace_open(&p);
        prefill(&p, &m, 8000, 0, 0, 100e6, &n_steps); /* learns */
        for (uint32_t k = 0; k < 300; k++) {          /* a long time of decoding alone */
            struct load l = decoding(1, 100 + k);
            pace_learn(&p, &l, run(&m, &l));
        }
        double longest = prefill(&p, &m, 8000, 0, 0, 100e6, &n_steps);
        assert_true(longest < 150e6);
        struct load whole = {0};
        load_add(&whole, LOAD_PROMPT, 0, 8000);
        if (m.row > 1e5) /* and uses its time */
            assert_true(n_steps < 2.5 * exactly(&m, &whole) / 100e6 + 3);
    }
}

/* Beside streams that have decoded for a while: a step takes at most twice their time, and the
 * prompt has most of the rest. */
static void test_streams_and_a_prompt(void **state)
{
    (void)state;
    static const uint32_t n_streams[] = {1, 3, 8, 16, 30};
    for (unsigned i = 0; i < N_MACHINES; i++)
        for (int s = 0; s < 5; s++)
            for (uint32_t at = 100; at <= 3100; at += 3000) {
                struct machine m = machines[i];
                struct pace p;
                uint32_t n_steps, n = n_streams[s];
                struct load l = decoding(n, at);
                pace_open(&p);
                prefill(&p, &m, 4000, 0, 0, 100e6, &n_steps);
                for (int k = 0; k < 100; k++)
                    pace_learn(&p, &l, run(&m, &l));
                double alone = exactly(&m, &l), foretold = pace_ns(&p, &l);
                double worst = alone * (1 + m.noise);
                assert_true(foretold > alone * (0.95 - m.noise / 2));
                assert_true(foretold < alone * (1.05 + m.noise / 2));
                double longest = prefill(&p, &m, 4000, n, at, 1.8 * foretold, &n_steps);
                struct load least = l; /* rows that join in any case */
                load_add(&least, LOAD_PROMPT, 4000 - 8, 8);
                double bound = exactly(&m, &least) * (1 + m.noise);
                assert_true(longest < 2.1 * worst || longest <= bound);
                assert_true(n_steps <= 4000 / 8);
                /* the streams' own time is not forgotten over it */
                assert_true(pace_ns(&p, &l) > 0.7 * alone && pace_ns(&p, &l) < 1.4 * alone);
            }
}

/* What was measured stands; what was not is foretold in proportion, never as free. */
static void test_few_measured(void **state)
{
    (void)state;
    struct pace p;
    struct load l = {.rows = {8}}, more = {.rows = {32}}, less = {.rows = {2}};
    pace_open(&p);
    assert_true(pace_ns(&p, &l) == 0);
    pace_learn(&p, &l, 5e6);
    assert_float_equal(pace_ns(&p, &l), 5e6, 1);
    assert_float_equal(pace_ns(&p, &more), 20e6, 1);
    assert_float_equal(pace_ns(&p, &less), 5e6, 1);
    pace_learn(&p, &more, 10e6);
    assert_float_equal(pace_ns(&p, &more), 10e6, 0.2e6);
    l.rows[0] = 16;
    assert_true(pace_ns(&p, &l) > 5e6 && pace_ns(&p, &l) < 10e6);
    l.rows[0] = 100000;
    assert_true(pace_ns(&p, &l) > 10e9);
}

/* A hiccup of the machine does not make prompts crawl. */
static void test_outlier(void **state)
{
    (void)state;
    struct machine m = {.base = 7e6, .row = 2e5, .decode = 30, .prompt = 30};
    struct pace p;
    struct load l = {0};
    uint32_t n_steps, n_before;
    pace_open(&p);
    prefill(&p, &m, 8000, 0, 0, 100e6, &n_steps);
    prefill(&p, &m, 8000, 0, 0, 100e6, &n_before);
    load_add(&l, LOAD_PROMPT, 0, 100);
    pace_learn(&p, &l, 5e9);
    prefill(&p, &m, 8000, 0, 0, 100e6, &n_steps);
    assert_true(n_steps <= n_before + n_before / 4 + 1);
}

static void test_no_time_no_rows(void **state)
{
    (void)state;
    struct pace p;
    struct load l = decoding(10, 10);
    pace_open(&p);
    pace_learn(&p, &l, 50e6);
    assert_int_equal(pace_rows(&p, &l, 0, 1000, 1e6), 0);
}

/* Whatever is measured, the model stays one: finite, rising with the rows. */
static void test_any_time(void **state)
{
    (void)state;
    struct pace p;
    uint32_t rng = 3;
    pace_open(&p);
    for (int i = 0; i < 20000; i++) {
        struct load l = {0}, one = {.rows = {1}}, many = {.rows = {5000}};
        rng = rng * 1664525u + 1013904223u;
        load_add(&l, LOAD_DECODE, rng >> 20, rng >> 28);
        load_add(&l, LOAD_PROMPT, rng % 5000, rng >> 19 & 1023);
        pace_learn(&p, &l, rng % 7 ? (rng >> 8) * 100.0 : (rng & 1) * 1e12);
        assert_true(pace_ns(&p, &one) >= 0 && pace_ns(&p, &one) <= pace_ns(&p, &many));
        assert_true(pace_ns(&p, &many) < 1e30);
        for (int k = 1; k < PACE_KNOTS; k++)
            assert_true(p.part[k] >= p.part[k - 1]);
    }
}

/* Hours of short questions, alone and beside others: steps without prompt rows are foretold all the
 * time, a long prompt among them has whole steps, and doubt remains doubt. */
static void test_short_questions(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_MACHINES; i++) {
        struct machine m = machines[i];
        struct pace p;
        uint32_t rng = 5, n_steps;
        pace_open(&p);
        prefill(&p, &m, 100, 0, 0, 100e6, &n_steps);
        for (int step = 0; step < 30000; step++) {
            rng = rng * 1664525u + 1013904223u;
            struct load l = decoding(rng >> 28, 10 + step % 120); /* 0 to 15 streams */
            if (!l.rows[LOAD_DECODE] || (rng >> 16 & 15) == 0)
                load_add(&l, LOAD_PROMPT, rng >> 8 & 7, 1 + (rng >> 12 & 7));
            pace_learn(&p, &l, run(&m, &l));
            for (int k = 0; k < PACE_PARTS; k++)
                assert_true(p.doubt[k][k] >= 0);
            l = decoding(1 + step % 15, 100);
            if (step > 1000) {
                assert_true(pace_ns(&p, &l) < exactly(&m, &l) * (1.15 + m.noise));
                assert_true(pace_ns(&p, &l) > exactly(&m, &l) * (0.85 - m.noise));
            }
        }
        struct load whole = {0};
        load_add(&whole, LOAD_PROMPT, 0, 4000);
        prefill(&p, &m, 4000, 0, 0, 100e6, &n_steps);
        assert_true(n_steps < 2.5 * exactly(&m, &whole) / 100e6 + 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_step_ms),   cmocka_unit_test(test_streams_and_a_prompt),
        cmocka_unit_test(test_few_measured),    cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_no_time_no_rows), cmocka_unit_test(test_any_time),
        cmocka_unit_test(test_short_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
