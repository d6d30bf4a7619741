/* The serving door with a real, small model: bits that do not depend on company, cache or turns; every
 * end; anything at random, after which nothing is held. This thread is the loop.
 * timeout: 120 */
#include "core/engine.h"

#include "core/base/log.h"
#include "core/sched/ring.h"

#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#define MODEL "tests/golden/stories260K/model-f32.gguf"

enum { TOKENS_MAX = 520 };

static struct engine *engine;
static sem_t woken;

struct answer {
    struct request *r;
    struct str text;
    uint32_t id[TOKENS_MAX];
    float logprob[TOKENS_MAX];
    uint32_t n, n_started;
    size_t n_texts_max; /* bytes of text with one token */
    bool done;
    struct request_result result;
};

static void wake(void *arg)
{
    (void)arg;
    sem_post(&woken);
}

static void read_events(struct answer *a)
{
    struct engine_event event;
    for (;;) {
        request_poll(engine, a->r, &event);
        if (event.kind == EVENT_NONE)
            return;
        a->n_started += event.kind == EVENT_STARTED;
        if (event.kind == EVENT_TOKEN) {
            assert_int_equal(a->n_started, 1);
            assert_true(a->n < TOKENS_MAX);
            a->logprob[a->n] = event.choice.logprob;
            a->id[a->n++] = event.choice.id;
            if (event.n_text > a->n_texts_max)
                a->n_texts_max = event.n_text;
        }
        if (event.kind == EVENT_TOKEN || event.kind == EVENT_DONE)
            str_add(&a->text, event.text, event.n_text);
        if (event.kind == EVENT_DONE) {
            a->done = true;
            a->result = *event.result;
            assert_int_equal(a->result.completion_tokens, a->n);
            request_release(a->r);
            a->r = NULL;
            return;
        }
    }
}

/* Waits for a wake-up, at most 10 s, and reads all that is ready. */
static void turn(void)
{
    struct timespec until;
    struct request *r;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    while (sem_timedwait(&woken, &until))
        assert_int_equal(errno, EINTR);
    while (sem_trywait(&woken) == 0)
        continue;
    while ((r = engine_next_ready(engine)))
        read_events(request_owner(r));
}

static void open_engine(const struct engine_options *o)
{
    struct engine_options options = *o;
    options.model = options.model ? options.model : MODEL;
    options.threads = 2;
    options.max_running = options.max_running ? options.max_running : 16;
    options.page_tokens = 16;
    options.step_ms = 100;
    options.sessions_auto_create = true;
    options.wake = wake;
    sem_init(&woken, 0, 0);
    engine = engine_open(&options, NULL);
    assert_non_null(engine);
    /* set by now: the engine's thread must not change the environment while others read it */
    assert_string_equal(getenv("OPENBLAS_NUM_THREADS"), "1");
}

static void open_ready(const struct engine_options *o)
{
    struct error err;
    open_engine(o);
    while (engine_state(engine, &err) == ENGINE_LOADING)
        turn();
    if (engine_state(engine, &err) == ENGINE_FAILED)
        fail_msg("%s", err.text);
}

static void close_engine(void)
{
    engine_close(engine);
    sem_destroy(&woken);
}

static void submit_ids(struct answer *a, struct request_params p, const uint32_t *id, uint32_t n)
{
    struct ids ids = {0};
    struct error err;
    *a = (struct answer){0};
    p.sampling.repeat_penalty = 1;
    p.sampling.top_p = 1;
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(ids_add(&ids, id[i], NULL), 0);
    a->r = request_new(&p, &err);
    assert_non_null(a->r);
    request_set_ids(a->r, &ids);
    request_set_owner(a->r, a);
    engine_submit(engine, a->r);
}

static void submit(struct answer *a, struct request_params p, const char *prompt)
{
    struct ids ids = {0};
    assert_int_equal(text_encode(engine_text(engine), prompt, strlen(prompt), true, &ids, NULL), 0);
    submit_ids(a, p, ids.id, ids.n);
    ids_free(&ids);
}

static void finish(struct answer *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        while (!a[i].done)
            turn();
}

static void drop(struct answer *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        str_free(&a[i].text);
}

