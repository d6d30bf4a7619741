/* [kv] has anyone computed this: pages found by the page before them and the ids that they hold. */
#include "core/kv/prefix.h"

#include "core/base/mem.h"

#include <string.h>

/* Candidates are chained by (page before, first id); more than so many siblings are not looked at,
 * the ones used last come first. */
enum { SCAN_MAX = 4096, NO_PAGE = -1 };

/* parent: a page, or n_pages + a root. */
struct node {
    uint32_t parent;
    uint32_t n_ids; /* 0 = not published */
    uint32_t n_children;
    int64_t next; /* in the chain of its bucket */
};

struct root {
    char name[PREFIX_NAME_MAX];
    uint32_t n_users, n_children;
};

struct prefix {
    struct kv_pool *pool;
    struct node *nodes; /* [n_pages] */
    uint32_t *ids;      /* [n_pages, page_tokens] */
    int64_t *buckets;   /* [n_buckets], a power of 2 */
    uint32_t n_buckets;
    struct root *roots; /* [n_roots]; free where it has neither users nor children */
    uint32_t n_roots;
};

static uint32_t page_tokens(const struct prefix *p) { return p->pool->geometry.page_tokens; }

static uint32_t *ids_of(const struct prefix *p, uint32_t page)
{
    return p->ids + (size_t)page * page_tokens(p);
}

static int64_t *bucket(const struct prefix *p, uint32_t parent, uint32_t first_id)
{
    uint64_t h = ((uint64_t)parent << 32 | first_id) * 0x9e3779b97f4a7c15u;
    return &p->buckets[(h >> 32) & (p->n_buckets - 1)];
}

static uint32_t *children_of(struct prefix *p, uint32_t parent)
{
    uint32_t n_pages = p->pool->n_pages;
    return parent < n_pages ? &p->nodes[parent].n_children : &p->roots[parent - n_pages].n_children;
}

static void forget(struct prefix *p, uint32_t page)
{
    struct node *node = &p->nodes[page];
    int64_t *at = bucket(p, node->parent, ids_of(p, page)[0]);
    ASSERT(node->n_ids > 0 && node->n_children == 0);
    while (*at != page)
        at = &p->nodes[*at].next;
    *at = node->next;
    (*children_of(p, node->parent))--;
    node->n_ids = 0;
    kv_page_forget(p->pool, page);
}

static void evict(void *arg, uint32_t page) { forget(arg, page); }

struct prefix *prefix_open(struct kv_pool *pool, struct error *err)
{
    struct prefix *p = mem_new(1, sizeof(*p));
    if (!p)
        goto no_memory;
    p->pool = pool;
    p->n_buckets = 64;
    while (p->n_buckets < pool->n_pages && p->n_buckets < 1u << 30)
        p->n_buckets *= 2;
    p->nodes = mem_new(pool->n_pages, sizeof(*p->nodes));
    p->ids = mem_new(pool->n_pages, pool->geometry.page_tokens * sizeof(*p->ids));
    p->buckets = mem_new(p->n_buckets, sizeof(*p->buckets));
    if (!p->nodes || !p->ids || !p->buckets)
        goto no_memory;
    for (uint32_t i = 0; i < p->n_buckets; i++)
        p->buckets[i] = NO_PAGE;
    kv_pool_on_evict(pool, evict, p);
    return p;
no_memory:
    error_set(err, ERR_NO_MEMORY, "no memory for the prefixes of %u pages", pool->n_pages);
    prefix_close(p);
    return NULL;
}

void prefix_close(struct prefix *p)
{
    if (!p)
        return;
    kv_pool_on_evict(p->pool, NULL, NULL);
    free(p->nodes);
    free(p->ids);
    free(p->buckets);
    free(p->roots);
    free(p);
}

static bool root_in_use(const struct root *r) { return r->n_users || r->n_children; }

