/* Who runs, in which order, with which pages; every way to end. See tests/lib/rig.h for the
 * forward pass that stands in for a model. */
#include "tests/lib/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* H4: many at once give what each gives alone, for any chunk. */
static void test_h4_company_changes_nothing(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {0, 1, 7, 64};
    enum { N = 16 };
    for (int c = 0; c < 4; c++) {
        struct rig g;
        struct answer a[N];
        uint32_t ids[N][100];
        rig_open(&g, &(struct rig_options){.prefill_chunk = chunks[c],
                                           .ends = true,
                                           .habits = c > 1,
                                           .draft_rows = c > 1 ? 20 : 0,
                                           .speculation = SPECULATION_ON});
        for (uint32_t i = 0; i < N; i++) {
            rig_fill(ids[i], 100, i);
            struct request_params p = {.max_tokens = 30, .cache = i % 2};
            rig_submit(&g, &a[i], &p, ids[i], 1 + i * 6);
        }
        rig_run(&g, a, N);
        for (uint32_t i = 0; i < N; i++)
            rig_expect(&g, &a[i], ids[i], 1 + i * 6, 30);
        rig_close(&g);
    }
}

/* P2, P3: the second evaluates one token and says the same, at and beside page ends. */
static void test_p2_p3_second_evaluates_one_token(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5 * RIG_PAGE + 1; n++) {
        struct rig g;
        struct answer a;
        uint32_t ids[200];
        rig_fill(ids, 200, n);
        rig_open(&g, &(struct rig_options){0});
        for (uint32_t i = 0; i < 3; i++) {
            struct request_params p = {.max_tokens = 5, .cache = i < 2};
            rig_submit(&g, &a, &p, ids, n);
            rig_run(&g, &a, 1);
            rig_expect(&g, &a, ids, n, 5);
            assert_int_equal(a.result.cached_tokens, i == 1 ? n - 1 : 0);
            assert_int_equal(a.result.prefilled_tokens, i == 1 ? 1 : n);
        }
        rig_close(&g);
    }
}

/* P4: a salt keeps tenants apart. */
static void test_p4_salts(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[80];
    rig_fill(ids, 80, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 1, .cache = true, .cache_salt = "a"};
    rig_submit(&g, &a, &p, ids, 80);
    rig_run(&g, &a, 1);
    p.cache_salt[0] = 'b';
    rig_submit(&g, &a, &p, ids, 80);
    rig_run(&g, &a, 1);
    assert_int_equal(a.result.cached_tokens, 0);
    p.cache_salt[0] = 'a';
    rig_submit(&g, &a, &p, ids, 80);
    rig_run(&g, &a, 1);
    assert_int_equal(a.result.cached_tokens, 79);
    rig_close(&g);
}

/* Many with the same prompt at the same moment: it is computed once. */
static void test_same_prompt_at_once(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[8];
    uint32_t ids[200];
    rig_fill(ids, 200, 1);
    rig_open(&g, &(struct rig_options){.n_pages = 128});
    for (uint32_t i = 0; i < 8; i++) {
        ids[199] = 3 + i;
        struct request_params p = {.max_tokens = 5, .cache = true};
        rig_submit(&g, &a[i], &p, ids, 200);
    }
    rig_run(&g, a, 8);
    for (uint32_t i = 0; i < 8; i++) {
        ids[199] = 3 + i;
        rig_expect(&g, &a[i], ids, 200, 5);
        assert_int_equal(a[i].result.cached_tokens + a[i].result.prefilled_tokens, 200);
        assert_true(i == 0 || a[i].result.cached_tokens == 192);
    }
    rig_close(&g);
}

/* H3: one that wants the whole pool waits until it has it; the others end normally, and nobody
 * overtakes it for ever. */
