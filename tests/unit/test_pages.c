/* Pages and page tables: who owns what, promises, the order in which cached pages go. */
#include "core/base/mem.h"
#include "core/kv/seq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct kv_geometry geometry = {
    .n_layers = 2, .n_kv_heads = 3, .head_dim = 4, .page_tokens = 16, .type = KV_F16};

static struct kv_pool *pool_of(uint32_t n_pages)
{
    struct kv_pool *pool = kv_pool_open(&geometry, n_pages, NULL);
    assert_non_null(pool);
    return pool;
}

static void expect(const struct kv_pool *pool, uint32_t n_free, uint32_t n_cached, uint32_t n_used,
                   uint32_t n_reserved)
{
    struct kv_count c;
    kv_count(pool, &c);
    assert_int_equal(c.n_free, n_free);
    assert_int_equal(c.n_cached, n_cached);
    assert_int_equal(c.n_used, n_used);
    assert_int_equal(c.n_reserved, n_reserved);
}

static void test_sizes(void **state)
{
    (void)state;
    struct kv_geometry smollm2 = {
        .n_layers = 30, .n_kv_heads = 3, .head_dim = 64, .page_tokens = 64, .type = KV_F16};
    assert_int_equal(kv_token_bytes(&smollm2), 23040);
    smollm2.type = KV_F32;
    assert_int_equal(kv_token_bytes(&smollm2), 46080);
    smollm2.type = KV_Q8;
    assert_int_equal(kv_token_bytes(&smollm2), 12240);
    struct kv_pool *pool = pool_of(3);
    assert_int_equal(pool->page_bytes, 16 * kv_token_bytes(&geometry));
    /* the last value of V of the last head is the last of the page */
    assert_ptr_equal(kv_page_v(pool, 0, 1, 2) + pool->head_bytes, kv_page_k(pool, 1, 0, 0));
    assert_int_equal(kv_pages_of(pool, 0), 0);
    assert_int_equal(kv_pages_of(pool, 16), 1);
    assert_int_equal(kv_pages_of(pool, 17), 2);
    kv_pool_close(pool);
}

static void test_refuses_shapes(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 8, 15, 17, 40, 272, 1u << 31};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct kv_geometry g = geometry;
        struct error err = {0};
        g.page_tokens = bad[i];
        assert_null(kv_pool_open(&g, 1, &err));
        assert_int_equal(err.code, ERR_INVALID);
    }
    struct kv_geometry g = geometry;
    struct error err = {0};
    g.n_layers = g.n_kv_heads = g.head_dim = 65536;
    assert_null(kv_pool_open(&g, UINT32_MAX - 2, &err)); /* the product overflows */
    assert_int_equal(err.code, ERR_INVALID);
    assert_null(kv_pool_open(&geometry, 0, &err));
}

static void test_promises(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(4);
    assert_true(kv_reserve(pool, 3));
    assert_false(kv_reserve(pool, 2));
    expect(pool, 4, 0, 0, 3);
    uint32_t a = kv_page_take(pool), b = kv_page_take(pool);
    assert_int_not_equal(a, b);
    expect(pool, 2, 0, 2, 1);
    assert_true(kv_reserve(pool, 1));
    kv_unreserve(pool, 2);
    kv_page_share(pool, a);
    kv_page_drop(pool, a);
    expect(pool, 2, 0, 2, 0);
    kv_page_drop(pool, a);
    kv_page_drop(pool, b);
    expect(pool, 4, 0, 0, 0);
    kv_pool_close(pool);
}

struct evictions {
    struct kv_pool *pool;
    uint32_t pages[8], n;
};

static void on_evict(void *arg, uint32_t page)
{
    struct evictions *e = arg;
    e->pages[e->n++] = page;
    kv_page_forget(e->pool, page);
}

static void test_cached_pages_go_oldest_first(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(3);
    struct evictions e = {.pool = pool};
    uint32_t page[3];
    kv_pool_on_evict(pool, on_evict, &e);
    assert_true(kv_reserve(pool, 3));
    for (int i = 0; i < 3; i++)
        page[i] = kv_page_take(pool);
    for (int i = 0; i < 3; i++) {
        kv_page_publish(pool, page[i]);
        kv_page_drop(pool, page[i]);
    }
    expect(pool, 0, 3, 0, 0);
    kv_page_touch(pool, page[0]); /* now page 1 is the oldest, then 2, then 0 */
    assert_true(kv_reserve(pool, 2));
    assert_int_equal(kv_page_take(pool), page[1]);
    assert_true(kv_page_share(pool, page[0]));  /* fits: 2 is promised, 0 is not */
    assert_false(kv_page_share(pool, page[2])); /* would break the promise */
    expect(pool, 0, 1, 2, 1);
    assert_int_equal(kv_page_take(pool), page[2]);
    assert_int_equal(e.n, 2);
    kv_page_drop(pool, page[0]);
    expect(pool, 0, 1, 2, 0);
    kv_page_forget(pool, page[0]);
    expect(pool, 1, 0, 2, 0);
    kv_page_drop(pool, page[1]);
    kv_page_drop(pool, page[2]);
    expect(pool, 3, 0, 0, 0);
    kv_pool_close(pool);
}

