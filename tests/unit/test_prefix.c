/* The index of computed prefixes: what is found is what was asked for, token by token; tenants do not
 * meet; the same tokens are kept once; pages go in an order that never orphans one.
 *
 * "Computing" a position here writes its token into its page, so that every check reads memory. */
#include "core/base/mem.h"
#include "core/kv/prefix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PAGE = 16 };

struct cache {
    struct kv_pool *pool;
    struct prefix *p;
    uint32_t root;
};

static struct cache cache_of(uint32_t n_pages)
{
    struct kv_geometry g = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .page_tokens = PAGE, .type = KV_F32};
    struct cache c = {.pool = kv_pool_open(&g, n_pages, NULL)};
    c.p = prefix_open(c.pool, NULL);
    assert_non_null(c.p);
    c.root = prefix_root(c.p, "", NULL);
    return c;
}

static void cache_close(struct cache *c)
{
    struct kv_count count;
    kv_count(c->pool, &count);
    assert_int_equal(count.n_used, 0);
    assert_int_equal(count.n_reserved, 0);
    prefix_close(c->p);
    kv_pool_close(c->pool);
}

static float *slot(const struct cache *c, const struct seq *s, uint32_t pos)
{
    return (float *)kv_page_k(c->pool, s->pages[pos / PAGE], 0, 0) + pos % PAGE;
}

/* Runs a timeline the way the scheduler does, computing from what the cache has; -1: no room. */
static int64_t run(struct cache *c, uint32_t root, const uint32_t *ids, uint32_t n, struct seq *s)
{
    assert_int_equal(seq_open(s, c->pool, n, NULL), 0);
    uint32_t gained = prefix_share(c->p, root, ids, n - 1, s);
    if (!seq_reserve(s, c->pool, n)) {
        seq_close(s, c->pool);
        return -1;
    }
    gained += prefix_copy(c->p, root, ids, n - 1, s);
    assert_int_equal(gained, s->n_tokens);
    for (uint32_t pos = 0; pos < gained; pos++)
        assert_int_equal((uint32_t)*slot(c, s, pos), ids[pos]);
    seq_cover(s, c->pool, n);
    for (uint32_t pos = gained; pos < n; pos++) {
        assert_int_equal(kv_page_refs(c->pool, s->pages[pos / PAGE]), 1);
        *slot(c, s, pos) = (float)ids[pos];
    }
    s->n_tokens = n;
    prefix_publish(c->p, root, ids, s);
    return gained;
}

static int64_t run_whole(struct cache *c, uint32_t root, const uint32_t *ids, uint32_t n)
{
    struct seq s;
    int64_t gained = run(c, root, ids, n, &s);
    if (gained >= 0)
        prefix_publish_tail(c->p, root, ids, &s);
    seq_close(&s, c->pool);
    return gained;
}

static void test_second_computes_one_token(void **state)
{
    (void)state;
    uint32_t ids[100];
    for (uint32_t i = 0; i < 100; i++)
        ids[i] = i + 7;
    for (uint32_t n = 1; n <= 100; n++) {
        struct cache c = cache_of(16);
        assert_int_equal(run_whole(&c, c.root, ids, n), 0);
        assert_int_equal(prefix_held(c.p, c.root, ids, n), n);
        assert_int_equal(run_whole(&c, c.root, ids, n), n - 1);
        cache_close(&c);
    }
}

static void test_takes_the_common_part(void **state)
{
    (void)state;
    struct cache c = cache_of(16);
    uint32_t a[60], b[60];
    for (uint32_t i = 0; i < 60; i++)
        a[i] = b[i] = i;
    b[41] = 999;
    run_whole(&c, c.root, a, 60);
    assert_int_equal(run_whole(&c, c.root, b, 60), 41);
    assert_int_equal(run_whole(&c, c.root, a, 60), 59);
    assert_int_equal(run_whole(&c, c.root, b, 60), 59);
    b[0] = 999;
    assert_int_equal(run_whole(&c, c.root, b, 60), 0);
    cache_close(&c);
}

static void test_tenants_do_not_meet(void **state)
{
    (void)state;
    struct cache c = cache_of(16);
    uint32_t ids[40] = {0}, other = prefix_root(c.p, "other", NULL);
    run_whole(&c, c.root, ids, 40);
    assert_int_equal(run_whole(&c, other, ids, 40), 0);
    assert_int_equal(run_whole(&c, other, ids, 40), 39);
    assert_int_equal(prefix_root(c.p, "other", NULL), other);
    /* the tree outlives its users while pages are in it */
    prefix_root_drop(c.p, other);
    prefix_root_drop(c.p, other);
    assert_int_equal(prefix_root(c.p, "other", NULL), other);
    assert_int_equal(run_whole(&c, other, ids, 40), 39);
    cache_close(&c);
}

