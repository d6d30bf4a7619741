/* core/base: UTF-8, strings, errors, log values, workers, what a control group leaves. */
#include "core/base/cgroup.h"
#include "core/base/clock.h"
#include "core/base/crowd.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/thread.h"
#include "core/base/utf8.h"
#include "core/base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void utf8_round_trip(void **state)
{
    (void)state;
    char b[4];
    uint32_t back;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        int n = utf8_encode(cp, b);
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        assert_int_equal(utf8_decode(b, (size_t)n, &back), surrogate ? -1 : n);
        if (!surrogate)
            assert_int_equal(back, cp);
        for (int k = 1; k < n && !surrogate; k++)
            assert_int_equal(utf8_decode(b, (size_t)k, &back), 0);
    }
}

static void utf8_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",         "\xC0\x80",         "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5\x80",
        "\xF4\x90\x80", "\xF0\x80\x80\x80", "\xFF",     "a\xC3",        "\xE4\xBD"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    assert_true(utf8_valid("a\0b \xF0\x9F\x98\x80", 8));
}

static void utf8_whole_cuts(void **state)
{
    (void)state;
    const char *s = "x\xF0\x9F\x98\x80"; /* x and a four-byte character */
    size_t want[] = {0, 1, 1, 1, 1, 5};
    for (size_t n = 0; n <= 5; n++)
        assert_int_equal(utf8_whole(s, n), want[n]);
    assert_int_equal(utf8_whole("\x80\x80\x80\x80", 4), 4); /* junk is not a beginning */
}

static void str_grows(void **state)
{
    (void)state;
    struct str b = {0};
    assert_string_equal(str_text(&b), "");
    for (int i = 0; i < 1000; i++)
        str_addf(&b, "%d,", i);
    assert_int_equal(b.n, 3890);
    assert_memory_equal(b.s + b.n - 4, "999,", 5);
    str_clear(&b);
    str_add(&b, "a\0b", 3);
    assert_int_equal(b.n, 3);
    assert_false(b.failed);
    str_free(&b);
}

static void error_texts(void **state)
{
    (void)state;
    struct error err;
    char big[2000];
    memset(big, 'x', sizeof(big));
    memcpy(big + 509, "\xE4\xBD\xA0", 3); /* lies across the end of err.text */
    big[sizeof(big) - 1] = '\0';
    assert_int_equal(error_set(&err, ERR_FORMAT, "%s", big), -1);
    assert_true(utf8_valid(err.text, strlen(err.text)));
    assert_int_equal(strlen(err.text), 509);
    error_set_context(&err, 5000, 4096);
    assert_string_equal(err.text, "This model's maximum context length is 4096 tokens, the prompt "
                                  "has 5000");
    assert_int_equal(error_http_status(err.code), 400);
    assert_string_equal(error_name(err.code), "context_length_exceeded");
    error_set(&err, ERR_BUSY, NULL);
    assert_int_equal(error_http_status(err.code), 429);
    assert_int_equal(error_set(NULL, ERR_BUSY, NULL), -1);
}

static void log_values(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(log_quote("plain", out, sizeof(out)), "plain");
    assert_string_equal(log_quote("", out, sizeof(out)), "\"\"");
    assert_string_equal(log_quote("a b\n\"\x01", out, sizeof(out)), "\"a b\\n\\\"\\x01\"");
    assert_string_equal(log_quote("\xff"
                                  "a\xc3\xa9\xf0\x9f",
                                  out, sizeof(out)),
                        "\"\\xffa\xc3\xa9\\xf0\\x9f\"");
    log_quote("a very long value with spaces that is cut somewhere", out, sizeof(out));
    assert_true(strlen(out) < sizeof(out));
    assert_int_equal(out[strlen(out) - 1], '"');
}

static void mem_checks(void **state)
{
    (void)state;
    assert_null(mem_grow(NULL, SIZE_MAX / 2, 4));
    uint64_t before = mem_held(MEM_KV);
    for (size_t n = 1; n < 9 << 20; n = n * 3 + 1) {
        unsigned char *p = mem_big_new(n, MEM_KV);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal(p[0] | p[n - 1], 0);
        p[n - 1] = 1;
        assert_int_equal(mem_held(MEM_KV), before + n);
        mem_big_free(p, n, MEM_KV);
    }
    assert_int_equal(mem_held(MEM_KV), before);
    assert_true(mem_available() > 1 << 20);
}

enum { N_WORKERS = 4, N_ROUNDS = 200, N_ITEMS = 203, PATIENCE_MS = 30000 };

/* Tables of N_ITEMS, each row computed from the one before by whoever takes part. */
struct meeting {
    uint32_t row[N_ROUNDS + 1][N_ITEMS];             /* row r: r in every place */
    atomic_uint taken[N_WORKERS], missed[N_WORKERS]; /* items; sections without the worker */
    atomic_uint wrong;
    uint32_t spin; /* each item takes so long */
    bool late;     /* worker 0 waits for the others to take all */
};

