/* The model of a step's time: on a machine that obeys it, steps keep to step_ms wherever in the
 * context a prompt is, and whatever else runs. */
#include "core/sched/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct machine {
    double base, row, score, noise; /* ns; part of the whole */
    uint32_t rng;
};

static double run(struct machine *m, uint32_t rows, double scores)
{
    m->rng = m->rng * 1664525u + 1013904223u;
    double noise = 1 + m->noise * ((double)(m->rng >> 8) / (1 << 23) - 1);
    return (m->base + m->row * rows + m->score * scores) * noise;
}

static double scores_of(uint32_t pos, uint32_t n)
{
    return (double)n * pos + (double)n * (n + 1) / 2;
}

/* Computes a prompt beside n decode rows at position at; returns the longest step after the first. */
static double prefill(struct pace *p, struct machine *m, uint32_t n_prompt, uint32_t n, uint32_t at,
                      uint32_t *n_steps)
{
    double longest = 0;
    *n_steps = 0;
    for (uint32_t pos = 0; pos < n_prompt; ++*n_steps) {
        double scores = (double)n * at, left = pace_left(p, n, scores);
        uint32_t rows = pace_rows(p, pos, n_prompt - pos, &left);
        assert_true(left >= 0 || !rows);
        if (rows < 16)
            rows = n_prompt - pos < 16 ? n_prompt - pos : 16;
        double all = scores + scores_of(pos, rows), ns = run(m, n + rows, all);
        pace_learn(p, n + rows, all, ns);
        longest = *n_steps && ns > longest ? ns : longest;
        pos += rows;
    }
    return longest;
}

static void test_keeps_step_ms(void **state)
{
    (void)state;
    static const struct machine machines[] = {
        {.base = 7e6, .row = 2e5, .score = 30, .noise = 0},
        {.base = 7e6, .row = 2e5, .score = 30, .noise = 0.2},
        {.base = 1e5, .row = 3e3, .score = 1, .noise = 0.1},
        {.base = 4e7, .row = 2e6, .score = 300, .noise = 0.1},
    };
    for (unsigned i = 0; i < sizeof(machines) / sizeof(*machines); i++) {
        struct machine m = machines[i];
        struct pace p;
        uint32_t n_steps;
        pace_open(&p, 100);
        prefill(&p, &m, 8000, 0, 0, &n_steps); /* learns */
        for (int k = 0; k < 300; k++)          /* a long time of decoding alone */
            pace_learn(&p, 1, 100, run(&m, 1, 100));
        double longest = prefill(&p, &m, 8000, 0, 0, &n_steps);
        assert_true(longest < 150e6);
        double whole =
            run(&(struct machine){m.base, m.row, m.score, 0, 0}, 8000, scores_of(0, 8000));
        if (m.row > 1e5) /* and uses its time */
            assert_true(n_steps < 2.5 * whole / 100e6 + 3);
        longest = prefill(&p, &m, 4000, 30, 500, &n_steps);
        double least = m.base + m.row * 46 + m.score * (30 * 500 + 16 * 4000); /* of 16 rows */
        assert_true(longest < 1.5 * (least > 100e6 ? least : 100e6));
    }
}

/* A hiccup of the machine does not make prompts crawl. */
static void test_outlier(void **state)
{
    (void)state;
    struct machine m = {.base = 7e6, .row = 2e5, .score = 30};
    struct pace p;
    uint32_t n_steps, n_before;
    pace_open(&p, 100);
    prefill(&p, &m, 8000, 0, 0, &n_steps);
    prefill(&p, &m, 8000, 0, 0, &n_before);
    pace_learn(&p, 100, 5000, 5e9);
    prefill(&p, &m, 8000, 0, 0, &n_steps);
    assert_true(n_steps <= n_before + n_before / 4 + 1);
}

static void test_no_time_no_rows(void **state)
{
    (void)state;
    struct pace p;
    pace_open(&p, 1);
    pace_learn(&p, 10, 100, 50e6);
    double left = pace_left(&p, 10, 100);
    assert_true(left < 0);
    assert_int_equal(pace_rows(&p, 0, 1000, &left), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_step_ms),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_no_time_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
