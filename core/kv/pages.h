/* Who owns a page. The pool is one block of memory cut into pages; a page holds K and V of
 * page_tokens consecutive positions of one timeline, for all layers and KV heads:
 *
 *   page = [n_layers][n_kv_heads] { K [head_dim][page_tokens], V [page_tokens][head_dim] }
 *
 * K lies transposed, so that the scores of a vector of positions need no sum across lanes.
 * Bytes a token: 2 x layers x kv heads x head size x bytes of a value (SmolLM2, F16: 23,040).
 *
 * A page is free (nobody needs it), cached (nobody uses it, but prefix.c can find it; taken when no
 * free one is left, least recently used first) or used (n_refs > 0). Cached pages count as free for
 * reservations. A page with n_refs > 1, or published in prefix.c, is never written. */
#pragma once

#include "core/base/error.h"
#include "core/base/thread.h"

#include <stddef.h>
#include <stdint.h>

enum kv_type { KV_F16, KV_F32 };

struct kv_geometry {
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t page_tokens; /* a multiple of 16, 16..256 */
    enum kv_type type;
};

struct kv_pool {
    struct kv_geometry geometry;
    uint32_t n_pages;
    size_t page_bytes;
    size_t
        head_bytes; /* of K (and of V) of one layer and head: head_dim * page_tokens * value size */
    uint8_t *memory;      /* [n_pages, page_bytes] */
    struct kv_book *book; /* pages.c's own: references, lists, reservations */
};

size_t kv_value_bytes(enum kv_type type);
size_t kv_token_bytes(const struct kv_geometry *g); /* of all layers, K and V */

struct kv_pool *kv_pool_open(const struct kv_geometry *g, uint32_t n_pages, struct error *err);
void kv_pool_close(struct kv_pool *pool); /* NULL is fine */

/* K [head_dim][page_tokens] of a page; V [page_tokens][head_dim] follows it at head_bytes. Workers
 * read any page and write only the rows of the batch (DESIGN.md 6.2). */
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
