/* [base] a small GGUF writer for tests. */
#include "tests/lib/gguf_writer.h"

#include <stdio.h>
#include <string.h>

/* Type numbers of values in the file format. */
enum { U8 = 0, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10 };

static void put(struct str *out, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        char b = (char)(v >> 8 * i);
        str_add(out, &b, 1);
    }
}

static void put_float(struct str *out, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    put(out, bits, 4);
}

static void put_string(struct str *out, const char *s)
{
    put(out, strlen(s), 8);
    str_adds(out, s);
}

static struct str *begin_key(struct gguf *g, const char *key, uint32_t type)
{
    g->n_keys++;
    put_string(&g->keys, key);
    put(&g->keys, type, 4);
    return &g->keys;
}

static struct str *begin_array(struct gguf *g, const char *key, uint32_t of, uint64_t n)
{
    struct str *out = begin_key(g, key, ARRAY);
    put(out, of, 4);
    put(out, n, 8);
    return out;
}

void gguf_free(struct gguf *g)
{
    str_free(&g->keys);
    str_free(&g->tensors);
    str_free(&g->data);
    *g = (struct gguf){0};
}

void gguf_u8(struct gguf *g, const char *key, uint8_t v) { put(begin_key(g, key, U8), v, 1); }

void gguf_u32(struct gguf *g, const char *key, uint32_t v) { put(begin_key(g, key, U32), v, 4); }

void gguf_i32(struct gguf *g, const char *key, int32_t v)
{
    put(begin_key(g, key, I32), (uint32_t)v, 4);
}

void gguf_u64(struct gguf *g, const char *key, uint64_t v) { put(begin_key(g, key, U64), v, 8); }

void gguf_f32(struct gguf *g, const char *key, float v) { put_float(begin_key(g, key, F32), v); }

void gguf_bool(struct gguf *g, const char *key, bool v) { put(begin_key(g, key, BOOL), v, 1); }

void gguf_str(struct gguf *g, const char *key, const char *v)
{
    put_string(begin_key(g, key, STRING), v);
}

void gguf_strs(struct gguf *g, const char *key, const char *const *v, uint64_t n)
{
    struct str *out = begin_array(g, key, STRING, n);
    for (uint64_t i = 0; i < n; i++)
        put_string(out, v[i]);
}

void gguf_f32s(struct gguf *g, const char *key, const float *v, uint64_t n)
{
    struct str *out = begin_array(g, key, F32, n);
    for (uint64_t i = 0; i < n; i++)
        put_float(out, v[i]);
}

void gguf_i32s(struct gguf *g, const char *key, const int32_t *v, uint64_t n)
{
    struct str *out = begin_array(g, key, I32, n);
    for (uint64_t i = 0; i < n; i++)
        put(out, (uint32_t)v[i], 4);
}

void gguf_raw(struct gguf *g, const char *key, uint32_t type, const void *bytes, size_t n)
{
    str_add(begin_key(g, key, type), bytes, n);
}

static uint64_t alignment(const struct gguf *g) { return g->alignment ? g->alignment : 32; }

static void pad(struct str *out, uint64_t to)
{
    while (to && out->n % to)
        str_add(out, "", 1);
}

void gguf_describe(struct gguf *g, const char *name, uint32_t n_dims, const uint64_t *dims,
                   uint32_t type, uint64_t offset)
{
    g->n_tensors++;
    put_string(&g->tensors, name);
    put(&g->tensors, n_dims, 4);
    for (uint32_t i = n_dims; i-- > 0;) /* the file has the innermost first */
        put(&g->tensors, dims[i], 8);
    put(&g->tensors, type, 4);
    put(&g->tensors, offset, 8);
}

void gguf_tensor(struct gguf *g, const char *name, enum quant_id type, uint32_t n_dims,
                 const uint64_t *dims, const void *data, size_t n_bytes)
{
    pad(&g->data, alignment(g));
    gguf_describe(g, name, n_dims, dims, quant_table[type].gguf_id, g->data.n);
    str_add(&g->data, data, n_bytes);
}

static void float_tensor(struct gguf *g, const char *name, uint32_t n_dims, const uint64_t *dims,
                         const float *v)
{
    struct str bytes = {0};
    uint64_t n = n_dims == 2 ? dims[0] * dims[1] : dims[0];
    for (uint64_t i = 0; i < n; i++)
        put_float(&bytes, v[i]);
    gguf_tensor(g, name, QUANT_f32, n_dims, dims, str_text(&bytes), bytes.n);
    str_free(&bytes);
}

void gguf_f32_matrix(struct gguf *g, const char *name, uint64_t n_out, uint64_t n_in,
                     const float *w)
{
    float_tensor(g, name, 2, (const uint64_t[]){n_out, n_in}, w);
}

void gguf_f32_vector(struct gguf *g, const char *name, uint64_t n, const float *v)
{
    float_tensor(g, name, 1, &n, v);
}

void gguf_finish(const struct gguf *g, struct str *out)
{
    size_t begin = out->n;
    struct gguf set = {0};
    if (g->alignment)
        gguf_u32(&set, "general.alignment", g->alignment);
    str_adds(out, "GGUF");
    put(out, g->version ? g->version : 3, 4);
    put(out, g->n_tensors, 8);
    put(out, g->n_keys + set.n_keys, 8);
    str_add(out, str_text(&set.keys), set.keys.n);
    str_add(out, str_text(&g->keys), g->keys.n);
    str_add(out, str_text(&g->tensors), g->tensors.n);
    while (g->data.n && (out->n - begin) % alignment(g))
        str_add(out, "", 1);
    str_add(out, str_text(&g->data), g->data.n);
    gguf_free(&set);
}

int gguf_save(const struct gguf *g, const char *path)
{
    struct str out = {0};
    gguf_finish(g, &out);
    FILE *f = out.failed ? NULL : fopen(path, "wb");
    int rc = f && fwrite(out.s, 1, out.n, f) == out.n ? 0 : -1;
    if (f && fclose(f) != 0)
        rc = -1;
    str_free(&out);
    return rc;
}
