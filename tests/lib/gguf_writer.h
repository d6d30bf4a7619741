/* Writes small GGUF files in memory, for tests: right ones, and wrong ones on purpose. Keys and
 * tensors come out in the order in which they were added. */
#pragma once

#include "core/base/str.h"
#include "core/kernel/quant.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf {
    uint32_t version;   /* 0 = 3 */
    uint32_t alignment; /* 0 = 32; written as a key only where it was set */
    uint64_t n_keys, n_tensors;
    struct str keys, tensors, data;
};

void gguf_free(struct gguf *g);

void gguf_u8(struct gguf *g, const char *key, uint8_t v);
void gguf_u32(struct gguf *g, const char *key, uint32_t v);
void gguf_i32(struct gguf *g, const char *key, int32_t v);
void gguf_u64(struct gguf *g, const char *key, uint64_t v);
void gguf_f32(struct gguf *g, const char *key, float v);
void gguf_bool(struct gguf *g, const char *key, bool v);
void gguf_str(struct gguf *g, const char *key, const char *v);
void gguf_strs(struct gguf *g, const char *key, const char *const *v, uint64_t n);
void gguf_f32s(struct gguf *g, const char *key, const float *v, uint64_t n);
void gguf_i32s(struct gguf *g, const char *key, const int32_t *v, uint64_t n);

/* A key of any type number with its bytes as they are. */
void gguf_raw(struct gguf *g, const char *key, uint32_t type, const void *bytes, size_t n);

/* dims outermost first, as in struct tensor; data as it lies in a file. */
void gguf_tensor(struct gguf *g, const char *name, enum quant_id type, uint32_t n_dims,
                 const uint64_t *dims, const void *data, size_t n_bytes);
void gguf_f32_matrix(struct gguf *g, const char *name, uint64_t n_out, uint64_t n_in,
                     const float *w); /* [n_out, n_in] */
void gguf_f32_vector(struct gguf *g, const char *name, uint64_t n, const float *v); /* [n] */

/* A tensor's description alone, with whatever offset and type number: no data is added. */
void gguf_describe(struct gguf *g, const char *name, uint32_t n_dims, const uint64_t *dims,
                   uint32_t type, uint64_t offset);

/* The whole file, appended to out. */
void gguf_finish(const struct gguf *g, struct str *out);

/* The same, written to a path. 0, or -1. */
int gguf_save(const struct gguf *g, const char *path);