uint32_t prefix_root(struct prefix *p, const char *name, struct error *err)
{
    uint32_t spare = p->n_roots;
    ASSERT(strlen(name) < PREFIX_NAME_MAX);
    for (uint32_t i = 0; i < p->n_roots; i++) {
        if (!root_in_use(&p->roots[i])) {
            spare = i;
        } else if (strcmp(p->roots[i].name, name) == 0) {
            p->roots[i].n_users++;
            return i;
        }
    }
    if (spare == p->n_roots) {
        uint32_t n = p->n_roots ? p->n_roots * 2 : 8;
        struct root *roots = mem_grow(p->roots, n, sizeof(*roots));
        if (!roots || n > UINT32_MAX - p->pool->n_pages) {
            p->roots = roots ? roots : p->roots;
            error_set(err, ERR_NO_MEMORY, "no memory for %u trees of prefixes", n);
            return PREFIX_NONE;
        }
        memset(roots + p->n_roots, 0, (n - p->n_roots) * sizeof(*roots));
        p->roots = roots;
        p->n_roots = n;
    }
    memcpy(p->roots[spare].name, name, strlen(name) + 1);
    p->roots[spare].n_users = 1;
    return spare;
}

void prefix_root_share(struct prefix *p, uint32_t root)
{
    if (root != PREFIX_NONE)
        p->roots[root].n_users++;
}

void prefix_root_drop(struct prefix *p, uint32_t root)
{
    if (root == PREFIX_NONE)
        return;
    ASSERT(root < p->n_roots && p->roots[root].n_users > 0);
    p->roots[root].n_users--;
}