static void expect_same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, a->n * sizeof(*a->id));
    assert_memory_equal(a->logprob, b->logprob, a->n * sizeof(*a->logprob));
    assert_string_equal(str_text(&a->text), str_text(&b->text));
}

/* Nothing is used or promised once the engine is idle. */
static void expect_nothing_held(void)
{
    struct engine_stats s;
    for (int i = 0; i < 1000; i++) {
        engine_stats(engine, &s);
        if (!s.busy && !s.running && !s.waiting)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    engine_stats(engine, &s);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.pages_reserved, 0);
    assert_int_equal(s.pages_free + s.pages_cached, s.pages_total);
    assert_int_equal(s.running + s.waiting, 0);
}

static const char *const prompts[] = {
    "Once upon a time, there was a little girl named Lily. She liked to play with her",
    "The bird",
    "Tom and Sam went to the park. They saw a big dog. The dog was",
    "One day, a boy",
};

static void test_bits(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {0, 1, 7, 64};
    static struct answer alone[4], a[16], more[2];
    struct request_params p = {.max_tokens = 60, .add_bos = true};
    for (int c = 0; c < 4; c++) {
        open_ready(&(struct engine_options){.prefill_chunk = chunks[c], .kv_type = "f16"});
        for (uint32_t i = 0; i < 4 && !c; i++) { /* alone and cold: what all others must equal */
            submit(&alone[i], p, prompts[i]);
            finish(&alone[i], 1);
            assert_int_equal(alone[i].n, 60);
        }
        p.cache = true;
        for (int warm = 0; warm < 2; warm++) {
            for (uint32_t i = 0; i < 16; i++)
                submit(&a[i], p, prompts[i % 4]);
            finish(a, 16);
            for (uint32_t i = 0; i < 16; i++) {
                expect_same(&a[i], &alone[i % 4]);
                assert_true(!warm || a[i].result.prefilled_tokens == 1);
            }
            drop(a, 16);
        }
        p.cache = false;
        p.session[0] = 's'; /* a session that stops after 25 tokens and goes on */
        p.max_tokens = 25;
        submit(&more[0], p, prompts[0]);
        finish(&more[0], 1);
        p.max_tokens = 35;
        submit(&more[1], p, "");
        finish(&more[1], 1);
        assert_memory_equal(more[0].logprob, alone[0].logprob, 25 * sizeof(float));
        assert_memory_equal(more[1].logprob, alone[0].logprob + 25, 35 * sizeof(float));
        assert_int_equal(more[1].result.prefilled_tokens, 1);
        drop(more, 2);
        p = (struct request_params){.max_tokens = 60, .add_bos = true};
        expect_nothing_held();
        close_engine();
    }
    drop(alone, 4);
}

/* D1: a seed gives the same bytes, alone and among others. */
static void test_d1_seed(void **state)
{
    (void)state;
    static struct answer a[18];
    open_ready(&(struct engine_options){0});
    for (uint32_t i = 0; i < 18; i++) {
        struct request_params p = {.max_tokens = 40, .add_bos = true, .cache = true};
        p.sampling.temperature = 1;
        p.sampling.seed = i < 2 ? 42 : i % 3 ? i : 42;
        submit(&a[i], p, prompts[0]);
        if (!i)
            finish(a, 1);
    }
    finish(a, 18);
    expect_same(&a[0], &a[1]);
    expect_same(&a[0], &a[3]);
    expect_same(&a[0], &a[15]);
    assert_memory_not_equal(a[0].id, a[2].id, sizeof(a[0].id));
    drop(a, 18);
    close_engine();
}

static void test_stops(void **state)
{
    (void)state;
    static struct answer whole, a;
    struct request_params p = {.max_tokens = 60, .add_bos = true};
    open_ready(&(struct engine_options){0});
    submit(&whole, p, prompts[0]);
    finish(&whole, 1);
    const char *text = str_text(&whole.text);
    size_t at = strlen(text) / 2, n_stop = 7;
    p.n_stops = 1;
    p.stops = malloc(sizeof(*p.stops));
    p.n_stop = malloc(sizeof(*p.n_stop));
    p.stops[0] = strndup(text + at, n_stop);
    p.n_stop[0] = n_stop;
    const char *first = strstr(text, p.stops[0]);
    submit(&a, p, prompts[0]);
    finish(&a, 1);
    assert_int_equal(a.result.finish, FINISH_STOP);
    assert_int_equal(a.result.stop, STOP_WORD);
    assert_int_equal(a.result.stop_index, 0);
    assert_int_equal(a.text.n, first - text);
    assert_memory_equal(str_text(&a.text), text, a.text.n);
    drop(&a, 1);
    drop(&whole, 1);
    close_engine();
}