static void test_h3_whole_pool(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[4];
    uint32_t ids[4][200], n[4] = {20, 200, 20, 20}, max[4] = {10, 56, 10, 10};
    rig_open(&g, &(struct rig_options){.n_pages = 16});
    for (uint32_t i = 0; i < 4; i++) {
        rig_fill(ids[i], 200, i);
        struct request_params p = {.max_tokens = max[i], .cache = true};
        rig_submit(&g, &a[i], &p, ids[i], n[i]);
    }
    rig_step(&g);
    assert_int_equal(g.s.n_running, 1);
    assert_int_equal(g.s.n_waiting, 3);
    rig_run(&g, a, 4);
    for (uint32_t i = 0; i < 4; i++)
        rig_expect(&g, &a[i], ids[i], n[i], max[i]);
    rig_close(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[300];
    rig_fill(ids, 300, 1);
    rig_open(&g, &(struct rig_options){.n_pages = 8, .no_bos = true});
    struct request_params p = {.max_tokens = 10, .add_bos = true};
    /* X1 */
    rig_submit(&g, &a, &p, ids, 257);
    rig_run(&g, &a, 1);
    rig_expect_error(&a, ERR_CONTEXT,
                     "This model's maximum context length is 256 tokens, the prompt has 257");
    assert_int_equal(a.result.error.n_prompt_tokens, 257);
    assert_int_equal(a.result.error.n_ctx, 256);
    /* more than the pool, though the context would do */
    rig_submit(&g, &a, &p, ids, 119);
    rig_run(&g, &a, 1);
    rig_expect_error(&a, ERR_INVALID,
                     "prompt and max_tokens need 129 tokens of KV cache, all of it holds 128");
    rig_submit(&g, &a, &p, ids, 118);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 118, 10);
    rig_submit(&g, &a, &p, ids, 0);
    rig_run(&g, &a, 1);
    rig_expect_error(&a, ERR_INVALID,
                     "the prompt is empty, and the model has no BOS token to begin with");
    ids[1] = RIG_VOCAB;
    rig_submit(&g, &a, &p, ids, 2);
    rig_run(&g, &a, 1);
    rig_expect_error(&a, ERR_INVALID, "token 1 of the prompt is 64, the model has ids below 64");
    rig_close(&g);
}

/* X2 and the other limits. */
static void test_x2_limits(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[256];
    rig_fill(ids, 256, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 100};
    rig_submit(&g, &a, &p, ids, 246);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 246, 10);
    rig_submit(&g, &a, &p, ids, 256);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 256, 0);
    p.max_tokens = 0; /* only prefill */
    p.cache = true;
    rig_submit(&g, &a, &p, ids, 100);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 100, 0);
    p.max_tokens = 3;
    rig_submit(&g, &a, &p, ids, 100);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 100, 3);
    assert_int_equal(a.result.cached_tokens, 99);
    rig_close(&g);
}

static void test_bos(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t timeline[100] = {RIG_BOS, 5, 6, 7};
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 4, .add_bos = true, .session = "s"};
    rig_submit(&g, &a, &p, timeline + 1, 3);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, timeline, 4, 4);
    memcpy(timeline + 4, a.id, 4 * sizeof(*a.id));
    timeline[8] = 9;
    rig_submit(&g, &a, &p, timeline + 8, 1); /* BOS at position 0 only */
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, timeline, 9, 4);
    p.session[0] = '\0';
    rig_submit(&g, &a, &p, timeline, 4); /* it is there already */
    rig_run(&g, &a, 1);
    assert_int_equal(a.result.prompt_tokens, 4);
    rig_submit(&g, &a, &p, timeline, 0); /* the empty prompt is BOS alone */
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, timeline, 1, 4);
    rig_close(&g);
}

static void end_tokens(const struct rig_options *o)
{
    struct rig g;
    struct answer a;
    uint32_t ids[30], want[RIG_ANSWER_MAX], n, seed = 0;
    bool ended;
    rig_open(&g, o);
    do { /* a prompt whose answer ends soon, but not at once */
        rig_fill(ids, 30, seed++);
        n = rig_expected(&g, ids, 30, 50, want, &ended);
    } while (!ended || n < 3 || n > 10);
    struct request_params p = {.max_tokens = 50, .session = "s"};
    rig_submit(&g, &a, &p, ids, 30);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 30, 50);
    assert_int_equal(a.result.session_tokens, 30 + n + 1); /* with the end token */
    p.session[0] = '\0';
    p.ignore_eos = true;
    rig_submit(&g, &a, &p, ids, 30);
    rig_run(&g, &a, 1);
    assert_int_equal(a.n, 50);
    assert_int_equal(a.result.stop, STOP_LIMIT);
    assert_memory_equal(a.id, want, n * sizeof(*want));
    for (uint32_t i = 0; i < a.n; i++)
        assert_int_not_equal(a.id[i], RIG_END);
    p.ignore_eos = false;
    p.min_tokens = n + 1;
    rig_submit(&g, &a, &p, ids, 30);
    rig_run(&g, &a, 1);
    assert_true(a.n >= n + 1);
    rig_close(&g);
}

