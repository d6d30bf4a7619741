/* [kv] Who owns a page. The pool is one block of memory cut into pages; a page holds K and V of
 * page_tokens consecutive positions of one timeline, for all layers and KV heads:
 *
 *   page = [n_layers][n_kv_heads] { K [page_tokens / 16][head_dim][16], V [page_tokens][head_dim] }
 *
 * K lies turned (kv_type.h: kv_column). With KV_Q8 the scales of its positions follow K, and V: float
 * [page_tokens].
 * Bytes a token: 2 x layers x kv heads x head size x bytes of a value (SmolLM2, F16: 23,040), and
 * with KV_Q8 a scale of 4 bytes for each head size values (12,240).
 *
 * A page is free (nobody needs it), cached (nobody uses it, but prefix.c can find it; taken when no
 * free one is left, least recently used first) or used (n_refs > 0). Cached pages count as free for
 * reservations. A page with n_refs > 1, or published in prefix.c, is never written. */
#pragma once

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/kernel/kv_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_geometry {
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t page_tokens; /* a multiple of 16, 16..256 */
    enum kv_type type;
};

struct kv_pool {
    struct kv_geometry geometry;
    uint32_t n_pages;
    size_t page_bytes;
    size_t head_bytes;    /* of K (and of V) of one layer and head: head_dim x page_tokens values,
                             and where they are codes page_tokens scales */
    uint8_t *memory;      /* [n_pages, page_bytes] */
    struct kv_book *book; /* pages.c's own: references, lists, reservations */
};

size_t kv_token_bytes(const struct kv_geometry *g); /* of all layers, K and V */
size_t kv_page_bytes(const struct kv_geometry *g);

/* ANY_THREAD; the rest ON_ENGINE (in tools: the thread that opened the pool). Takes n_pages x
 * page_bytes from the ledger (MEM_KV); the machine gives memory as pages are first written. */
struct kv_pool *kv_pool_open(const struct kv_geometry *g, uint32_t n_pages, struct error *err);
void kv_pool_close(struct kv_pool *pool); /* NULL is fine */

/* Pages that n_tokens positions lie in. */
static inline uint32_t kv_pages_of(const struct kv_pool *pool, uint32_t n_tokens)
{
    return n_tokens / pool->geometry.page_tokens + (n_tokens % pool->geometry.page_tokens != 0);
}

/* n_free + n_cached + n_used = pool->n_pages; n_reserved of the free and cached are promised. */
struct kv_count {
    uint32_t n_free, n_cached, n_used, n_reserved;
};
void kv_count(const struct kv_pool *pool, struct kv_count *count);

/* Promises n pages to the caller, who gives back with kv_unreserve what it did not take. False:
 * fewer than n are free or cached and not promised; nothing has changed. */
bool kv_reserve(struct kv_pool *pool, uint32_t n);
void kv_unreserve(struct kv_pool *pool, uint32_t n);

/* One page of the caller's reservation, with n_refs 1; its contents are undefined. */
uint32_t kv_page_take(struct kv_pool *pool);

/* One reference more to a used or cached page. False: it is cached, and all that is left is
 * promised to others. */
bool kv_page_share(struct kv_pool *pool, uint32_t page);

/* One reference less. The last one makes the page cached where it is published, else free. */
void kv_page_drop(struct kv_pool *pool, uint32_t page);
uint32_t kv_page_refs(const struct kv_pool *pool, uint32_t page);

/* Copies the first n_tokens positions of one page to another. */
void kv_page_copy(struct kv_pool *pool, uint32_t to, uint32_t from, uint32_t n_tokens);

/* prefix.c's: it can find the page from now on (it must be used) or no longer; a cached page was
 * of use. evict is called for the cached page that is taken, before it is. */
void kv_page_publish(struct kv_pool *pool, uint32_t page);
void kv_page_forget(struct kv_pool *pool, uint32_t page);
void kv_page_touch(struct kv_pool *pool, uint32_t page);
void kv_pool_on_evict(struct kv_pool *pool, void (*evict)(void *arg, uint32_t page), void *arg);

/* K [page_tokens / 16][head_dim][16] of a page; V [page_tokens][head_dim] follows it at head_bytes. Workers
 * read any page and write only the rows of the batch. */
static inline uint8_t *kv_page_k(const struct kv_pool *pool, uint32_t page, uint32_t layer,
                                 uint32_t kv_head)
{
    size_t slot = (size_t)layer * pool->geometry.n_kv_heads + kv_head;
    return pool->memory + page * pool->page_bytes + slot * 2 * pool->head_bytes;
}

static inline uint8_t *kv_page_v(const struct kv_pool *pool, uint32_t page, uint32_t layer,
                                 uint32_t kv_head)
{
    return kv_page_k(pool, page, layer, kv_head) + pool->head_bytes;
}

/* The scales of K or of V [page_tokens], or NULL where values are no codes. */
static inline float *kv_page_scales(const struct kv_pool *pool, uint8_t *values)
{
    const struct kv_geometry *g = &pool->geometry;
    size_t n = (size_t)g->head_dim * g->page_tokens * kv_value_bytes(g->type);
    return kv_scale_bytes(g->type) ? (float *)(void *)(values + n) : NULL;
}
