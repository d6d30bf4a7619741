/* [base] checked allocation, huge-page blocks, the ledger, and what the cgroup still allows. */
#include "core/base/mem.h"

#include "core/base/cgroup.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static _Atomic uint64_t held[MEM_OWNERS];
static const char *const owner_names[MEM_OWNERS] = {"weights", "activations", "kv", "other"};

void mem_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "attend: bug at %s:%d: %s\n", file, line, expression);
    abort();
}

void *mem_new(size_t n, size_t size) { return calloc(n ? n : 1, size ? size : 1); }

void *mem_grow(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

/* A mapping is at least as long as asked and whole in huge pages; small blocks come from malloc. */
static size_t mapped_bytes(size_t n_bytes)
{
    return (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *mem_big_new(size_t n_bytes, enum mem_owner owner)
{
    void *p;
    if (n_bytes < HUGE_PAGE) {
        size_t whole = (n_bytes + 63) / 64 * 64 + 64;
        p = aligned_alloc(64, whole);
        if (!p)
            return NULL;
        memset(p, 0, whole);
    } else {
        if (n_bytes > SIZE_MAX / 2)
            return NULL;
        size_t bytes = mapped_bytes(n_bytes);
        char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (raw == MAP_FAILED)
            return NULL;
        size_t head = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
        if (head)
            munmap(raw, head);
        if (HUGE_PAGE - head)
            munmap(raw + head + bytes, HUGE_PAGE - head);
        p = raw + head;
        madvise(p, bytes, MADV_HUGEPAGE);
    }
    atomic_fetch_add(&held[owner], n_bytes);
    return p;
}

void mem_big_free(void *p, size_t n_bytes, enum mem_owner owner)
{
    if (!p)
        return;
    atomic_fetch_sub(&held[owner], n_bytes);
    if (n_bytes < HUGE_PAGE)
        free(p);
    else
        munmap(p, mapped_bytes(n_bytes));
}

uint64_t mem_held(enum mem_owner owner) { return atomic_load(&held[owner]); }

const char *mem_owner_name(enum mem_owner owner) { return owner_names[owner]; }

uint64_t mem_available(void)
{
    static const char key[] = "MemAvailable:";
    char line[128];
    uint64_t machine = UINT64_MAX, group = cgroup_memory_left();
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, key, sizeof(key) - 1) == 0)
            machine = strtoull(line + sizeof(key) - 1, NULL, 10) * 1024;
    if (f)
        fclose(f);
    return machine < group ? machine : group;
}
