/* What may come next: guesses against a search of the whole timeline, what is learnt from them, and how
 * many rows they are worth. */
#include "core/sched/draft.h"
#include "core/sched/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Behind the last place where the last k tokens occurred before; 0 = nowhere. */
static uint32_t search(const uint32_t *t, uint32_t n, uint32_t k)
{
    for (uint32_t end = n - 1; n > k && end >= k; end--)
        if (!memcmp(t + end - k, t + n - k, k * sizeof(*t)))
            return end;
    return 0;
}

static void test_guesses_as_a_search_does(void **state)
{
    (void)state;
    enum { N = 2000 };
    static uint32_t t[N + DRAFT_MAX];
    uint32_t rng = 1, n_found = 0, n_missed = 0;
    struct draft d;
    draft_open(&d, N);
    for (uint32_t n = 0; n < N; n++) {
        rng = rng * 1664525u + 1013904223u;
        t[n] = rng >> 24 < 60 ? rng >> 8 & 15 : n >= 17 ? t[n - 17] : n;
        if (n % 3 == 0)
            continue; /* not asked after each token */
        draft_guess(&d, t, n + 1);
        uint32_t end = search(t, n + 1, 3), k = end ? 3 : 2;
        end = end ? end : search(t, n + 1, 2);
        if (!d.n) { /* its place was taken by another suffix */
            n_missed += end > 0;
            continue;
        }
        n_found++;
        if (d.suffix != k - 2)
            continue;
        uint32_t copy[N + DRAFT_MAX];
        memcpy(copy, t, sizeof(copy));
        for (uint32_t i = 0; i < DRAFT_MAX; i++) {
            copy[n + 1 + i] = copy[end + i];
            assert_int_equal(d.id[i], copy[end + i]);
        }
    }
    assert_true(n_found > 500 && n_missed < n_found / 10);
    draft_close(&d);
}

static void test_nothing_to_guess(void **state)
{
    (void)state;
    static const uint32_t t[] = {1, 2, 3, 4, 5, 1, 9};
    struct draft d = {0};
    draft_guess(&d, t, 7); /* never opened, or without memory */
    assert_int_equal(d.n, 0);
    draft_open(&d, 7);
    for (uint32_t n = 0; n <= 7; n++) {
        draft_guess(&d, t, n);
        assert_int_equal(d.n, 0);
    }
    draft_close(&d);
}

static void test_a_repetition_goes_on(void **state)
{
    (void)state;
    static const uint32_t t[] = {7, 8, 7, 8, 7}, want[DRAFT_MAX] = {8, 7, 8, 7, 8, 7, 8};
    struct draft d;
    draft_open(&d, 5);
    draft_guess(&d, t, 5);
    assert_int_equal(d.n, DRAFT_MAX);
    assert_memory_equal(d.id, want, sizeof(want));
    draft_close(&d);
}

/* Hope follows what was picked, drafted or not; what came behind a miss tells nothing. */
static void test_learns(void **state)
{
    (void)state;
    static const uint32_t t[] = {7, 8, 7, 8, 7}, right[] = {8, 7, 8, 7}, wrong[] = {9};
    struct draft d;
    draft_open(&d, 5);
    double before = draft_hope(&d), last = before;
    assert_true(before > 0.1 && before < 0.5);
    for (int i = 0; i < 30; i++) {
        draft_guess(&d, t, 5);
        draft_learn(&d, right, i % 2 ? 1 : 4, i % 2 ? 0 : 3);
        draft_guess(&d, t, 5);
        assert_true(draft_hope(&d) > last);
        last = draft_hope(&d);
    }
    assert_true(last > 0.85);
    for (int i = 0; i < 60; i++) {
        draft_guess(&d, t, 5);
        draft_learn(&d, wrong, 1, i % 2 ? 0 : 5);
    }
    draft_guess(&d, t, 5);
    assert_true(draft_hope(&d) < 0.1);
    draft_close(&d);
}