static void test_end_tokens(void **state)
{
    (void)state;
    end_tokens(&(struct rig_options){.ends = true});
    end_tokens(&(struct rig_options){
        .ends = true, .habits = true, .draft_rows = 7, .speculation = SPECULATION_ON});
}

/* C2: cancelled before it had a slot: never prefilled. */
static void test_c2_cancelled_in_the_queue(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[2];
    uint32_t ids[60];
    rig_fill(ids, 60, 1);
    rig_open(&g, &(struct rig_options){.max_running = 1});
    struct request_params p = {.max_tokens = 20, .cache = true};
    rig_submit(&g, &a[0], &p, ids, 60);
    ids[0]++;
    rig_submit(&g, &a[1], &p, ids, 60);
    ids[0]--;
    for (int i = 0; i < 6; i++)
        rig_step(&g);
    atomic_store(&a[1].r->cancel, true);
    rig_run(&g, a, 2);
    rig_expect(&g, &a[0], ids, 60, 20);
    assert_true(a[1].started);
    assert_int_equal(a[1].result.finish, FINISH_CANCELLED);
    assert_int_equal(a[1].result.prefilled_tokens, 0);
    assert_int_equal(atomic_load(&g.books.tokens_in), 60);
    assert_int_equal(atomic_load(&g.books.requests_cancelled), 1);
    rig_close(&g);
}

/* C4, C5, P12: gone within a step; what was computed, in complete pages, is used by the next. */
static void test_c5_cancelled_in_prefill(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[200];
    rig_fill(ids, 200, 1);
    rig_open(&g, &(struct rig_options){.prefill_chunk = 10});
    struct request_params p = {.max_tokens = 20, .cache = true};
    rig_submit(&g, &a, &p, ids, 200);
    for (int i = 0; i < 5; i++)
        rig_step(&g);
    atomic_store(&a.r->cancel, true);
    assert_false(rig_step(&g));
    assert_int_equal(atomic_load(&g.books.pages_used), 0);
    rig_read(&g, &a, UINT32_MAX);
    assert_true(a.done);
    assert_int_equal(a.result.prefilled_tokens, 50);
    rig_submit(&g, &a, &p, ids, 200);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 200, 20);
    assert_int_equal(a.result.cached_tokens, 48);
    rig_close(&g);
}

/* H7: while a long prompt is computed, every step carries the stream's decode row. */
static void test_h7_streams_run_on(void **state)
{
    (void)state;
    for (uint32_t chunk = 0; chunk <= 10; chunk += 10) {
        struct rig g;
        struct answer a[2];
        uint32_t ids[256];
        rig_fill(ids, 256, 1);
        rig_open(&g, &(struct rig_options){.prefill_chunk = chunk});
        struct request_params p = {.max_tokens = 100};
        rig_submit(&g, &a[0], &p, ids, 5);
        while (!a[0].n) {
            rig_step(&g);
            rig_read(&g, &a[0], 1);
        }
        p.max_tokens = 6;
        rig_submit(&g, &a[1], &p, ids, 250);
        a[1].n = 0;
        for (uint32_t n_steps = 0; !a[1].n; n_steps++) {
            uint32_t before = a[0].n;
            rig_step(&g);
            rig_read(&g, &a[0], UINT32_MAX);
            rig_read(&g, &a[1], 1);
            assert_int_equal(a[0].n, before + 1);
            assert_true(!chunk || g.n_rows <= 11);
            assert_true(n_steps < 100);
        }
        rig_run(&g, a, 2);
        rig_expect(&g, &a[0], ids, 5, 100);
        rig_expect(&g, &a[1], ids, 250, 6);
        rig_close(&g);
    }
}

