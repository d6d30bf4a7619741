/* [kv] which pages are mine: cover, share, copy, close. */
#include "core/kv/seq.h"

#include "core/base/mem.h"

int seq_open(struct seq *s, const struct kv_pool *pool, uint32_t max_tokens, struct error *err)
{
    *s = (struct seq){.cap_pages = kv_pages_of(pool, max_tokens)};
    s->pages = mem_new(s->cap_pages, sizeof(*s->pages));
    if (!s->pages)
        return error_set(err, ERR_NO_MEMORY, "no memory for a page table of %u tokens", max_tokens);
    return 0;
}

void seq_clear(struct seq *s, struct kv_pool *pool)
{
    while (s->n_pages)
        kv_page_drop(pool, s->pages[--s->n_pages]);
    if (s->n_reserved)
        kv_unreserve(pool, s->n_reserved);
    s->n_tokens = s->n_reserved = 0;
}

void seq_close(struct seq *s, struct kv_pool *pool)
{
    seq_clear(s, pool);
    free(s->pages);
    *s = (struct seq){0};
}

bool seq_reserve(struct seq *s, struct kv_pool *pool, uint32_t n_tokens)
{
    uint32_t want = kv_pages_of(pool, n_tokens), have = s->n_pages + s->n_reserved;
    ASSERT(want <= s->cap_pages);
    if (want <= have)
        return true;
    if (!kv_reserve(pool, want - have))
        return false;
    s->n_reserved += want - have;
    return true;
}

void seq_cover(struct seq *s, struct kv_pool *pool, uint32_t n_tokens)
{
    for (uint32_t want = kv_pages_of(pool, n_tokens); s->n_pages < want;) {
        ASSERT(s->n_pages < s->cap_pages && s->n_reserved > 0);
        s->n_reserved--;
        s->pages[s->n_pages++] = kv_page_take(pool);
    }
}

bool seq_share(struct seq *s, struct kv_pool *pool, uint32_t page)
{
    uint32_t page_tokens = pool->geometry.page_tokens;
    ASSERT(s->n_tokens == s->n_pages * page_tokens && s->n_pages < s->cap_pages);
    if (s->n_reserved) { /* its own promise pays for the page */
        s->n_reserved--;
        kv_unreserve(pool, 1);
    }
    if (!kv_page_share(pool, page))
        return false;
    s->pages[s->n_pages++] = page;
    s->n_tokens += page_tokens;
    return true;
}

void seq_copy(struct seq *s, struct kv_pool *pool, uint32_t from, uint32_t n_tokens)
{
    uint32_t begin = s->n_pages * pool->geometry.page_tokens;
    ASSERT(s->n_tokens == begin);
    kv_page_touch(pool, from);
    seq_cover(s, pool, begin + 1);
    uint32_t page = s->pages[s->n_pages - 1];
    if (page != from) /* the cached page that was taken may be the very one */
        kv_page_copy(pool, page, from, n_tokens);
    s->n_tokens += n_tokens;
}