static uint32_t rows(const struct draft *d, double row_ns, uint32_t n_streams, double limit)
{
    struct pace p;
    struct load l = {.rows = {n_streams}};
    pace_open(&p);
    for (uint32_t n = 1; n <= 128; n *= 2) {
        struct load k = {.rows = {n}};
        pace_learn(&p, &k, 10e6 + row_ns * (n - 1));
    }
    return draft_rows(d, &p, &l, n_streams, 0, DRAFT_MAX, limit);
}

static void test_rows_that_pay(void **state)
{
    (void)state;
    static const uint32_t t[] = {7, 8, 7, 8, 7}, right[] = {8, 7, 8, 7, 8, 7, 8};
    struct draft d;
    draft_open(&d, 5);
    draft_guess(&d, t, 5);
    assert_int_equal(rows(&d, 9e6, 1, 1e12), 0); /* little hope */
    assert_true(rows(&d, 1e4, 1, 1e12) >= 2);    /* but free */
    for (int i = 0; i < 30; i++) {
        draft_guess(&d, t, 5);
        draft_learn(&d, right, 7, 7);
    }
    draft_guess(&d, t, 5);
    assert_int_equal(rows(&d, 1e4, 1, 1e12), DRAFT_MAX);
    assert_in_range(rows(&d, 2e6, 1, 1e12), 4, DRAFT_MAX);
    assert_int_equal(rows(&d, 9e6, 1, 1e12), 0); /* a row costs what a token is worth */
    assert_in_range(rows(&d, 2e6, 1, 15e6), 1, 2);
    assert_int_equal(rows(&d, 2e6, 1, 0), 0);
    assert_int_equal(rows(&d, 2e6, 16, 1e12), 0); /* streams enough to fill the step */
    draft_close(&d);
}

/* A stream all of whose guesses hold on a machine where a row costs row_ns, after a start at which 8
 * rows took 60 ms: rows drafted in the last of n steps that was no probe; *n_probes: of those that
 * were. */
static uint32_t drafting(double row_ns, uint32_t n, uint32_t *n_probes)
{
    static const uint32_t t[] = {7, 8, 7, 8, 7}, right[] = {8, 7, 8, 7, 8, 7, 8};
    struct load one = {.rows = {1}}, eight = {.rows = {8}};
    struct draft d;
    struct pace pace;
    struct probe probe;
    uint32_t chosen = 0;
    pace_open(&pace);
    probe_open(&probe);
    draft_open(&d, 5);
    pace_learn(&pace, &one, 3e6);
    pace_learn(&pace, &eight, 60e6);
    *n_probes = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct load l = one;
        draft_guess(&d, t, 5);
        probe_end(&probe, &pace);
        uint32_t k = chosen = draft_rows(&d, &pace, &l, 1, 0, DRAFT_MAX, 1e12);
        uint32_t more = 2 * k + 1 < DRAFT_MAX ? 2 * k + 1 : DRAFT_MAX;
        bool tried =
            probe_due(&probe, 1 + draft_gain(&d, k), draft_gain(&d, more) - draft_gain(&d, k));
        k = tried ? more : k;
        load_add(&l, LOAD_DECODE, 0, k);
        if (tried)
            probe_begin(&probe, &pace, &l);
        *n_probes += tried;
        pace_learn(&pace, &l, 3e6 + row_ns * k);
        draft_learn(&d, right, 1 + k < DRAFT_MAX ? 1 + k : DRAFT_MAX, k);
    }
    draft_close(&d);
    return chosen;
}

static void test_probes(void **state)
{
    (void)state;
    uint32_t n_probes;
    assert_int_equal(drafting(2e5, 100, &n_probes), DRAFT_MAX); /* each knot is set right */
    assert_in_range(n_probes, 3, 6);
    assert_int_equal(drafting(4e6, 5000, &n_probes), 0); /* it is true: seldom tried again */
    assert_in_range(n_probes, 2, 20);
    struct probe hopeless;
    probe_open(&hopeless);
    for (int i = 0; i < 5000; i++)
        assert_false(probe_due(&hopeless, 1, 0.4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guesses_as_a_search_does),
        cmocka_unit_test(test_nothing_to_guess),
        cmocka_unit_test(test_a_repetition_goes_on),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_rows_that_pay),
        cmocka_unit_test(test_probes),
    };
    return cmocka_run_group_tests_name("draft", tests, NULL, NULL);
}