/* More text held back than a record of the ring has room for: it leaves in pieces, in order. */
static void test_much_text_at_once(void **state)
{
    (void)state;
    static struct answer whole, a;
    struct request_params p = {.max_tokens = 480, .add_bos = true, .ignore_eos = true};
    open_ready(&(struct engine_options){0});
    submit(&whole, p, "Once");
    finish(&whole, 1);
    size_t n_stop = whole.text.n - 100; /* all but its last character is found */
    assert_true(n_stop > 700);
    p.n_stops = 1;
    p.stops = malloc(sizeof(*p.stops));
    p.n_stop = malloc(sizeof(*p.n_stop));
    p.stops[0] = strndup(str_text(&whole.text), n_stop);
    p.n_stop[0] = n_stop;
    p.stops[0][n_stop - 1] = '~';
    submit(&a, p, "Once");
    finish(&a, 1);
    expect_same(&a, &whole);
    assert_int_equal(a.n_texts_max, RING_TEXT_MAX);
    drop(&a, 1);
    drop(&whole, 1);
    close_engine();
}

/* 256 at once: all get the answer that they get alone. */
static void test_many(void **state)
{
    (void)state;
    static struct answer a[256], alone[4];
    struct request_params p = {.max_tokens = 12, .add_bos = true, .cache = true};
    open_ready(&(struct engine_options){0});
    for (uint32_t i = 0; i < 4; i++) {
        submit(&alone[i], p, prompts[i]);
        finish(&alone[i], 1);
    }
    for (uint32_t i = 0; i < 256; i++)
        submit(&a[i], p, prompts[i % 4]);
    finish(a, 256);
    for (uint32_t i = 0; i < 256; i++)
        expect_same(&a[i], &alone[i % 4]);
    drop(a, 256);
    drop(alone, 4);
    expect_nothing_held();
    close_engine();
}

static uint32_t rng = 5;
static uint32_t next_random(uint32_t below)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % below;
}

static void on_deleted(struct session_command *c) { *(bool *)c->owner = true; }

/* C10, small, and C6: submit, cancel, leave, delete at any moment; who stays gets the right answer. */
static void test_c10_at_random(void **state)
{
    (void)state;
    enum { N = 40 };
    static struct answer a[N], alone;
    uint32_t kind[N] = {0}, n_whole = 0, n_cancelled = 0;
    struct session_command command;
    bool answered = true;
    open_ready(&(struct engine_options){.kv_memory = UINT64_C(96) * 16 * 1280, .context = 256});
    struct request_params p = {.max_tokens = 30, .add_bos = true, .cache = true};
    submit(&alone, p, prompts[0]);
    finish(&alone, 1);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t i = next_random(N);
        if (!a[i].r) {
            uint32_t ids[200], n = 1 + next_random(200);
            kind[i] = next_random(3);
            struct request_params q = p;
            for (uint32_t k = 0; k < n; k++)
                ids[k] = 3 + (next_random(30) ? k % 7 : next_random(500));
            q.max_tokens = next_random(60);
            q.cache = next_random(4) != 0;
            if (kind[i] == 1) {
                q.session[0] = next_random(2) ? 'x' : 'y';
                q.mode = TIMELINE_COMPARE;
            }
            if (kind[i])
                submit_ids(&a[i], q, ids, n);
            else
                submit(&a[i], p, prompts[0]);
        } else if (next_random(3)) {
            engine_cancel(engine, a[i].r);
            kind[i] += 10;
        }
        if (answered && next_random(20) == 0) {
            command = (struct session_command){
                .verb = SESSION_DELETE, .id = "x", .done = on_deleted, .owner = &answered};
            answered = false;
            engine_session(engine, &command);
        }
        if (next_random(2))
            turn();
        for (i = 0; i < N; i++) {
            if (!a[i].done)
                continue;
            if (kind[i] == 0 || (kind[i] == 10 && a[i].result.finish == FINISH_LENGTH)) {
                expect_same(&a[i], &alone);
                n_whole++;
            }
            n_cancelled += a[i].result.finish == FINISH_CANCELLED;
            str_free(&a[i].text);
            a[i] = (struct answer){0};
        }
    }
    for (uint32_t i = 0; i < N; i++)
        while (a[i].r)
            turn();
    while (!answered)
        turn();
    drop(a, N);
    drop(&alone, 1);
    assert_true(n_whole > 20);
    assert_true(n_cancelled > 100);
    expect_nothing_held();
    close_engine();
}

