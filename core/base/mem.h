/* [base] Memory: checked allocation, aligned big blocks on huge pages, and the ledger of who
 * holds what. mem_new and mem_grow abort at start-up only through their callers: they return NULL
 * and the caller says what failed. ANY_THREAD: the ledger is atomic. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* A bug, in every build: prints file, line and expression, and aborts. */
#define ASSERT(x) ((x) ? (void)0 : mem_assert_failed(#x, __FILE__, __LINE__))
_Noreturn void mem_assert_failed(const char *expression, const char *file, int line);

/* Zeroed array of n elements of size bytes each, or NULL (also where n * size overflows). */
void *mem_new(size_t n, size_t size);

/* realloc to n elements of size bytes, or NULL (p stays), as above. New bytes are undefined. */
void *mem_grow(void *p, size_t n, size_t size);

enum mem_owner { MEM_WEIGHTS, MEM_ACTIVATIONS, MEM_KV, MEM_OTHER, MEM_OWNERS };

/* Zeroed block at a 2 MiB boundary (64 bytes when smaller than 2 MiB), advised to huge pages and
 * entered in the ledger; NULL when the machine has none left. */
void *mem_big_new(size_t n_bytes, enum mem_owner owner);
void mem_big_free(void *p, size_t n_bytes, enum mem_owner owner); /* NULL is fine */

/* Bytes now held by one owner of big blocks. */
uint64_t mem_held(enum mem_owner owner);
const char *mem_owner_name(enum mem_owner owner);

/* Bytes that this process may still take: the cgroup's limit less its use, and the machine's
 * available memory, whichever is less. */
uint64_t mem_available(void);