static uint32_t common(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The page behind parent that goes furthest with ids[0..n): sets *n_common; NO_PAGE where none
 * begins so. Stops at the first that goes all the way. */
static int64_t find(const struct prefix *p, uint32_t parent, const uint32_t *ids, uint32_t n,
                    uint32_t *n_common)
{
    int64_t best = NO_PAGE;
    uint32_t n_seen = 0;
    *n_common = 0;
    if (!n)
        return best;
    int64_t page = *bucket(p, parent, ids[0]);
    for (; page != NO_PAGE && n_seen++ < SCAN_MAX && *n_common < n; page = p->nodes[page].next) {
        const struct node *node = &p->nodes[page];
        if (node->parent != parent)
            continue;
        uint32_t c = common(ids_of(p, (uint32_t)page), ids, node->n_ids < n ? node->n_ids : n);
        if (c > *n_common) {
            *n_common = c;
            best = page;
        }
    }
    return best;
}

/* The place behind the first n_pages pages of a timeline. */
static uint32_t parent_of(const struct prefix *p, uint32_t root, const uint32_t *pages,
                          uint32_t n_pages)
{
    return n_pages ? pages[n_pages - 1] : p->pool->n_pages + root;
}

static bool known(const struct prefix *p, const struct seq *s)
{
    return !s->n_pages || p->nodes[s->pages[s->n_pages - 1]].n_ids == page_tokens(p);
}

uint32_t prefix_share(struct prefix *p, uint32_t root, const uint32_t *ids, uint32_t limit,
                      struct seq *s)
{
    uint32_t n = page_tokens(p), n_common, begin = s->n_tokens;
    if (root == PREFIX_NONE || !known(p, s))
        return 0;
    while (s->n_tokens + n <= limit) {
        uint32_t parent = parent_of(p, root, s->pages, s->n_pages);
        int64_t page = find(p, parent, ids + s->n_tokens, n, &n_common);
        if (n_common < n || !seq_share(s, p->pool, (uint32_t)page))
            break;
    }
    return s->n_tokens - begin;
}

uint32_t prefix_copy(struct prefix *p, uint32_t root, const uint32_t *ids, uint32_t limit,
                     struct seq *s)
{
    uint32_t n_common, n = page_tokens(p);
    if (root == PREFIX_NONE || s->n_tokens >= limit || !known(p, s))
        return 0;
    uint32_t left = limit - s->n_tokens < n ? limit - s->n_tokens : n;
    int64_t page =
        find(p, parent_of(p, root, s->pages, s->n_pages), ids + s->n_tokens, left, &n_common);
    if (page == NO_PAGE)
        return 0;
    seq_copy(s, p->pool, (uint32_t)page, n_common);
    return n_common;
}

/* Incomplete pages that the n ids behind parent contain are no longer needed. */
static void supersede(struct prefix *p, uint32_t parent, const uint32_t *ids, uint32_t n)
{
    uint32_t n_seen = 0;
    for (int64_t page = *bucket(p, parent, ids[0]), next; page != NO_PAGE; page = next) {
        const struct node *node = &p->nodes[page];
        next = node->next;
        if (n_seen++ == SCAN_MAX)
            return;
        if (node->parent == parent && node->n_ids < n &&
            common(ids_of(p, (uint32_t)page), ids, node->n_ids) == node->n_ids)
            forget(p, (uint32_t)page);
    }
}

static void insert(struct prefix *p, uint32_t parent, uint32_t page, const uint32_t *ids,
                   uint32_t n)
{
    int64_t *chain = bucket(p, parent, ids[0]);
    p->nodes[page] = (struct node){.parent = parent, .n_ids = n, .next = *chain};
    *chain = page;
    memcpy(ids_of(p, page), ids, n * sizeof(*ids));
    (*children_of(p, parent))++;
    kv_page_publish(p->pool, page);
}

/* Page i of s, which holds n ids; false: another that holds them has taken its place. */
static void publish_page(struct prefix *p, uint32_t root, const uint32_t *ids, struct seq *s,
                         uint32_t i)
{
    uint32_t n = page_tokens(p), n_common, parent = parent_of(p, root, s->pages, i);
    int64_t page = find(p, parent, ids, n, &n_common);
    if (n_common < n) {
        supersede(p, parent, ids, n);
        insert(p, parent, s->pages[i], ids, n);
        return;
    }
    kv_page_drop(p->pool, s->pages[i]); /* is free now, so that there is room to share */
    bool shared = kv_page_share(p->pool, (uint32_t)page);
    ASSERT(shared);
    s->pages[i] = (uint32_t)page;
}

void prefix_publish(struct prefix *p, uint32_t root, const uint32_t *ids, struct seq *s)
{
    uint32_t n = page_tokens(p), n_complete = s->n_tokens / n, i = n_complete;
    if (root == PREFIX_NONE)
        return;
    while (i > 0 && !p->nodes[s->pages[i - 1]].n_ids)
        i--;
    for (; i < n_complete; i++)
        publish_page(p, root, ids + (size_t)i * n, s, i);
}

void prefix_publish_tail(struct prefix *p, uint32_t root, const uint32_t *ids, struct seq *s)
{
    uint32_t n = page_tokens(p), n_complete = s->n_tokens / n, n_tail = s->n_tokens % n, n_common;
    if (root == PREFIX_NONE)
        return;
    prefix_publish(p, root, ids, s);
    if (!n_tail)
        return;
    uint32_t parent = parent_of(p, root, s->pages, n_complete);
    ids += (size_t)n_complete * n;
    find(p, parent, ids, n_tail, &n_common);
    if (n_common == n_tail)
        return;
    supersede(p, parent, ids, n_tail);
    insert(p, parent, s->pages[n_complete], ids, n_tail);
}

uint32_t prefix_held(const struct prefix *p, uint32_t root, const uint32_t *ids, uint32_t n)
{
    uint32_t n_held = 0, n_common, parent = p->pool->n_pages + root;
    if (root == PREFIX_NONE)
        return 0;
    do {
        uint32_t left = n - n_held < page_tokens(p) ? n - n_held : page_tokens(p);
        int64_t page = find(p, parent, ids + n_held, left, &n_common);
        n_held += n_common;
        parent = (uint32_t)page;
    } while (n_common == page_tokens(p));
    return n_held;
}