/* A decode step at length t computes t + 1 scores of a head and layer. */
static void test_scores(void **state)
{
    (void)state;
    static struct answer a;
    struct engine_stats before, after;
    uint32_t ids[50];
    for (uint32_t i = 0; i < 50; i++)
        ids[i] = 3 + i;
    open_ready(&(struct engine_options){0});
    engine_stats(engine, &before);
    submit_ids(&a, (struct request_params){.max_tokens = 11}, ids, 50);
    finish(&a, 1);
    expect_nothing_held();
    engine_stats(engine, &after);
    assert_int_equal(after.scores - before.scores, 60 * 61 / 2);
    drop(&a, 1);
    close_engine();
}

static void test_idle_costs_nothing(void **state)
{
    (void)state;
    static struct answer a;
    struct rusage before, after;
    open_ready(&(struct engine_options){0});
    submit(&a, (struct request_params){.max_tokens = 5}, prompts[0]);
    finish(&a, 1);
    drop(&a, 1);
    expect_nothing_held();
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    getrusage(RUSAGE_SELF, &before);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    getrusage(RUSAGE_SELF, &after);
    long us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000L + after.ru_utime.tv_usec -
              before.ru_utime.tv_usec;
    assert_true(us < 30000);
    close_engine();
}

static void test_no_model(void **state)
{
    (void)state;
    static struct answer a;
    struct error err;
    bool answered = false;
    struct session_command c = {.verb = SESSION_LIST, .done = on_deleted, .owner = &answered};
    open_engine(&(struct engine_options){.model = "tests/golden/nothing.gguf"});
    submit_ids(&a, (struct request_params){.max_tokens = 5}, NULL, 0);
    engine_session(engine, &c);
    finish(&a, 1);
    while (!answered)
        turn();
    assert_int_equal(engine_state(engine, &err), ENGINE_FAILED);
    assert_int_equal(a.result.finish, FINISH_ERROR);
    assert_string_equal(a.result.error.text, err.text);
    assert_int_equal(c.rc, -1);
    drop(&a, 1);
    close_engine();
}

/* O1: told to stop while loading, in prefill, in decode, with requests that nobody reads. */
static void test_o1_close_at_any_time(void **state)
{
    (void)state;
    static struct answer a[8];
    for (int delay = 0; delay < 6; delay++) {
        bool answered = false;
        struct session_command c = {.verb = SESSION_LIST, .done = on_deleted, .owner = &answered};
        if (delay == 0) {
            open_engine(&(struct engine_options){0});
            close_engine();
            continue;
        }
        open_ready(&(struct engine_options){.max_running = 4, .prefill_chunk = 8});
        for (uint32_t i = 0; i < 8; i++)
            submit(&a[i], (struct request_params){.max_tokens = 400, .session = "s"}, prompts[0]);
        engine_session(engine, &c);
        for (int i = 1; i < delay; i++)
            turn();
        close_engine();
        free(c.infos);
        assert_true(answered);
        for (uint32_t i = 0; i < 8; i++)
            if (a[i].r)
                request_release(a[i].r);
        drop(a, 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),     cmocka_unit_test(test_d1_seed),
        cmocka_unit_test(test_stops),    cmocka_unit_test(test_much_text_at_once),
        cmocka_unit_test(test_many),     cmocka_unit_test(test_c10_at_random),
        cmocka_unit_test(test_scores),   cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_no_model), cmocka_unit_test(test_o1_close_at_any_time),
    };
    log_set_level(LOG_ERROR);
    thread_enter_loop();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