static uint32_t n_taken(struct meeting *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_WORKERS; i++)
        n += atomic_load(&m->taken[i]);
    return n;
}

static void take_item(struct meeting *m, uint32_t round, uint32_t item)
{
    const uint32_t *last = m->row[round - 1];
    volatile uint32_t spin = m->spin;
    while (spin)
        spin = spin - 1;
    if (m->row[round][item] || last[item] != round - 1 || last[N_ITEMS - 1 - item] != round - 1)
        atomic_fetch_add(&m->wrong, 1);
    m->row[round][item] = round;
}

static void meet(const struct worker *w, void *arg)
{
    struct meeting *m = arg;
    for (uint32_t round = 1; round <= N_ROUNDS; round++) {
        struct share share = share_begin(w, N_ITEMS, 1 + round % 7);
        share.parts = round % 3 ? share.parts : round % 5 + 1;
        double until = clock_ms() + (m->late && w->id == 0 ? 10 : 0);
        while (clock_ms() < until && n_taken(m) < round * N_ITEMS)
            ;
        if (!worker_takes(w))
            atomic_fetch_add(&m->missed[w->id], 1);
        for (uint32_t i, end; share_take(&share, &i, &end);)
            for (; i < end; i++) {
                take_item(m, round, i);
                atomic_fetch_add(&m->taken[w->id], 1);
            }
        worker_barrier(w);
    }
}

static void meet_once(struct workers *pool, struct meeting *m)
{
    uint32_t before = workers_barriers(pool);
    memset(m->row, 0, sizeof(m->row));
    memset(m->taken, 0, sizeof(m->taken));
    workers_run(pool, meet, m);
    assert_int_equal(atomic_load(&m->wrong), 0);
    assert_int_equal(n_taken(m), N_ROUNDS * N_ITEMS);
    assert_int_equal(workers_barriers(pool) - before, N_ROUNDS);
    for (uint32_t i = 0; i < N_ITEMS; i++)
        assert_int_equal(m->row[N_ROUNDS][i], N_ROUNDS);
}

/* Whoever comes: each item is taken once, after all of the row before; and all come in the end. */
static void workers_meet(void **state)
{
    static struct meeting m;
    (void)state;
    for (uint32_t n = 1; n <= N_WORKERS; n++) {
        struct error err;
        struct workers *pool = workers_open(n, &err);
        double until = clock_ms() + PATIENCE_MS;
        assert_non_null(pool);
        assert_int_equal(workers_count(pool), n);
        for (uint32_t come = 0, run = 0; run < 3 || come < n; run++) {
            memset(&m, 0, sizeof(m));
            meet_once(pool, &m);
            for (uint32_t i = come = 0; i < n; i++)
                come += atomic_load(&m.taken[i]) > 0;
            assert_true(clock_ms() < until);
        }
        workers_close(pool);
    }
    assert_true(thread_processors() >= 1);
}

/* What one does not take in time the others do. */
static void shares_are_stolen(void **state)
{
    static struct meeting m;
    (void)state;
    for (uint32_t n = 2; n <= N_WORKERS; n++) {
        struct error err;
        struct workers *pool = workers_open(n, &err);
        double until = clock_ms() + PATIENCE_MS;
        assert_non_null(pool);
        do {
            memset(&m, 0, sizeof(m));
            m.late = true;
            meet_once(pool, &m);
            assert_true(clock_ms() < until);
        } while (atomic_load(&m.taken[0]) > N_ROUNDS * N_ITEMS / 10);
        workers_close(pool);
    }
}

/* Guests leave and come back all the time, in the middle of runs, and nothing is lost or done twice. */
static void guests_come_and_go(void **state)
{
    static struct meeting m;
    (void)state;
    for (uint32_t n = 2; n <= N_WORKERS; n++)
        for (uint32_t n_hosts = 1; n_hosts < n; n_hosts++) {
            struct error err;
            struct workers *pool = workers_open(n, &err);
            double until = clock_ms() + PATIENCE_MS;
            uint32_t run = 0, took = 0, missed = 0;
            assert_non_null(pool);
            for (; run < 50 || took == 0 || missed == 0; run++) {
                memset(&m, 0, sizeof(m));
                m.spin = 20;
                workers_guests(pool, n_hosts, 20000, 30000);
                meet_once(pool, &m);
                assert_int_equal(atomic_load(&m.missed[0]), 0);
                uint32_t mine = atomic_load(&m.taken[n - 1]),
                         not_mine = atomic_load(&m.missed[n - 1]);
                took += mine > 0 && not_mine > 0; /* both in one run */
                missed += not_mine;
                assert_true(clock_ms() < until);
            }
            workers_close(pool);
        }
}

