/* The ring: what goes in comes out, round its end, while another thread reads. */
#include "core/sched/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct sample_choice choice_of(uint32_t i)
{
    struct sample_choice c = {.id = i, .logprob = -(float)i, .n_top = i % (LOGPROBS_MAX + 1)};
    for (uint32_t k = 0; k < c.n_top; k++)
        c.top[k] = (struct logprob){.id = i + k, .logprob = -(float)k};
    return c;
}

static size_t text_of(uint32_t i, char *text)
{
    size_t n = i % 5 == 0 ? (size_t)i * 37 % (RING_TEXT_MAX + 1) : i % 7;
    memset(text, (int)('a' + i % 26), n);
    return n;
}

static bool is_record(const struct ring_record *r, uint32_t i)
{
    char text[RING_TEXT_MAX];
    struct sample_choice c = choice_of(i);
    size_t n = text_of(i, text);
    return r->choice.id == i && r->choice.logprob == c.logprob && r->at_ns == 3 * (uint64_t)i &&
           r->choice.n_top == c.n_top && r->n_text == n && !memcmp(r->text, text, n) &&
           !memcmp(r->choice.top, c.top, c.n_top * sizeof(c.top[0]));
}

static void push(struct ring *r, uint32_t i)
{
    char text[RING_TEXT_MAX];
    struct sample_choice c = choice_of(i);
    size_t n = text_of(i, text);
    ring_push(r, &c, text, n, 3 * (uint64_t)i);
}

static void test_fills_and_empties(void **state)
{
    (void)state;
    struct ring r;
    struct ring_record record;
    uint32_t n_in = 0, n_out = 0;
    assert_int_equal(ring_open(&r, NULL), 0);
    assert_false(ring_pop(&r, &record));
    for (int round = 0; round < 100; round++) {
        while (ring_room(&r))
            push(&r, n_in++);
        assert_false(ring_half_empty(&r));
        while (!ring_half_empty(&r)) {
            assert_true(ring_pop(&r, &record));
            assert_true(is_record(&record, n_out++));
        }
        assert_true(ring_room(&r)); /* so that a row comes back */
    }
    while (ring_pop(&r, &record))
        assert_true(is_record(&record, n_out++));
    assert_int_equal(n_in, n_out);
    assert_true(n_in > 1000);
    ring_close(&r);
}

/* A record of the greatest size fits wherever there is room. */
static void test_greatest_record(void **state)
{
    (void)state;
    struct ring r;
    static struct ring_record record;
    char text[RING_TEXT_MAX];
    struct sample_choice c = {.n_top = LOGPROBS_MAX};
    memset(text, 'x', sizeof(text));
    ring_open(&r, NULL);
    for (int i = 0; i < 1000; i++) {
        while (ring_room(&r))
            ring_push(&r, &c, text, sizeof(text), 0);
        assert_true(ring_pop(&r, &record));
        assert_int_equal(record.n_text, RING_TEXT_MAX);
    }
    ring_close(&r);
}

enum { N_ACROSS = 20000 };

static void *write_all(void *arg)
{
    struct ring *r = arg;
    for (uint32_t i = 0; i < N_ACROSS; i++) {
        while (!ring_room(r))
            sched_yield();
        push(r, i);
    }
    return NULL;
}

static void test_across_threads(void **state)
{
    (void)state;
    struct ring r;
    struct ring_record record;
    pthread_t writer;
    ring_open(&r, NULL);
    assert_int_equal(pthread_create(&writer, NULL, write_all, &r), 0);
    for (uint32_t i = 0; i < N_ACROSS;) {
        if (!ring_pop(&r, &record)) {
            sched_yield();
            continue;
        }
        assert_true(is_record(&record, i++));
    }
    pthread_join(writer, NULL);
    assert_false(ring_pop(&r, &record));
    ring_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fills_and_empties),
        cmocka_unit_test(test_greatest_record),
        cmocka_unit_test(test_across_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
