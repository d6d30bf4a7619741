/* Sessions: timelines that requests continue, in line; list, delete, fork, rewind. */
#include "tests/lib/rig.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* P1, P7: two conversations in turn; each turn computes what is new. */
static void test_p1_sessions_continue(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t timeline[2][256], n[2] = {0};
    rig_open(&g, &(struct rig_options){.ends = true});
    for (uint32_t turn = 0; turn < 8; turn++) {
        uint32_t i = turn % 2, n_old = n[i];
        struct request_params p = {
            .max_tokens = 12, .cache = turn > 3, .session = {(char)('a' + i)}};
        rig_fill(timeline[i] + n[i], 20, turn);
        rig_submit(&g, &a, &p, timeline[i] + n[i], 20);
        n[i] += 20;
        rig_run(&g, &a, 1);
        rig_expect(&g, &a, timeline[i], n[i], 12);
        memcpy(timeline[i] + n[i], a.id, a.n * sizeof(*a.id));
        n[i] += a.n;
        if (a.result.stop == STOP_EOS)
            timeline[i][n[i]++] = RIG_END;
        assert_int_equal(a.result.session_tokens, n[i]);
        assert_int_equal(a.result.session_created, turn < 2);
        if (turn / 2 != 0 && turn / 2 != 2) /* at 2 the cache was turned on: another tree */
            assert_int_equal(a.result.cached_tokens, n_old - 1);
    }
    struct session_command c = rig_command(&g, SESSION_LIST, NULL, NULL, -1);
    assert_int_equal(c.rc, 0);
    assert_int_equal(c.n_infos, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(c.infos[i].id[0], 'a' + i);
        assert_int_equal(c.infos[i].tokens, n[i]);
        assert_int_equal(c.infos[i].bytes, n[i] * kv_token_bytes(&g.kv->geometry));
        assert_int_equal(c.infos[i].state, SESSION_IDLE);
    }
    free(c.infos);
    rig_close(&g);
}

/* P5, P6: the whole chat is sent again; the common prefix is not computed. */
static void test_p5_p6_compare(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[150];
    rig_fill(ids, 150, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {
        .max_tokens = 10, .cache = true, .session = "s", .mode = TIMELINE_COMPARE};
    rig_submit(&g, &a, &p, ids, 100);
    rig_run(&g, &a, 1);
    rig_submit(&g, &a, &p, ids, 150);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 150, 10);
    assert_int_equal(a.result.cached_tokens, 100);
    rig_submit(&g, &a, &p, ids, 100); /* turn n-1 again */
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 100, 10);
    assert_int_equal(a.result.cached_tokens, 99);
    assert_int_equal(a.result.session_tokens, 110);
    ids[90]++; /* edited */
    rig_submit(&g, &a, &p, ids, 100);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 100, 10);
    assert_int_equal(a.result.cached_tokens, 90);
    rig_close(&g);
}

/* Two requests on one session run in order, and do not hold up others. */
static void test_session_line(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[4];
    uint32_t timeline[256], whole[256], other[20], n = 0;
    rig_fill(timeline, 256, 1);
    rig_fill(other, 20, 2);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 10, .cache = true, .session = "s"};
    rig_submit(&g, &a[0], &p, timeline, 20);
    rig_submit(&g, &a[1], &p, timeline + 100, 20);
    rig_submit(&g, &a[2], &p, timeline + 150, 20);
    struct request_params q = {.max_tokens = 3};
    rig_submit(&g, &a[3], &q, other, 20);
    rig_step(&g);
    assert_int_equal(g.s.n_running, 2);
    rig_read(&g, &a[1], 1);
    assert_false(a[1].started);
    struct session_command c = rig_command(&g, SESSION_FORK, "s", "t", 5);
    assert_int_equal(c.err.code, ERR_CONFLICT);
    c = rig_command(&g, SESSION_REWIND, "s", NULL, 5);
    assert_int_equal(c.err.code, ERR_CONFLICT);
    c = rig_command(&g, SESSION_GET, "s", NULL, -1);
    assert_int_equal(c.infos[0].state, SESSION_RUNNING);
    free(c.infos);
    rig_run(&g, a, 4);
    rig_expect(&g, &a[3], other, 20, 3);
    for (uint32_t i = 0; i < 3; i++) {
        static const uint32_t at[3] = {0, 100, 150};
        uint32_t prompt[20];
        memcpy(prompt, timeline + at[i], sizeof(prompt));
        memcpy(whole + n, prompt, sizeof(prompt));
        n += 20;
        rig_expect(&g, &a[i], whole, n, 10);
        memcpy(whole + n, a[i].id, a[i].n * sizeof(*whole));
        n += a[i].n;
        assert_int_equal(a[i].result.session_tokens, n);
    }
    rig_close(&g);
}

