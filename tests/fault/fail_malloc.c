/* A library to preload: allocations fail, one in so many as the first 4 bytes of the file FAIL_MALLOC
 * say, now; 0 = none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static volatile uint32_t *one_in;
static atomic_uint n_asked;

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("FAIL_MALLOC");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 4, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        one_in = at;
}

/* dlsym itself may ask for memory: glibc does without. */
static void *find(const char *name) { return dlsym(RTLD_NEXT, name); }

static int fails(void)
{
    uint32_t n = one_in ? *one_in : 0;
    if (!n)
        return 0;
    uint32_t h = (atomic_fetch_add(&n_asked, 1) + 1) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    if ((h ^ h >> 13) % n)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    if (!real_malloc)
        real_malloc = (void *(*)(size_t))find("malloc");
    return fails() ? NULL : real_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    if (!real_calloc)
        real_calloc = (void *(*)(size_t, size_t))find("calloc");
    return fails() ? NULL : real_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    if (!real_realloc)
        real_realloc = (void *(*)(void *, size_t))find("realloc");
    return fails() ? NULL : real_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    if (!real_aligned_alloc)
        real_aligned_alloc = (void *(*)(size_t, size_t))find("aligned_alloc");
    return fails() ? NULL : real_aligned_alloc(alignment, n);
}
