/* Page tables: cover, share, copy, close; every page and promise comes back. */
#include "core/base/mem.h"
#include "core/kv/seq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct kv_pool *pool_of(uint32_t n_pages)
{
    struct kv_geometry g = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .page_tokens = 16, .type = KV_F32};
    struct kv_pool *pool = kv_pool_open(&g, n_pages, NULL);
    assert_non_null(pool);
    return pool;
}

static void expect(const struct kv_pool *pool, uint32_t n_free, uint32_t n_reserved)
{
    struct kv_count c;
    kv_count(pool, &c);
    assert_int_equal(c.n_free, n_free);
    assert_int_equal(c.n_reserved, n_reserved);
}

static void test_covers_what_it_reserved(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(4);
    struct seq s;
    assert_int_equal(seq_open(&s, pool, 40, NULL), 0);
    assert_int_equal(s.cap_pages, 3);
    assert_true(seq_reserve(&s, pool, 40));
    assert_true(seq_reserve(&s, pool, 33)); /* has them */
    expect(pool, 4, 3);
    seq_cover(&s, pool, 1);
    seq_cover(&s, pool, 16);
    assert_int_equal(s.n_pages, 1);
    seq_cover(&s, pool, 17);
    assert_int_equal(s.n_pages, 2);
    expect(pool, 2, 1);
    seq_close(&s, pool);
    expect(pool, 4, 0);
    seq_close(&s, pool);
    kv_pool_close(pool);
}

static void test_refuses_what_is_not_there(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(2);
    struct seq a, b;
    seq_open(&a, pool, 32, NULL);
    seq_open(&b, pool, 32, NULL);
    assert_true(seq_reserve(&a, pool, 32));
    assert_false(seq_reserve(&b, pool, 1));
    assert_int_equal(b.n_reserved, 0);
    seq_close(&a, pool);
    assert_true(seq_reserve(&b, pool, 32));
    seq_close(&b, pool);
    expect(pool, 2, 0);
    kv_pool_close(pool);
}

static void test_shares_and_copies(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(4);
    struct seq a, b;
    seq_open(&a, pool, 32, NULL);
    seq_open(&b, pool, 40, NULL);
    assert_true(seq_reserve(&a, pool, 32));
    seq_cover(&a, pool, 32);
    a.n_tokens = 32;
    float *k = (float *)kv_page_k(pool, a.pages[1], 0, 0);
    for (int i = 0; i < 2 * 8 * 16; i++)
        k[i] = (float)i;
    assert_true(seq_share(&b, pool, a.pages[0]));
    assert_int_equal(b.n_tokens, 16);
    assert_int_equal(kv_page_refs(pool, a.pages[0]), 2);
    assert_true(seq_reserve(&b, pool, 40)); /* two more */
    expect(pool, 2, 2);
    seq_copy(&b, pool, a.pages[1], 7);
    assert_int_equal(b.n_tokens, 23);
    assert_int_not_equal(b.pages[1], a.pages[1]);
    const float *copy = (const float *)kv_page_k(pool, b.pages[1], 0, 0);
    for (int d = 0; d < 8; d++)
        assert_memory_equal(copy + d * 16, k + d * 16, 7 * sizeof(float));
    assert_memory_equal(copy + 8 * 16, k + 8 * 16, 7 * 8 * sizeof(float)); /* V */
    seq_close(&a, pool);
    expect(pool, 2, 1);
    seq_close(&b, pool);
    expect(pool, 4, 0);
    kv_pool_close(pool);
}

/* A shared page takes the place of one that was promised. */
static void test_share_gives_the_promise_back(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(3);
    struct seq a, b;
    seq_open(&a, pool, 16, NULL);
    seq_open(&b, pool, 32, NULL);
    assert_true(seq_reserve(&a, pool, 16));
    seq_cover(&a, pool, 16);
    assert_true(seq_reserve(&b, pool, 32));
    expect(pool, 2, 2);
    assert_true(seq_share(&b, pool, a.pages[0]));
    expect(pool, 2, 1);
    seq_cover(&b, pool, 32);
    expect(pool, 1, 0);
    seq_close(&b, pool);
    seq_close(&a, pool);
    expect(pool, 3, 0);
    kv_pool_close(pool);
}

static struct kv_pool *evicting;
static void evict(void *arg, uint32_t page)
{
    (void)arg;
    kv_page_forget(evicting, page);
}

/* The page that is copied from is the only one left: it becomes the copy, rows and all. */
static void test_copy_from_the_page_it_takes(void **state)
{
    (void)state;
    struct kv_pool *pool = evicting = pool_of(1);
    struct seq a, b;
    kv_pool_on_evict(pool, evict, NULL);
    seq_open(&a, pool, 16, NULL);
    seq_open(&b, pool, 16, NULL);
    assert_true(seq_reserve(&a, pool, 16));
    seq_cover(&a, pool, 16);
    uint32_t page = a.pages[0];
    memset(kv_page_k(pool, page, 0, 0), 42, pool->page_bytes);
    kv_page_publish(pool, page);
    seq_close(&a, pool);
    assert_true(seq_reserve(&b, pool, 16));
    seq_copy(&b, pool, page, 9);
    assert_int_equal(b.pages[0], page);
    assert_int_equal(*kv_page_v(pool, page, 0, 0), 42);
    seq_close(&b, pool);
    expect(pool, 1, 0);
    kv_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covers_what_it_reserved),
        cmocka_unit_test(test_refuses_what_is_not_there),
        cmocka_unit_test(test_shares_and_copies),
        cmocka_unit_test(test_share_gives_the_promise_back),
        cmocka_unit_test(test_copy_from_the_page_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