/* A machine on which a step of up to 8 rows takes 10 ms and each row beyond 1 ms more. */
static void teach(struct pace *p)
{
    pace_open(p);
    for (uint32_t n = 1; n <= 128; n *= 2) {
        struct load l = {.rows = {n}};
        pace_learn(p, &l, n <= 8 ? 10e6 : 10e6 + 1e6 * (n - 8));
    }
}

/* Beside streams a step of prompt rows takes less than twice their time; without them as long as
 * step_ms; and some rows join though there is no time at all. */
static void test_prompt_rows_beside_streams(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[4];
    uint32_t ids[250];
    rig_fill(ids, 250, 1);
    rig_open(&g, &(struct rig_options){.max_rows = 200, .n_pages = 128});
    struct request_params p = {.max_tokens = 1};
    teach(&g.s.pace);
    rig_submit(&g, &a[0], &p, ids, 250);
    rig_step(&g);
    assert_in_range(g.n_rows, 80, 105);
    rig_run(&g, a, 1);
    p.max_tokens = 200;
    for (uint32_t i = 0; i < 3; i++)
        rig_submit(&g, &a[i], &p, ids, 3);
    while (g.n_decode_rows != 3)
        rig_step(&g);
    p.max_tokens = 1;
    ids[0]++;
    rig_submit(&g, &a[3], &p, ids, 250);
    teach(&g.s.pace);
    rig_step(&g);
    assert_int_equal(g.n_decode_rows, 3);
    assert_in_range(g.n_rows, 3 + 10, 3 + 14); /* 18 ms: 16 rows */
    g.s.pace.part[PACE_KNOTS + LOAD_PROMPT] = 1e9;
    rig_step(&g);
    assert_int_equal(g.n_decode_rows, 3);
    assert_int_equal(g.n_rows, 3 + BATCH_LEAST);
    rig_run(&g, a, 4);
    ids[0]--;
    for (uint32_t i = 0; i < 3; i++)
        rig_expect(&g, &a[i], ids, 3, 200);
    rig_close(&g);
}

/* Measured before the first request: something is known, nothing is held or left behind. */
static void test_calibration(void **state)
{
    (void)state;
    for (uint32_t n_ctx = 1; n_ctx <= 256; n_ctx += 85) {
        struct rig g;
        struct answer a;
        struct load l = {.rows = {1}};
        uint32_t ids[60];
        rig_fill(ids, 60, 1);
        rig_open(&g, &(struct rig_options){.n_ctx = n_ctx, .max_running = 1});
        scheduler_calibrate(&g.s);
        assert_true(g.n_steps >= 1 && g.n_steps <= 5);
        assert_true(g.n_steps < 2 || pace_ns(&g.s.pace, &l) > 0);
        assert_int_equal(atomic_load(&g.books.steps), 0);
        struct request_params p = {.max_tokens = 1, .cache = true};
        rig_submit(&g, &a, &p, ids, 1);
        rig_run(&g, &a, 1);
        assert_int_equal(a.result.cached_tokens, 0);
        rig_close(&g);
    }
}

/* A short prompt does not wait for a long one before it, and the long one is not starved. */
static void test_short_prompts_pass(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[2];
    uint32_t ids[240];
    rig_fill(ids, 240, 1);
    rig_open(&g, &(struct rig_options){.prefill_chunk = 20});
    struct request_params p = {.max_tokens = 1};
    rig_submit(&g, &a[0], &p, ids, 240);
    rig_step(&g);
    rig_submit(&g, &a[1], &p, ids, 10);
    rig_step(&g);
    rig_read(&g, &a[1], UINT32_MAX);
    assert_true(a[1].done);
    assert_int_equal(a[0].r->seq.n_tokens, 30);
    rig_run(&g, a, 1);
    rig_expect(&g, &a[0], ids, 240, 1);
    rig_close(&g);
}

