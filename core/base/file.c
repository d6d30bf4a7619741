/* [base] mapped files and whole reads. */
#include "core/base/file.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_failed(const char *path, struct error *err)
{
    int e = errno;
    struct stat st;
    if (e == EACCES && stat(path, &st) == 0)
        return error_set(err, ERR_IO,
                         "cannot open %s: %s (running as uid %u, the file is %04o, owned by %u)",
                         path, strerror(e), (unsigned)geteuid(), (unsigned)st.st_mode & 07777,
                         (unsigned)st.st_uid);
    return error_set(err, ERR_IO, "cannot open %s: %s", path, strerror(e));
}

/* Opens a regular file and tells its size; -1 with *err set. */
static int open_regular(const char *path, size_t *n_bytes, struct error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return open_failed(path, err);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return error_set(err, ERR_IO, "cannot open %s: it is not a regular file", path);
    }
    *n_bytes = (size_t)st.st_size;
    return fd;
}

int file_map_open(const char *path, struct file_map *map, struct error *err)
{
    size_t n = 0;
    int fd = open_regular(path, &n, err);
    *map = (struct file_map){0};
    if (fd < 0)
        return -1;
    if (n > 0) {
        void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            error_set(err, ERR_IO, "cannot map %s: %s", path, strerror(errno));
            close(fd);
            return -1;
        }
        *map = (struct file_map){p, n};
    }
    close(fd);
    return 0;
}

void file_map_close(struct file_map *map)
{
    if (map->bytes)
        munmap(map->bytes, map->n_bytes);
    *map = (struct file_map){0};
}

void file_map_done(const struct file_map *map, size_t offset, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (offset + page - 1) / page * page, end = (offset + n) / page * page;
    if (map->bytes && begin < end && end <= map->n_bytes)
        madvise(map->bytes + begin, end - begin, MADV_DONTNEED);
}

char *file_read(const char *path, size_t limit, size_t *n_bytes, struct error *err)
{
    size_t n = 0, got = 0;
    int fd = open_regular(path, &n, err);
    if (fd < 0)
        return NULL;
    char *s = NULL;
    if (n > limit) {
        error_set(err, ERR_IO, "%s has %zu bytes, allowed are %zu", path, n, limit);
        goto out;
    }
    s = mem_new(n + 1, 1);
    if (!s) {
        error_set(err, ERR_NO_MEMORY, "no memory for the %zu bytes of %s", n, path);
        goto out;
    }
    while (got < n) {
        ssize_t k = read(fd, s + got, n - got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            error_set(err, ERR_IO, "cannot read %s: %s", path, k ? strerror(errno) : "it shrank");
            free(s);
            s = NULL;
            goto out;
        }
        got += (size_t)k;
    }
    *n_bytes = n;
out:
    close(fd);
    return s;
}