static void fill(struct kv_pool *pool, uint32_t page, uint8_t salt)
{
    uint8_t *bytes = pool->memory + page * pool->page_bytes;
    for (size_t i = 0; i < pool->page_bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + salt);
}

/* A page that was in use is taken before one whose memory nobody has written yet. */
static void test_free_pages_go_newest_first(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(5);
    assert_true(kv_reserve(pool, 5));
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(kv_page_take(pool), i);
    kv_page_drop(pool, 1);
    kv_page_publish(pool, 2);
    kv_page_drop(pool, 2); /* can still be found: last of all */
    assert_int_equal(kv_page_take(pool), 1);
    kv_page_drop(pool, 0);
    kv_page_forget(pool, 2);
    assert_int_equal(kv_page_take(pool), 2);
    kv_pool_close(pool);
}

static void test_copies_rows(void **state)
{
    (void)state;
    struct kv_pool *pool = pool_of(2);
    assert_true(kv_reserve(pool, 2));
    uint32_t from = kv_page_take(pool), to = kv_page_take(pool), n = 5;
    fill(pool, from, 1);
    fill(pool, to, 77);
    kv_page_copy(pool, to, from, n);
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (uint32_t head = 0; head < 3; head++) {
            for (uint32_t i = 0; i < 4 * 16; i++) {
                size_t k = 2 * (size_t)i; /* K [4][16] of two bytes, V [16][4] */
                const uint8_t *kt = kv_page_k(pool, to, layer, head) + k;
                const uint8_t *kf = kv_page_k(pool, from, layer, head) + k;
                const uint8_t *vt = kv_page_v(pool, to, layer, head) + k;
                const uint8_t *vf = kv_page_v(pool, from, layer, head) + k;
                assert_int_equal(memcmp(kt, kf, 2) == 0, i % 16 < n);
                assert_int_equal(memcmp(vt, vf, 2) == 0, i / 4 < n);
            }
        }
    }
    kv_pool_close(pool);
}

/* Codes and, behind them, the scales of the same positions. */
static void test_copies_codes(void **state)
{
    (void)state;
    struct kv_geometry g = geometry;
    struct error err;
    g.type = KV_Q8;
    struct kv_pool *pool = kv_pool_open(&g, 2, &err);
    assert_non_null(pool);
    assert_true(kv_reserve(pool, 2));
    uint32_t from = kv_page_take(pool), to = kv_page_take(pool), n = 5;
    fill(pool, from, 1);
    fill(pool, to, 77);
    assert_ptr_equal(kv_page_scales(pool, kv_page_v(pool, 0, 1, 2)) + 16, kv_page_k(pool, 1, 0, 0));
    kv_page_copy(pool, to, from, n);
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (uint32_t head = 0; head < 3; head++) {
            uint8_t *kt = kv_page_k(pool, to, layer, head),
                    *kf = kv_page_k(pool, from, layer, head);
            uint8_t *vt = kv_page_v(pool, to, layer, head),
                    *vf = kv_page_v(pool, from, layer, head);
            for (uint32_t i = 0; i < 4 * 16; i++) { /* K [4][16], V [16][4] */
                assert_int_equal(kt[i] == kf[i], i % 16 < n);
                assert_int_equal(vt[i] == vf[i], i / 4 < n);
            }
            for (uint32_t t = 0; t < 16; t++) {
                const float *k[] = {kv_page_scales(pool, kt) + t, kv_page_scales(pool, kf) + t};
                const float *v[] = {kv_page_scales(pool, vt) + t, kv_page_scales(pool, vf) + t};
                assert_int_equal(memcmp(k[0], k[1], sizeof(float)) == 0, t < n);
                assert_int_equal(memcmp(v[0], v[1], sizeof(float)) == 0, t < n);
            }
        }
    }
    kv_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refuses_shapes),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_cached_pages_go_oldest_first),
        cmocka_unit_test(test_copies_rows),
        cmocka_unit_test(test_copies_codes),
        cmocka_unit_test(test_free_pages_go_newest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