static void test_priority(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[4];
    uint32_t ids[4][30];
    static const int32_t priority[4] = {0, 0, 5, -1};
    rig_open(&g, &(struct rig_options){.max_running = 1});
    for (uint32_t i = 0; i < 4; i++) {
        rig_fill(ids[i], 30, i);
        struct request_params p = {.max_tokens = 3, .priority = priority[i]};
        rig_submit(&g, &a[i], &p, ids[i], 30);
    }
    static const uint32_t order[4] = {2, 0, 1, 3};
    for (uint32_t k = 0; k < 4; k++) {
        while (!a[order[k]].done) {
            rig_step(&g);
            for (uint32_t i = 0; i < 4; i++)
                rig_read(&g, &a[i], UINT32_MAX);
        }
        for (uint32_t later = k + 1; later < 4; later++)
            assert_int_equal(a[order[later]].n, 0);
        rig_expect(&g, &a[order[k]], ids[order[k]], 30, 3);
    }
    rig_close(&g);
}

static void test_deadline(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[2];
    uint32_t ids[30];
    rig_fill(ids, 30, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 100};
    rig_submit(&g, &a[0], &p, ids, 30);
    p.deadline_ms = 1;
    rig_submit(&g, &a[1], &p, ids, 30);
    assert_int_equal(scheduler_deadline(&g.s), 1000001);
    rig_run(&g, a, 2);
    rig_expect(&g, &a[0], ids, 30, 100);
    assert_int_equal(a[1].result.finish, FINISH_DEADLINE);
    assert_int_equal(a[1].n, 0);
    assert_int_equal(scheduler_deadline(&g.s), 0);
    rig_close(&g);
}

/* H11: who does not read leaves the batch with its pages, and comes back. */
static void full_ring(const struct rig_options *o)
{
    struct rig g;
    struct answer a[2];
    uint32_t ids[10];
    rig_fill(ids, 10, 1);
    rig_open(&g, o);
    struct request_params p = {.max_tokens = 510, .sampling = {.n_logprobs = 20}};
    rig_submit(&g, &a[0], &p, ids, 10);
    while (rig_step(&g))
        continue;
    uint32_t made = atomic_load(&a[0].r->n_completion);
    assert_true(made > 50 && made < 200);
    assert_true(atomic_load(&a[0].r->wants_room));
    assert_true(atomic_load(&g.books.pages_used) > 0);
    ids[0]++;
    rig_submit(&g, &a[1], &p, ids, 10); /* others go on */
    rig_run(&g, &a[1], 1);
    rig_expect(&g, &a[1], ids, 10, 510);
    ids[0]--;
    rig_read(&g, &a[0], 10); /* not half empty yet */
    assert_false(rig_step(&g));
    rig_read(&g, &a[0], made - 20);
    assert_false(atomic_load(&a[0].r->wants_room));
    assert_true(rig_step(&g));
    rig_run(&g, a, 1);
    rig_expect(&g, &a[0], ids, 10, 510);
    rig_close(&g);
}

static void test_full_ring(void **state)
{
    (void)state;
    struct rig_options o = {.n_ctx = 1024, .n_pages = 128};
    full_ring(&o);
    o.habits = true;
    o.draft_rows = 14;
    o.speculation = SPECULATION_ON;
    full_ring(&o);
}

/* O1: the end: what runs is cancelled with what it has, what waits is told why. */
static void test_end_of_all(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[3];
    uint32_t ids[40];
    rig_fill(ids, 40, 1);
    rig_open(&g, &(struct rig_options){.max_running = 1});
    struct request_params p = {.max_tokens = 50, .session = "s"};
    for (uint32_t i = 0; i < 3; i++) {
        p.session[0] = "xys"[i];
        rig_submit(&g, &a[i], &p, ids, 40);
    }
    rig_step(&g);
    rig_step(&g);
    scheduler_end(&g.s);
    ready_publish(&g.ready);
    for (uint32_t i = 0; i < 3; i++)
        rig_read(&g, &a[i], UINT32_MAX);
    assert_int_equal(a[0].result.finish, FINISH_CANCELLED);
    assert_int_equal(a[1].result.error.code, ERR_DRAINING);
    assert_int_equal(a[2].result.error.code, ERR_DRAINING);
    rig_close(&g);
}