/* Without a pool: each worker its slice. */
static void shares_alone(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 3; id++) {
        struct worker w = {id, 3, NULL};
        struct share s = share_begin(&w, 10, 1);
        uint32_t begin, end, b, e;
        worker_slice(&w, 10, &begin, &end);
        assert_true(share_take(&s, &b, &e) && b == begin && e == end);
        assert_false(share_take(&s, &b, &e));
    }
}

struct chunks {
    uint32_t n_items, least, parts; /* parts 0: as share_begin sets them */
    uint32_t size[32], n;
};

static void note_chunks(const struct worker *w, void *arg)
{
    struct chunks *c = arg;
    struct share s = share_begin(w, c->n_items, c->least);
    s.parts = c->parts ? c->parts : s.parts;
    c->n = 0;
    for (uint32_t begin, end, at = 0; share_take(&s, &begin, &end); at = end) {
        assert_int_equal(begin, at);
        assert_true(c->n < 31);
        c->size[c->n++] = end - begin;
    }
}

/* Half of what is left each, but one of `parts` at most and `least` at least. */
static void chunks_halve(void **state)
{
    static struct {
        struct chunks in;
        uint32_t want[32]; /* 0: the end */
    } cases[] = {
        {{.n_items = 0, .least = 1, .parts = 1}, {0}},
        {{.n_items = 1, .least = 1, .parts = 1}, {1}},
        {{.n_items = 24, .least = 1, .parts = 1}, {12, 6, 3, 2, 1}},
        {{.n_items = 24, .least = 1, .parts = 3}, {8, 8, 4, 2, 1, 1}},
        {{.n_items = 24, .least = 5, .parts = 1}, {12, 6, 5, 1}},
        {{.n_items = 3, .least = 8, .parts = 1}, {3}},
        {{.n_items = 64, .least = 1}, {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2, 1, 1}},
    };
    struct error err;
    struct workers *pool = workers_open(1, &err);
    (void)state;
    assert_non_null(pool);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chunks *c = &cases[i].in;
        uint32_t n = 0;
        workers_run(pool, note_chunks, c);
        for (; n < c->n; n++)
            assert_int_equal(c->size[n], cases[i].want[n]);
        assert_int_equal(cases[i].want[n], 0);
    }
    workers_close(pool);
}

static void *keep_busy(void *arg)
{
    atomic_bool *stop = arg;
    while (!atomic_load(stop))
        ;
    return NULL;
}

/* Only what another thread had of the processor counts, not where the time went otherwise. */
static void threads_wait_for_each_other(void **state)
{
    enum { MS = 1000000 };
    cpu_set_t before, one;
    pthread_t other;
    atomic_bool stop = false;
    double until = clock_ms() + PATIENCE_MS;
    uint64_t slept, waited = thread_waited_ns();
    (void)state;
    if (waited == UINT64_MAX)
        skip();
    do { /* others that are busy here may take some of it */
        slept = thread_waited_ns();
        usleep(20000);
        slept = thread_waited_ns() - slept;
        assert_true(clock_ms() < until);
    } while (slept > 10 * MS);
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof(one), &one), 0);
    assert_int_equal(pthread_create(&other, NULL, keep_busy, &stop), 0); /* on the same one */
    waited = thread_waited_ns();
    while (thread_waited_ns() - waited < 30 * MS)
        assert_true(clock_ms() < until);
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
}

/* Beside a neighbour one worker becomes a guest, and is tried again, later each time that did not
 * help. */