/* No root: neither found nor kept. */
static void test_without_cache(void **state)
{
    (void)state;
    struct cache c = cache_of(4);
    struct kv_count count;
    uint32_t ids[40] = {0};
    assert_int_equal(run_whole(&c, PREFIX_NONE, ids, 40), 0);
    assert_int_equal(run_whole(&c, PREFIX_NONE, ids, 40), 0);
    kv_count(c.pool, &count);
    assert_int_equal(count.n_free, 4);
    cache_close(&c);
}

/* Two that compute the same at once keep one copy; both may end in any order. */
static void test_same_tokens_once(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct cache c = cache_of(8);
        struct kv_count count;
        struct seq s[2];
        uint32_t ids[40];
        for (uint32_t i = 0; i < 40; i++)
            ids[i] = i;
        for (int i = 0; i < 2; i++) { /* neither finds anything: both compute */
            seq_open(&s[i], c.pool, 40, NULL);
            assert_true(seq_reserve(&s[i], c.pool, 40));
            seq_cover(&s[i], c.pool, 40);
            s[i].n_tokens = 40;
        }
        prefix_publish(c.p, c.root, ids, &s[0]);
        prefix_publish(c.p, c.root, ids, &s[1]);
        assert_int_equal(s[0].pages[0], s[1].pages[0]);
        assert_int_equal(s[0].pages[1], s[1].pages[1]);
        assert_int_not_equal(s[0].pages[2], s[1].pages[2]);
        kv_count(c.pool, &count);
        assert_int_equal(count.n_used, 4);
        seq_close(&s[order], c.pool);
        seq_close(&s[!order], c.pool);
        kv_count(c.pool, &count);
        assert_int_equal(count.n_cached, 2);
        cache_close(&c);
    }
}

/* Turn after turn of one chat: its old ends are not kept beside the new ones. */
static void test_old_ends_go(void **state)
{
    (void)state;
    struct cache c = cache_of(8);
    struct kv_count count;
    uint32_t ids[64];
    for (uint32_t i = 0; i < 64; i++)
        ids[i] = i;
    for (uint32_t n = 3; n <= 60; n += 3)
        assert_int_equal(run_whole(&c, c.root, ids, n), n > 3 ? n - 3 : 0);
    kv_count(c.pool, &count);
    assert_int_equal(count.n_cached, 4);
    cache_close(&c);
}

static uint32_t next_random(uint32_t *x) { return *x = *x * 1664525u + 1013904223u, *x >> 8; }

/* Many timelines over few tokens in a small pool, several open at once: contents are checked by
 * run(), the order of eviction by an ASSERT in prefix.c, the books at the end. */
static void test_at_random(void **state)
{
    (void)state;
    struct cache c = cache_of(24);
    uint32_t x = 1, ids[4][130], n[4], hits = 0, refused = 0;
    struct seq s[4] = {0};
    uint32_t roots[3] = {c.root, prefix_root(c.p, "b", NULL), PREFIX_NONE}, root[4] = {0};
    for (int round = 0; round < 20000; round++) {
        uint32_t i = next_random(&x) % 4;
        if (s[i].pages) {
            if (next_random(&x) % 4)
                prefix_publish_tail(c.p, root[i], ids[i], &s[i]);
            seq_close(&s[i], c.pool);
            continue;
        }
        n[i] = 1 + next_random(&x) % 130;
        root[i] = roots[next_random(&x) % 3];
        for (uint32_t k = 0; k < n[i]; k++) /* long common beginnings, forks anywhere */
            ids[i][k] = next_random(&x) % 30 ? 1 : next_random(&x) % 3;
        int64_t gained = run(&c, root[i], ids[i], n[i], &s[i]);
        hits += gained > 0;
        refused += gained < 0;
    }
    for (int i = 0; i < 4; i++)
        seq_close(&s[i], c.pool);
    assert_true(hits > 1000);
    assert_true(refused > 10);
    cache_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_computes_one_token),
        cmocka_unit_test(test_takes_the_common_part),
        cmocka_unit_test(test_tenants_do_not_meet),
        cmocka_unit_test(test_without_cache),
        cmocka_unit_test(test_same_tokens_once),
        cmocka_unit_test(test_old_ends_go),
        cmocka_unit_test(test_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