/* C10, small: anything at any time in too little memory. Whole answers are right, cut ones right as
 * far as they go, and in the end nothing is held (rig_close). */
static void at_random(const struct rig_options *o)
{
    enum { N = 24, ROUNDS = 4000 };
    struct rig g;
    struct answer a[N] = {0};
    static uint32_t ids[N][200];
    uint32_t n[N], max[N], n_whole = 0, n_cancelled = 0, rng = 7;
    rig_open(&g, o);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = rig_random(&rng) % N, act = rig_random(&rng) % 8;
        if (!a[i].r && round < ROUNDS - 500) {
            n[i] = 1 + rig_random(&rng) % 200;
            max[i] = rig_random(&rng) % 60;
            struct request_params p = {.max_tokens = max[i],
                                       .cache = rig_random(&rng) % 4 != 0,
                                       .priority = (int32_t)(rig_random(&rng) % 3)};
            if (rig_random(&rng) % 2) { /* anonymous or compared: the timeline is the prompt */
                snprintf(p.session, sizeof(p.session), "s%u", rig_random(&rng) % 4);
                p.mode = TIMELINE_COMPARE;
            }
            uint32_t flavour = rig_random(&rng) % 3;
            for (uint32_t k = 0; k < n[i]; k++)
                ids[i][k] = rig_random(&rng) % 40 ? 3 + flavour : 3 + rig_random(&rng) % 60;
            rig_submit(&g, &a[i], &p, ids[i], n[i]);
        } else if (a[i].r && act == 0) {
            atomic_store(&a[i].r->cancel, true);
        } else if (act == 1 && rig_random(&rng) % 4 == 0) {
            char id[8];
            snprintf(id, sizeof(id), "s%u", rig_random(&rng) % 4);
            free(
                rig_command(&g, (enum session_verb)(SESSION_GET + round % 4), id, "s9", round % 100)
                    .infos);
        }
        rig_step(&g);
        for (i = 0; i < N; i++) {
            if (!a[i].r)
                continue;
            rig_read(&g, &a[i], UINT32_MAX);
            if (!a[i].done)
                continue;
            uint32_t want[RIG_ANSWER_MAX];
            bool ended;
            if (a[i].result.finish == FINISH_CANCELLED) {
                uint32_t n_want = rig_expected(&g, ids[i], n[i], max[i], want, &ended);
                assert_true(a[i].n <= n_want);
                assert_memory_equal(a[i].id, want, a[i].n * sizeof(*want));
                n_cancelled++;
            } else {
                rig_expect(&g, &a[i], ids[i], n[i], n[i] + max[i] > 256 ? 256 - n[i] : max[i]);
                n_whole++;
            }
        }
    }
    while (rig_step(&g))
        for (uint32_t i = 0; i < N; i++)
            if (a[i].r)
                rig_read(&g, &a[i], UINT32_MAX);
    for (uint32_t i = 0; i < N; i++)
        if (a[i].r)
            rig_read(&g, &a[i], UINT32_MAX);
    assert_true(n_whole > 50);
    assert_true(n_cancelled > 50);
    rig_close(&g);
}

static void test_c10_at_random(void **state)
{
    (void)state;
    struct rig_options o = {.n_pages = 40, .ends = true};
    at_random(&o);
    o.habits = true;
    o.speculation = SPECULATION_ON;
    for (o.draft_rows = 1; o.draft_rows < 60; o.draft_rows += 11)
        at_random(&o);
    o.speculation = SPECULATION_AUTO;
    at_random(&o);
}

/* ---- speculation: fewer steps, the same answers ---- */

static uint32_t steps_of(enum speculation speculation, uint32_t n_prompt, uint32_t max_tokens,
                         struct scheduler_books *books)
{
    struct rig g;
    struct answer a;
    uint32_t ids[100];
    rig_fill(ids, 100, 5);
    rig_open(&g, &(struct rig_options){
                     .habits = true, .draft_rows = 7, .n_pages = 64, .speculation = speculation});
    struct request_params p = {.max_tokens = max_tokens, .cache = true};
    for (int again = 0; again < 2; again++) { /* also from pages that were published */
        rig_submit(&g, &a, &p, ids, n_prompt);
        rig_run(&g, &a, 1);
        rig_expect(&g, &a, ids, n_prompt, max_tokens);
    }
    *books = g.books;
    uint32_t n_steps = (uint32_t)g.n_steps;
    rig_close(&g);
    return n_steps;
}

