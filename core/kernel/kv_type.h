/* [kernel] What a value of K or V is in a page: the KV cache stores them, attention reads them.
 *
 * KV_Q8 is a signed byte, value = code * scale with one scale for each position and KV head, of K
 * and of V: made from the row's own values when it is written, and never again. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum kv_type { KV_F16, KV_F32, KV_Q8, KV_TYPES };

static inline size_t kv_value_bytes(enum kv_type type)
{
    return type == KV_F32 ? sizeof(float) : type == KV_F16 ? sizeof(uint16_t) : sizeof(int8_t);
}

/* K lies turned, so that scores of a vector of positions need no sum across lanes, KV_COLUMNS positions
 * together: [page_tokens / KV_COLUMNS][head_dim][KV_COLUMNS]. With more of them a position would lie in
 * more lines, to be fetched to write it: F16 has two dimensions in one. */
enum { KV_COLUMNS = 16 };

/* Where dimension 0 of position t of K is; the next one is KV_COLUMNS values after it. */
static inline size_t kv_column(uint32_t t, uint32_t head_dim)
{
    return (size_t)(t / KV_COLUMNS) * head_dim * KV_COLUMNS + t % KV_COLUMNS;
}

/* Behind the values of a page's K, or V: its scales [page_tokens]. */
static inline size_t kv_scale_bytes(enum kv_type type) { return type == KV_Q8 ? sizeof(float) : 0; }