/* A cancelled request leaves prompt and delivered tokens; one that never ran leaves nothing. */
static void test_cancelled_in_session(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[2];
    uint32_t timeline[256];
    rig_fill(timeline, 256, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 50, .cache = true, .session = "s"};
    rig_submit(&g, &a[0], &p, timeline, 20);
    rig_submit(&g, &a[1], &p, timeline, 20);
    for (int i = 0; i < 10; i++)
        rig_step(&g);
    atomic_store(&a[0].r->cancel, true);
    atomic_store(&a[1].r->cancel, true);
    rig_run(&g, a, 2);
    assert_int_equal(a[0].result.finish, FINISH_CANCELLED);
    assert_true(a[0].n > 3);
    assert_int_equal(a[0].result.session_tokens, 20 + a[0].n);
    assert_int_equal(a[1].result.session_tokens, 20 + a[0].n);
    memcpy(timeline + 20, a[0].id, a[0].n * sizeof(*timeline));
    uint32_t n = 20 + a[0].n;
    p.max_tokens = 5;
    rig_submit(&g, &a[0], &p, timeline, 0); /* goes on where it stood */
    rig_run(&g, a, 1);
    rig_expect(&g, &a[0], timeline, n, 5);
    assert_int_equal(a[0].result.cached_tokens, n - 1);
    rig_close(&g);
}

/* Cancelled in its prefill, a prompt was not delivered: sent again, it stands in the session once. */
static void test_cancelled_in_prefill(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t timeline[256];
    rig_fill(timeline, 256, 1);
    rig_open(&g, &(struct rig_options){.prefill_chunk = 8});
    struct request_params p = {.max_tokens = 5, .cache = true, .session = "s"};
    rig_submit(&g, &a, &p, timeline, 100);
    rig_step(&g);
    rig_step(&g);
    atomic_store(&a.r->cancel, true);
    rig_run(&g, &a, 1);
    assert_int_equal(a.result.finish, FINISH_CANCELLED);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.result.session_tokens, 0);
    rig_submit(&g, &a, &p, timeline, 100);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, timeline, 100, 5);
    assert_int_equal(a.result.session_tokens, 105);
    rig_close(&g);
}

static void test_commands(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t timeline[256];
    rig_fill(timeline, 256, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 10, .cache = true, .session = "s"};
    rig_submit(&g, &a, &p, timeline, 40);
    rig_run(&g, &a, 1);
    memcpy(timeline + 40, a.id, 10 * sizeof(*timeline));
    struct session_command c = rig_command(&g, SESSION_GET, "nobody", NULL, -1);
    assert_int_equal(c.rc, -1);
    assert_int_equal(c.err.code, ERR_NO_SESSION);
    c = rig_command(&g, SESSION_FORK, "s", "t", 51);
    assert_int_equal(c.err.code, ERR_INVALID);
    assert_string_equal(c.err.text, "at is 51, the session has 50 tokens");
    c = rig_command(&g, SESSION_FORK, "s", "s", 10);
    assert_int_equal(c.err.code, ERR_CONFLICT);
    c = rig_command(&g, SESSION_FORK, "s", "t", 33);
    assert_int_equal(c.rc, 0);
    assert_int_equal(c.infos[0].tokens, 33);
    assert_string_equal(c.infos[0].id, "t");
    free(c.infos);
    c = rig_command(&g, SESSION_REWIND, "s", NULL, 51);
    assert_string_equal(c.err.text, "to is 51, the session has 50 tokens");
    c = rig_command(&g, SESSION_REWIND, "s", NULL, 45);
    assert_int_equal(c.infos[0].tokens, 45);
    assert_int_equal(c.infos[0].bytes, 45 * kv_token_bytes(&g.kv->geometry));
    free(c.infos);
    rig_submit(&g, &a, &p, timeline + 45, 5); /* s: the same timeline as before the rewind */
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, timeline, 50, 10);
    p.session[0] = 't';
    uint32_t forked[60];
    memcpy(forked, timeline, 33 * sizeof(*forked));
    rig_fill(forked + 33, 20, 9);
    rig_submit(&g, &a, &p, forked + 33, 20);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, forked, 53, 10);
    assert_int_equal(a.result.cached_tokens, 33);
    c = rig_command(&g, SESSION_DELETE, "t", NULL, -1);
    assert_int_equal(c.rc, 0);
    c = rig_command(&g, SESSION_DELETE, "t", NULL, -1);
    assert_int_equal(c.err.code, ERR_NO_SESSION);
    c = rig_command(&g, SESSION_REWIND, "s", NULL, 0);
    assert_int_equal(c.infos[0].tokens, 0);
    free(c.infos);
    rig_close(&g);
}

