/* [base] Files: read-only mappings and whole reads, with errors that say what to do. ANY_THREAD. */
#pragma once

#include "core/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct file_map {
    uint8_t *bytes; /* read-only pages */
    size_t n_bytes;
};

/* Maps a whole regular file (a pipe or a directory is an error). An empty file is a mapping of 0
 * bytes. `cannot open X: Permission denied (running as uid N, the file is 0600, owned by M)`. */
int file_map_open(const char *path, struct file_map *map, struct error *err);
void file_map_close(struct file_map *map);

/* Tells the kernel that [offset, offset+n) will not be read again. */
void file_map_done(const struct file_map *map, size_t offset, size_t n);

/* The whole file in a malloc'd, NUL-terminated block (the NUL is not counted); at most limit
 * bytes, else an error with both numbers. */
char *file_read(const char *path, size_t limit, size_t *n_bytes, struct error *err);
