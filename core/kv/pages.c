/* [kv] who owns a page: references, the free list, the cached ones by last use, and promises.
 *
 * Lists are doubly linked through page numbers, with two sentinels behind the last page: FREE_LIST
 * and CACHED_LIST (least recently used first). A used page is on none. */
#include "core/kv/pages.h"

#include "core/base/mem.h"

#include <string.h>

struct link {
    uint32_t next, prev;
};

struct kv_book {
    uint32_t *n_refs;   /* [n_pages] */
    bool *published;    /* [n_pages] */
    struct link *links; /* [n_pages + 2] */
    uint32_t n_free, n_cached, n_reserved;
    void (*evict)(void *arg, uint32_t page);
    void *evict_arg;
};

static uint32_t free_list(const struct kv_pool *pool) { return pool->n_pages; }

static uint32_t cached_list(const struct kv_pool *pool) { return pool->n_pages + 1; }

static void list_init(struct kv_book *book, uint32_t list)
{
    book->links[list] = (struct link){list, list};
}

static void list_remove(struct kv_book *book, uint32_t page)
{
    struct link *l = &book->links[page];
    book->links[l->prev].next = l->next;
    book->links[l->next].prev = l->prev;
}

static void list_append(struct kv_book *book, uint32_t list, uint32_t page)
{
    uint32_t last = book->links[list].prev;
    book->links[page] = (struct link){list, last};
    book->links[last].next = page;
    book->links[list].prev = page;
}

static void list_prepend(struct kv_book *book, uint32_t list, uint32_t page)
{
    uint32_t first = book->links[list].next;
    book->links[page] = (struct link){first, list};
    book->links[first].prev = page;
    book->links[list].next = page;
}

/* The page freed last is taken next: its memory is there, and may lie in a cache, where one that was
 * never written must first be found and zeroed by the kernel (and by a hypervisor below it: 4 ms for
 * 2 MB were measured). */
static void free_page(struct kv_pool *pool, uint32_t page)
{
    list_prepend(pool->book, free_list(pool), page);
    pool->book->n_free++;
}

/* K, or V, of one position, layer and head. */
static size_t row_bytes(const struct kv_geometry *g)
{
    return g->head_dim * kv_value_bytes(g->type) + kv_scale_bytes(g->type);
}

size_t kv_token_bytes(const struct kv_geometry *g)
{
    return (size_t)2 * g->n_layers * g->n_kv_heads * row_bytes(g);
}

size_t kv_page_bytes(const struct kv_geometry *g) { return g->page_tokens * kv_token_bytes(g); }

static int check(const struct kv_geometry *g, uint32_t n_pages, struct error *err)
{
    if (g->page_tokens % 16 || g->page_tokens < 16 || g->page_tokens > 256)
        return error_set_field(err, ERR_INVALID, "page_tokens",
                               "page_tokens must be a multiple of 16 from 16 to 256, got %u",
                               g->page_tokens);
    if (!g->n_layers || g->n_layers > 65536 || !g->n_kv_heads || g->n_kv_heads > 65536 ||
        !g->head_dim || g->head_dim > 65536)
        return error_set(err, ERR_INVALID, "no KV of %u layers, %u heads, head size %u",
                         g->n_layers, g->n_kv_heads, g->head_dim);
    if (!n_pages || n_pages > UINT32_MAX - 2 || kv_page_bytes(g) > SIZE_MAX / n_pages)
        return error_set(err, ERR_INVALID, "no KV pool of %u pages of %zu bytes", n_pages,
                         kv_page_bytes(g));
    return 0;
}

static struct kv_book *book_open(uint32_t n_pages)
{
    struct kv_book *book = mem_new(1, sizeof(*book));
    if (!book)
        return NULL;
    book->n_refs = mem_new(n_pages, sizeof(*book->n_refs));
    book->published = mem_new(n_pages, sizeof(*book->published));
    book->links = mem_new((size_t)n_pages + 2, sizeof(*book->links));
    return book;
}

struct kv_pool *kv_pool_open(const struct kv_geometry *g, uint32_t n_pages, struct error *err)
{
    if (check(g, n_pages, err))
        return NULL;
    struct kv_pool *pool = mem_new(1, sizeof(*pool));
    if (!pool)
        goto no_memory;
    pool->geometry = *g;
    pool->n_pages = n_pages;
    pool->page_bytes = kv_page_bytes(g);
    pool->head_bytes = g->page_tokens * row_bytes(g);
    pool->book = book_open(n_pages);
    if (!pool->book || !pool->book->n_refs || !pool->book->published || !pool->book->links)
        goto no_memory;
    pool->memory = mem_big_new(n_pages * pool->page_bytes, MEM_KV);
    if (!pool->memory)
        goto no_memory;
    list_init(pool->book, free_list(pool));
    list_init(pool->book, cached_list(pool));
    for (uint32_t page = n_pages; page-- > 0;) /* the first is taken first */
        free_page(pool, page);
    return pool;
no_memory:
    error_set(err, ERR_NO_MEMORY, "no memory for a KV pool of %u pages of %zu bytes", n_pages,
              kv_page_bytes(g));
    kv_pool_close(pool);
    return NULL;
}