/* P11: deleted while it runs and others stand in line: all end, the name is free at once. */
static void test_p11_delete_running(void **state)
{
    (void)state;
    struct rig g;
    struct answer a[4];
    uint32_t ids[40];
    rig_fill(ids, 40, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 50, .cache = true, .session = "s"};
    for (uint32_t i = 0; i < 3; i++)
        rig_submit(&g, &a[i], &p, ids, 40);
    rig_step(&g);
    rig_step(&g);
    struct session_command c = rig_command(&g, SESSION_DELETE, "s", NULL, -1);
    assert_int_equal(c.rc, 0);
    p.max_tokens = 4;
    rig_submit(&g, &a[3], &p, ids, 40);
    rig_run(&g, a, 4);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(a[i].result.finish, FINISH_CANCELLED);
    rig_expect(&g, &a[3], ids, 40, 4);
    assert_true(a[3].result.session_created);
    assert_int_equal(a[3].result.session_tokens, 44);
    rig_close(&g);
}

/* An unknown session is refused where it is not to be made; one made for a request that is refused
 * is not left behind. */
static void test_unknown_sessions(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[300] = {0};
    rig_open(&g, &(struct rig_options){.no_auto_create = true});
    struct request_params p = {.max_tokens = 1, .session = "s"};
    rig_submit(&g, &a, &p, ids, 5);
    rig_run(&g, &a, 1);
    rig_expect_error(&a, ERR_NO_SESSION, "no session \"s\"");
    rig_close(&g);
    rig_open(&g, &(struct rig_options){0});
    rig_submit(&g, &a, &p, ids, 300);
    rig_run(&g, &a, 1);
    assert_int_equal(a.result.error.code, ERR_CONTEXT);
    assert_int_equal(atomic_load(&g.books.sessions), 0);
    rig_close(&g);
}

/* What a session no longer holds it gives back: else rewound ones would hold memory uncounted. */
static void test_rewound_memory(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[4000];
    rig_fill(ids, 4000, 1);
    rig_open(&g, &(struct rig_options){.n_ctx = 4096, .n_pages = 300});
    struct request_params p = {.max_tokens = 1, .cache = true, .session = "s"};
    rig_submit(&g, &a, &p, ids, 4000);
    rig_run(&g, &a, 1);
    const struct session *s = sessions_find(&g.s.sessions, "s");
    assert_true(malloc_usable_size(s->ids) >= 4001 * sizeof(uint32_t));
    struct session_command c = rig_command(&g, SESSION_REWIND, "s", NULL, 10);
    assert_int_equal(c.rc, 0);
    free(c.infos);
    assert_true(malloc_usable_size(s->ids) < 1000);
    assert_int_equal(g.s.sessions.bytes, 10 * sizeof(uint32_t));
    for (int i = 0; i < 2; i++) { /* to nothing, twice */
        c = rig_command(&g, SESSION_REWIND, "s", NULL, 0);
        assert_int_equal(c.rc, 0);
        free(c.infos);
    }
    rig_submit(&g, &a, &p, ids, 100);
    rig_run(&g, &a, 1);
    rig_expect(&g, &a, ids, 100, 1);
    rig_close(&g);
}

/* P8: sessions are never dropped for room: the request that finds none is refused, and says why. */
static void test_p8_no_room(void **state)
{
    (void)state;
    struct rig g;
    struct answer a;
    uint32_t ids[20];
    rig_fill(ids, 20, 1);
    rig_open(&g, &(struct rig_options){0});
    struct request_params p = {.max_tokens = 10, .cache = true, .session = "s"};
    rig_submit(&g, &a, &p, ids, 20);
    rig_run(&g, &a, 1);
    uint64_t held = g.s.sessions.bytes;
    assert_int_equal(held, 30 * sizeof(uint32_t));
    g.s.sessions.bytes = SESSIONS_BYTES - 100;
    rig_submit(&g, &a, &p, ids, 20);
    rig_run(&g, &a, 1);
    rig_expect_error(&a, ERR_NO_MEMORY,
                     "no room for 60 tokens more: the sessions' timelines would take 268435596 "
                     "bytes, at most 268435456; delete some");
    struct session_command c = rig_command(&g, SESSION_FORK, "s", "t", -1);
    assert_int_equal(c.err.code, ERR_NO_MEMORY);
    g.s.sessions.bytes = held;
    rig_submit(&g, &a, &p, ids, 20);
    rig_run(&g, &a, 1);
    assert_int_equal(a.result.session_tokens, 60);
    assert_int_equal(a.result.cached_tokens, 29);
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p1_sessions_continue), cmocka_unit_test(test_p5_p6_compare),
        cmocka_unit_test(test_session_line),         cmocka_unit_test(test_cancelled_in_session),
        cmocka_unit_test(test_cancelled_in_prefill), cmocka_unit_test(test_commands),
        cmocka_unit_test(test_p11_delete_running),   cmocka_unit_test(test_unknown_sessions),
        cmocka_unit_test(test_rewound_memory),       cmocka_unit_test(test_p8_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