static void crowd_makes_guests(void **state)
{
    enum { MS = 1000000 };
    static const uint64_t calm[3] = {1 * MS, 0, 1 * MS}, one[3] = {0, 9 * MS, 0},
                          all[3] = {9 * MS, 9 * MS, 9 * MS}, two[3] = {8 * MS, 0, 0};
    uint64_t now = 0;
    struct crowd c;
    (void)state;
    crowd_begin(&c, 3);
    assert_true(c.n_hosts == 3 && c.calm);
    assert_false(crowd_look(&c, one, 5 * MS, now)); /* too early to tell */
    assert_true(crowd_look(&c, calm, 20 * MS, now) && c.n_hosts == 3 && c.calm);
    for (int i = 0; i < 10; i++) { /* now and then a time slice is no reason */
        assert_true(crowd_look(&c, one, 20 * MS, now) && c.n_hosts == 3 && c.calm);
        assert_true(crowd_look(&c, calm, 20 * MS, now) && c.n_hosts == 3 && c.calm);
    }
    for (int i = 0; i < 2; i++)
        assert_true(crowd_look(&c, one, 20 * MS, now) && c.n_hosts == 3 && c.moved == 3);
    assert_true(crowd_look(&c, one, 20 * MS, now) && c.n_hosts == 2 && !c.calm);
    assert_int_equal(c.moved, 1); /* becomes worker 2's processor */
    uint64_t rest = c.rest_ns;
    assert_true(crowd_look(&c, calm, 20 * MS, now + rest - 1) && c.n_hosts == 2 && c.moved == 3);
    now += rest;
    assert_true(crowd_look(&c, calm, 20 * MS, now) && c.n_hosts == 3 && !c.calm);
    assert_true(crowd_look(&c, one, 20 * MS, now) && c.n_hosts == 2);
    assert_int_equal(c.rest_ns, 2 * rest);
    assert_true(crowd_look(&c, two, 20 * MS, now) && c.n_hosts == 1 && c.moved == 0);
    for (int i = 0; i < 10;
         i++) /* what guests lose is their own affair, and others are no better off */
        assert_true(crowd_look(&c, i % 2 ? all : one, 20 * MS, now) && c.n_hosts == 1 &&
                    c.moved == 3);
    rest = c.rest_ns; /* the neighbour came to the last host: places are changed */
    assert_true(crowd_look(&c, two, 20 * MS, now) && c.n_hosts == 1 && c.moved == 0);
    assert_int_equal(c.rest_ns, rest);
    now += c.rest_ns;
    assert_true(crowd_look(&c, calm, 20 * MS, now) && c.n_hosts == 2);
    assert_true(crowd_look(&c, calm, 20 * MS, now) && c.n_hosts == 3 && !c.calm);
    assert_true(crowd_look(&c, calm, 20 * MS, now) && c.n_hosts == 3 && c.calm);
    for (int i = 0; i < 3; i++) /* whoever lost */
        assert_true(crowd_look(&c, all, 20 * MS, now) && c.n_hosts == 3 - (i == 2));
    assert_true(c.rest_ns < rest); /* all anew */
}

static void slices_cover(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 7; n++)
        for (uint32_t items = 0; items < 40; items++) {
            uint32_t next = 0;
            for (uint32_t id = 0; id < n; id++) {
                uint32_t begin, end;
                struct worker w = {id, n, NULL};
                worker_slice(&w, items, &begin, &end);
                assert_int_equal(begin, next);
                next = end;
            }
            assert_int_equal(next, items);
        }
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

/* What a group may still take: a file that was read is in its use, but not in the way. */
static void group_memory(void **state)
{
    (void)state;
    static const struct {
        const char *limit_name, *limit, *use_name, *use, *stat;
        uint64_t left;
    } cases[] = {
        {"memory.max", "1000\n", "memory.current", "700\n", "anon 1\ninactive_file 600\n", 900},
        {"memory.max", "1000\n", "memory.current", "700\n", "active_file 600\n", 300},
        {"memory.max", "1000\n", "memory.current", "1200\n", NULL, 0},
        {"memory.max", "1000\n", "memory.current", NULL, "inactive_file 600\n", 1000},
        {"memory.max", "max\n", "memory.current", "700\n", NULL, UINT64_MAX},
        {"memory.limit_in_bytes", "1000\n", "memory.usage_in_bytes", "700\n",
         "inactive_file 5\ntotal_inactive_file 50\n", 350},
        {"memory.limit_in_bytes", "9223372036854771712\n", "memory.usage_in_bytes", "10\n",
         "total_inactive_file 9000\n", UINT64_C(9223372036854771712)},
    };
    char folder[] = "/tmp/attend-cgroup-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        put_file(folder, cases[i].limit_name, cases[i].limit);
        put_file(folder, cases[i].use_name, cases[i].use);
        put_file(folder, "memory.stat", cases[i].stat);
        assert_true(cgroup_memory_left_in(folder) == cases[i].left);
        put_file(folder, cases[i].limit_name, NULL);
        put_file(folder, cases[i].use_name, NULL);
        put_file(folder, "memory.stat", NULL);
    }
    assert_true(cgroup_memory_left_in(folder) == UINT64_MAX);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_round_trip),
        cmocka_unit_test(utf8_refuses),
        cmocka_unit_test(utf8_whole_cuts),
        cmocka_unit_test(str_grows),
        cmocka_unit_test(error_texts),
        cmocka_unit_test(log_values),
        cmocka_unit_test(mem_checks),
        cmocka_unit_test(workers_meet),
        cmocka_unit_test(shares_are_stolen),
        cmocka_unit_test(guests_come_and_go),
        cmocka_unit_test(shares_alone),
        cmocka_unit_test(chunks_halve),
        cmocka_unit_test(threads_wait_for_each_other),
        cmocka_unit_test(crowd_makes_guests),
        cmocka_unit_test(slices_cover),
        cmocka_unit_test(group_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