void kv_pool_close(struct kv_pool *pool)
{
    if (!pool)
        return;
    mem_big_free(pool->memory, pool->n_pages * pool->page_bytes, MEM_KV);
    if (pool->book) {
        free(pool->book->n_refs);
        free(pool->book->published);
        free(pool->book->links);
        free(pool->book);
    }
    free(pool);
}

void kv_count(const struct kv_pool *pool, struct kv_count *count)
{
    const struct kv_book *book = pool->book;
    *count = (struct kv_count){.n_free = book->n_free,
                               .n_cached = book->n_cached,
                               .n_used = pool->n_pages - book->n_free - book->n_cached,
                               .n_reserved = book->n_reserved};
}

static uint32_t unpromised(const struct kv_book *book)
{
    return book->n_free + book->n_cached - book->n_reserved;
}

bool kv_reserve(struct kv_pool *pool, uint32_t n)
{
    if (n > unpromised(pool->book))
        return false;
    pool->book->n_reserved += n;
    return true;
}

void kv_unreserve(struct kv_pool *pool, uint32_t n)
{
    ASSERT(n <= pool->book->n_reserved);
    pool->book->n_reserved -= n;
}

uint32_t kv_page_take(struct kv_pool *pool)
{
    struct kv_book *book = pool->book;
    ASSERT(book->n_reserved > 0);
    if (!book->n_free) {
        uint32_t oldest = book->links[cached_list(pool)].next;
        ASSERT(book->n_cached > 0 && book->evict);
        book->evict(book->evict_arg, oldest); /* calls kv_page_forget */
        ASSERT(book->n_free > 0);
    }
    uint32_t page = book->links[free_list(pool)].next;
    list_remove(book, page);
    book->n_free--;
    book->n_reserved--;
    book->n_refs[page] = 1;
    return page;
}

bool kv_page_share(struct kv_pool *pool, uint32_t page)
{
    struct kv_book *book = pool->book;
    ASSERT(page < pool->n_pages);
    if (!book->n_refs[page]) {
        ASSERT(book->published[page]);
        if (!unpromised(book))
            return false;
        list_remove(book, page);
        book->n_cached--;
    }
    book->n_refs[page]++;
    return true;
}

void kv_page_drop(struct kv_pool *pool, uint32_t page)
{
    struct kv_book *book = pool->book;
    ASSERT(page < pool->n_pages && book->n_refs[page] > 0);
    if (--book->n_refs[page])
        return;
    if (!book->published[page]) {
        free_page(pool, page);
        return;
    }
    list_append(book, cached_list(pool), page);
    book->n_cached++;
}

uint32_t kv_page_refs(const struct kv_pool *pool, uint32_t page)
{
    return pool->book->n_refs[page];
}

/* The first n_tokens positions of one layer and head. */
static void copy_head(const struct kv_pool *pool, uint8_t *to, uint8_t *from, uint32_t n_tokens)
{
    const struct kv_geometry *g = &pool->geometry;
    const size_t value = kv_value_bytes(g->type), row = KV_COLUMNS * value;
    const uint32_t some = n_tokens % KV_COLUMNS;
    const size_t whole = kv_column(n_tokens - some, g->head_dim) * value;
    uint8_t *v_to = to + pool->head_bytes, *v_from = from + pool->head_bytes;
    memcpy(to, from, whole);
    for (size_t d = 0; d < g->head_dim; d++)
        memcpy(to + whole + d * row, from + whole + d * row, some * value);
    memcpy(v_to, v_from, n_tokens * value * g->head_dim);
    if (kv_scale_bytes(g->type)) {
        memcpy(kv_page_scales(pool, to), kv_page_scales(pool, from), n_tokens * sizeof(float));
        memcpy(kv_page_scales(pool, v_to), kv_page_scales(pool, v_from), n_tokens * sizeof(float));
    }
}

void kv_page_copy(struct kv_pool *pool, uint32_t to, uint32_t from, uint32_t n_tokens)
{
    const struct kv_geometry *g = &pool->geometry;
    ASSERT(to != from && n_tokens <= g->page_tokens && pool->book->n_refs[to] == 1);
    for (uint32_t layer = 0; layer < g->n_layers; layer++)
        for (uint32_t head = 0; head < g->n_kv_heads; head++)
            copy_head(pool, kv_page_k(pool, to, layer, head), kv_page_k(pool, from, layer, head),
                      n_tokens);
}

void kv_page_publish(struct kv_pool *pool, uint32_t page)
{
    ASSERT(page < pool->n_pages && pool->book->n_refs[page] > 0 && !pool->book->published[page]);
    pool->book->published[page] = true;
}

void kv_page_forget(struct kv_pool *pool, uint32_t page)
{
    struct kv_book *book = pool->book;
    ASSERT(page < pool->n_pages && book->published[page]);
    book->published[page] = false;
    if (book->n_refs[page])
        return;
    list_remove(book, page);
    book->n_cached--;
    free_page(pool, page);
}

void kv_page_touch(struct kv_pool *pool, uint32_t page)
{
    if (pool->book->n_refs[page])
        return;
    list_remove(pool->book, page);
    list_append(pool->book, cached_list(pool), page);
}

void kv_pool_on_evict(struct kv_pool *pool, void (*evict)(void *arg, uint32_t page), void *arg)
{
    pool->book->evict = evict;
    pool->book->evict_arg = arg;
}