static void test_speculation_saves_steps(void **state)
{
    (void)state;
    struct scheduler_books off, on;
    assert_int_equal(steps_of(SPECULATION_OFF, 10, 150, &off), 2 * 150);
    assert_int_equal(atomic_load(&off.tokens_drafted), 0);
    uint32_t n = steps_of(SPECULATION_ON, 10, 150, &on),
             held = (uint32_t)atomic_load(&on.drafts_held);
    assert_true(n < 2 * 100);
    assert_int_equal(n + held, 2 * 150); /* each step gives a token, and those that held */
    assert_true(held < atomic_load(&on.tokens_drafted));
    assert_int_equal(atomic_load(&on.tokens_out), 2 * 150);
    for (uint32_t max = 1; max < 20; max++) /* never more than was asked for */
        steps_of(SPECULATION_ON, 10, max, &on);
}

/* Where rows are free, drafts are made once guesses have proved right; where they cost what they
 * would gain, hardly any are. */
static void test_speculation_where_it_pays(void **state)
{
    (void)state;
    for (int dear = 0; dear < 2; dear++) {
        struct rig g;
        struct answer a;
        uint32_t ids[30];
        rig_fill(ids, 30, 5);
        rig_open(&g, &(struct rig_options){.habits = true, .draft_rows = 7});
        struct request_params p = {.max_tokens = 200};
        rig_submit(&g, &a, &p, ids, 30);
        do {
            pace_open(&g.s.pace);
            for (uint32_t n = 1; n <= 64; n *= 2) {
                struct load l = {.rows = {n}};
                pace_learn(&g.s.pace, &l, dear ? 1e6 * n : 1e6);
            }
            rig_step(&g);
            rig_read(&g, &a, UINT32_MAX);
        } while (!a.done);
        rig_expect(&g, &a, ids, 30, 200);
        uint64_t drafted = atomic_load(&g.books.tokens_drafted);
        assert_true(dear ? drafted < 10 : g.n_steps < 150); /* a few, to see whether it is true */
        rig_close(&g);
    }
}

/* Times that one step each told at the start: these stand until a step of so many rows comes. */
static void teach_rows(struct pace *p, double row_ns)
{
    pace_open(p);
    for (uint32_t n = 1; n <= 64; n *= 8) {
        struct load l = {.rows = {n}};
        pace_learn(p, &l, row_ns * n);
    }
}

/* Rows that are free were measured beside a busy process, as dear as steps of their own: guesses that
 * hold are tried nevertheless. */
static void test_speculation_after_a_false_start(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[30];
    rig_fill(ids, 30, 5);
    rig_open(&g, &(struct rig_options){.habits = true, .draft_rows = 7});
    struct request_params p = {.max_tokens = 200};
    rig_submit(&g, &a, &p, ids, 30);
    teach_rows(&g.s.pace, 1e9);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 30, 200);
    assert_true(atomic_load(&g.books.drafts_held) > 0);
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h4_company_changes_nothing),
        cmocka_unit_test(test_p2_p3_second_evaluates_one_token),
        cmocka_unit_test(test_p4_salts),
        cmocka_unit_test(test_same_prompt_at_once),
        cmocka_unit_test(test_h3_whole_pool),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_x2_limits),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_end_tokens),
        cmocka_unit_test(test_c2_cancelled_in_the_queue),
        cmocka_unit_test(test_c5_cancelled_in_prefill),
        cmocka_unit_test(test_h7_streams_run_on),
        cmocka_unit_test(test_prompt_rows_beside_streams),
        cmocka_unit_test(test_calibration),
        cmocka_unit_test(test_short_prompts_pass),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_end_of_all),
        cmocka_unit_test(test_c10_at_random),
        cmocka_unit_test(test_speculation_saves_steps),
        cmocka_unit_test(test_speculation_where_it_pays),
        cmocka_unit_test(test_speculation_after_a_false_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
