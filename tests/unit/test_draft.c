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
    static uint32_t t[N + DRAFT_GUESSES];
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
        uint32_t copy[N + DRAFT_GUESSES], none = UINT32_MAX;
        memcpy(copy, t, sizeof(copy));
        for (uint32_t i = 0; d.kind == (k == 3 ? DRAFT_LONG : DRAFT_SHORT) && i < d.n; i++) {
            copy[n + 1 + i] = copy[end + i];
            assert_int_equal(d.id[i], copy[end + i]);
        }
        draft_learn(&d, &none, 1);
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
    static const uint32_t t[] = {7, 8, 7, 8, 7}, want[DRAFT_GUESSES] = {8, 7, 8, 7, 8, 7, 8, 7};
    struct draft d;
    draft_open(&d, 5);
    draft_guess(&d, t, 5);
    assert_int_equal(d.n, DRAFT_GUESSES);
    assert_memory_equal(d.id, want, sizeof(want));
    draft_close(&d);
}

/* As long as it holds, the guess goes on through the passage that it came from, and not through a later
 * one with the same last words; after a miss these are what counts. */
static void test_goes_on_in_its_passage(void **state)
{
    (void)state;
    static const uint32_t t[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5, 9};
    static const uint32_t first[] = {3, 4}, second[] = {5}, miss[] = {9};
    struct draft d;
    draft_open(&d, 2000);   /* with places for all */
    draft_guess(&d, t, 16); /* behind 1 2 */
    assert_int_equal(d.kind, DRAFT_SHORT);
    assert_memory_equal(d.id, t + 2, 6 * sizeof(*t));
    draft_learn(&d, first, 2);
    draft_guess(&d, t, 18);
    assert_int_equal(d.kind, DRAFT_GOES_ON);
    assert_memory_equal(d.id, t + 4, 4 * sizeof(*t));
    draft_learn(&d, second, 1);
    draft_guess(&d, t, 19); /* 3 4 5 was last followed by 0 */
    assert_int_equal(d.kind, DRAFT_GOES_ON);
    assert_int_equal(d.id[0], 6);
    draft_learn(&d, miss, 1);
    draft_guess(&d, t, 19);
    assert_int_equal(d.kind, DRAFT_LONG);
    assert_int_equal(d.id[0], 0);
    draft_close(&d);
}

/* A prompt that repeats itself is trusted at once, a little; one whose guesses fail is not. */
static void test_reads_the_prompt(void **state)
{
    (void)state;
    enum { N = 300 };
    uint32_t list[N], trap[N], rng = 1;
    struct draft d[2];
    static const uint32_t wrong[] = {UINT32_MAX};
    for (uint32_t i = 0; i < N; i++) {
        rng = rng * 1664525u + 1013904223u;
        list[i] = i % 40;
        trap[i] = i % 3 == 2 ? rng : i % 3;
    }
    draft_open(&d[0], N);
    draft_read(&d[0], list, N);
    draft_guess(&d[0], list, N);
    assert_int_equal(d[0].kind, DRAFT_GOES_ON);
    assert_true(draft_hope(&d[0]) > 0.9);
    for (int i = 0; i < 5; i++) { /* its own misses outweigh it soon */
        d[0].kind = DRAFT_GOES_ON;
        draft_learn(&d[0], wrong, 1);
        d[0].from = d[0].n = 1;
    }
    assert_true(draft_hope(&d[0]) < 0.45);
    draft_open(&d[1], N);
    draft_read(&d[1], trap, N - 1);
    draft_guess(&d[1], trap, N - 1);
    assert_int_equal(d[1].kind, DRAFT_SHORT);
    assert_true(draft_hope(&d[1]) < 0.05);
    draft_close(&d[0]);
    draft_close(&d[1]);
}

/* The same guess anew, and what was picked. */
static void learn(struct draft *d, const uint32_t *t, const uint32_t *picked, uint32_t n_picked)
{
    d->from = 0;
    draft_guess(d, t, 5);
    draft_learn(d, picked, n_picked);
    d->from = 0;
    draft_guess(d, t, 5);
}

/* Hope follows what was picked, drafted or not; what came behind a miss tells nothing. */
static void test_learns(void **state)
{
    (void)state;
    static const uint32_t t[] = {7, 8, 7, 8, 7}, right[] = {8, 7, 8, 7}, wrong[] = {9};
    struct draft d;
    draft_open(&d, 5);
    draft_guess(&d, t, 5);
    double before = draft_hope(&d), last = before;
    assert_true(before > 0.1 && before < 0.5);
    for (int i = 0; i < 30; i++) {
        learn(&d, t, right, i % 2 ? 1 : 4);
        assert_true(draft_hope(&d) > last);
        last = draft_hope(&d);
    }
    assert_true(last > 0.95);
    for (int i = 0; i < 60; i++)
        learn(&d, t, wrong, 1);
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
    for (int i = 0; i < 30; i++)
        learn(&d, t, right, 7);
    assert_int_equal(rows(&d, 1e4, 1, 1e12), DRAFT_MAX);
    assert_in_range(rows(&d, 2e6, 1, 1e12), 4, DRAFT_MAX);
    assert_int_equal(rows(&d, 9e6, 1, 1e12), 0); /* a row costs what a token is worth */
    assert_in_range(rows(&d, 2e6, 1, 15e6), 1, 2);
    assert_int_equal(rows(&d, 2e6, 1, 0), 0);
    assert_int_equal(rows(&d, 2e6, 64, 1e12), 0); /* streams enough to fill the step */
    draft_close(&d);
}

/* A stream all of whose guesses hold on a machine where a row costs row_ns, after a start at which 8
 * rows took 60 ms: rows drafted in the last of n steps that was no probe; *n_probes: of those that
 * were. */
static uint32_t drafting(double row_ns, uint32_t n, uint32_t *n_probes)
{
    static const uint32_t t[] = {7, 8, 7, 8, 7}, right[] = {8, 7, 8, 7, 8, 7, 8, 7};
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
        draft_learn(&d, right, 1 + k);
        d.from = 0;
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
        cmocka_unit_test(test_goes_on_in_its_passage),
        cmocka_unit_test(test_reads_the_prompt),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_rows_that_pay),
        cmocka_unit_test(test_probes),
    };
    return cmocka_run_group_tests_name("draft", tests, NULL, NULL);
}
