/* [load] GGUF v2 and v3, little endian: all that is needed to find a key or a tensor, nothing
 * copied but names. Every byte is a stranger's: a count is checked against the bytes that are
 * left before anything is allocated or read for it.
 *
 *   file   = "GGUF" version:u32 n_tensors:u64 n_keys:u64 key* tensor* padding data
 *   key    = name:string type:u32 value          string = n:u64 bytes
 *   array  = of:u32 n:u64 items                  tensor = name:string n_dims:u32 dims:u64[n_dims]
 *                                                         type:u32 offset:u64 (from data) */
#include "core/load/load.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 13, TENSOR_BYTES = 24 }; /* the least that one takes, right or wrong */

struct reader {
    struct checkpoint *c;
    const uint8_t *bytes;
    size_t n, at;            /* at <= n */
    const char *kind, *name; /* what is being read: "key", "general.name" */
    struct error *err;
};

#define SAY(r, code, fmt, ...) error_set((r)->err, code, "%s: " fmt, (r)->c->label, ##__VA_ARGS__)
#define BAD(r, ...)            SAY(r, ERR_FORMAT, __VA_ARGS__)
#define LACK(r, ...)           SAY(r, ERR_UNSUPPORTED, __VA_ARGS__)
#define OUT_OF_MEMORY(r, ...)  SAY(r, ERR_NO_MEMORY, __VA_ARGS__)

/* The next n bytes, or NULL where the file has no more. */
static const uint8_t *take(struct reader *r, uint64_t n)
{
    const uint8_t *p = r->bytes + r->at;
    if (n > r->n - r->at) {
        BAD(r, "%s%s%s is cut off: it needs %" PRIu64 " bytes at byte %zu, the file has %zu",
            r->kind, *r->name ? " " : "", r->name, n, r->at, r->n);
        return NULL;
    }
    r->at += (size_t)n;
    return p;
}

static int take_uint(struct reader *r, enum scalar s, uint64_t *value)
{
    struct meta m;
    const uint8_t *p = take(r, scalar_bytes(s));
    if (!p)
        return -1;
    scalar_read(s, p, &m);
    *value = m.u;
    return 0;
}

static int take_string(struct reader *r, struct span *out)
{
    uint64_t n;
    if (take_uint(r, SCALAR_U64, &n))
        return -1;
    out->s = (const char *)take(r, n);
    out->n = (size_t)n;
    return out->s ? 0 : -1;
}

/* A name that can stand in a sentence: UTF-8 without control characters. */
static bool presentable(const struct span *s)
{
    for (size_t i = 0; i < s->n; i++)
        if ((unsigned char)s->s[i] < 0x20 || s->s[i] == 0x7F)
            return false;
    return utf8_valid(s->s, s->n);
}

/* Reads the name of key or tensor i into a block of its own. */
static char *take_name(struct reader *r, const char *kind, uint64_t i, uint64_t n)
{
    char where[48];
    struct span s;
    snprintf(where, sizeof(where), "%" PRIu64 " of %" PRIu64, i + 1, n);
    r->kind = kind;
    r->name = where;
    size_t at = r->at;
    if (take_string(r, &s)) {
        r->name = "";
        return NULL;
    }
    r->name = "";
    if (s.n < 1 || s.n > NAME_MAX_BYTES) {
        BAD(r, "%s %s at byte %zu has a name of %zu bytes, allowed are 1 to %d", kind, where, at,
            s.n, NAME_MAX_BYTES);
        return NULL;
    }
    if (!presentable(&s)) {
        BAD(r, "%s %s at byte %zu has a name that is not UTF-8 without control characters", kind,
            where, at);
        return NULL;
    }
    char *name = mem_new(s.n + 1, 1);
    if (!name) {
        OUT_OF_MEMORY(r, "no memory for the name of %s %s", kind, where);
        return NULL;
    }
    memcpy(name, s.s, s.n);
    r->name = name;
    return name;
}

static int bad_type(struct reader *r, const char *what, uint64_t type)
{
    return BAD(r, "key %s has %s %" PRIu64 ", known are 0 to %d", r->name, what, type,
               SCALAR_COUNT - 1);
}

static int bad_bool(struct reader *r, unsigned value)
{
    return BAD(r, "key %s has a boolean of value %u, allowed are 0 and 1", r->name, value);
}

static int read_strings(struct reader *r, struct items *items, uint64_t n)
{
    if (n > (r->n - r->at) / 8)
        return BAD(r, "key %s claims %" PRIu64 " strings, the %zu bytes left have room for %zu",
                   r->name, n, r->n - r->at, (r->n - r->at) / 8);
    items->spans = mem_new((size_t)n + 1, sizeof(*items->spans));
    if (!items->spans)
        return OUT_OF_MEMORY(r, "no memory for the %" PRIu64 " strings of key %s", n, r->name);
    for (uint64_t i = 0; i < n; i++)
        if (take_string(r, &items->spans[i]))
            return -1;
    return 0;
}

static int read_numbers(struct reader *r, struct items *items, uint64_t n)
{
    size_t size = scalar_bytes(items->scalar), left = r->n - r->at;
    if (n > left / size)
        return BAD(r, "key %s claims %" PRIu64 " items of %zu bytes, the file has %zu left",
                   r->name, n, size, left);
    items->bytes = take(r, n * size);
    if (items->scalar == SCALAR_BOOL)
        for (uint64_t i = 0; i < n; i++)
            if (items->bytes[i] > 1)
                return bad_bool(r, items->bytes[i]);
    return items->bytes ? 0 : -1;
}

static int read_array(struct reader *r, struct meta *m)
{
    uint64_t of, n;
    if (take_uint(r, SCALAR_U32, &of) || take_uint(r, SCALAR_U64, &n))
        return -1;
    if (of >= SCALAR_COUNT)
        return bad_type(r, "items of type", of);
    if (of == SCALAR_ARRAY)
        return BAD(r, "key %s is an array of arrays, wanted is one of values", r->name);
    struct items *items = mem_new(1, sizeof(*items));
    if (!items)
        return OUT_OF_MEMORY(r, "no memory for key %s", r->name);
    m->type = META_ARRAY;
    m->of = scalar_meta((enum scalar)of);
    m->n_items = n;
    m->items = items;
    items->scalar = (enum scalar)of;
    return of == SCALAR_STRING ? read_strings(r, items, n) : read_numbers(r, items, n);
}

static int read_value(struct reader *r, struct meta *m, enum scalar type)
{
    if (type == SCALAR_ARRAY)
        return read_array(r, m);
    if (type == SCALAR_STRING) {
        struct span s;
        if (take_string(r, &s))
            return -1;
        if (!utf8_valid(s.s, s.n))
            return BAD(r, "key %s is a string that is not UTF-8", r->name);
        m->type = META_STRING;
        m->str.s = s.s;
        m->str.n = s.n;
        return 0;
    }
    const uint8_t *p = take(r, scalar_bytes(type));
    if (!p)
        return -1;
    if (type == SCALAR_BOOL && *p > 1)
        return bad_bool(r, *p);
    scalar_read(type, p, m);
    return 0;
}

static int read_keys(struct reader *r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t type;
        char *key = take_name(r, "key", i, n);
        if (!key)
            return -1;
        struct meta *m = checkpoint_add_meta(r->c);
        if (!m) {
            free(key);
            return OUT_OF_MEMORY(r, "no memory for %" PRIu64 " keys", n);
        }
        m->key = key; /* the checkpoint's from here on */
        if (take_uint(r, SCALAR_U32, &type))
            return -1;
        if (type >= SCALAR_COUNT)
            return bad_type(r, "type", type);
        if (read_value(r, m, (enum scalar)type))
            return -1;
    }
    return 0;
}

static int unknown_type(struct reader *r, uint64_t type)
{
    const char *known = type <= UINT32_MAX ? quant_gguf_name((uint32_t)type) : NULL;
    struct str list = {0};
    for (uint32_t i = 0; i < QUANT_COUNT; i++)
        str_addf(&list, "%s%s", i ? ", " : "", quant_gguf_name(quant_table[i].gguf_id));
    if (known)
        LACK(r, "tensor %s has type %s, which is not supported yet; supported are %s", r->name,
             known, str_text(&list));
    else
        BAD(r, "tensor %s has type number %" PRIu64 ", which no known type has; supported are %s",
            r->name, type, str_text(&list));
    str_free(&list);
    return -1;
}

/* dims: GGUF writes the innermost first, we keep the outermost first. */
static int read_shape(struct reader *r, struct tensor *t, uint64_t *n_elems)
{
    uint64_t n_dims, dim;
    if (take_uint(r, SCALAR_U32, &n_dims))
        return -1;
    if (n_dims < 1 || n_dims > 4)
        return BAD(r, "tensor %s has %" PRIu64 " dimensions, allowed are 1 to 4", r->name, n_dims);
    t->n_dims = (uint32_t)n_dims;
    *n_elems = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (take_uint(r, SCALAR_U64, &dim))
            return -1;
        if (dim < 1)
            return BAD(r, "tensor %s has dimension %u of 0, wanted is 1 or more", r->name, i);
        if (__builtin_mul_overflow(*n_elems, dim, n_elems) || *n_elems > INT64_MAX)
            return BAD(r, "tensor %s has more values than can be counted: dimension %u is %" PRIu64,
                       r->name, i, dim);
        t->dims[t->n_dims - 1 - i] = dim;
    }
    return 0;
}

/* t->data is left NULL: where the data begins is known only after the last tensor; *offset tells. */
static int read_tensor(struct reader *r, struct tensor *t, uint64_t *offset)
{
    uint64_t n_elems = 0, type = 0, n_bytes;
    if (read_shape(r, t, &n_elems) || take_uint(r, SCALAR_U32, &type) ||
        take_uint(r, SCALAR_U64, offset))
        return -1;
    const struct quant *q = quant_by_gguf((uint32_t)type);
    if (!q)
        return unknown_type(r, type);
    uint64_t row = t->dims[t->n_dims - 1];
    if (row % q->block_elems)
        return BAD(r, "tensor %s has rows of %" PRIu64 " values, type %s needs whole blocks of %u",
                   r->name, row, quant_gguf_name(q->gguf_id), q->block_elems);
    if (__builtin_mul_overflow(n_elems / q->block_elems, (uint64_t)q->block_bytes, &n_bytes))
        return BAD(r, "tensor %s has more bytes than can be counted (%" PRIu64 " values)", r->name,
                   n_elems);
    t->type = (enum quant_id)(q - quant_table);
    t->n_bytes = (size_t)n_bytes;
    return 0;
}

/* Keeps offsets beside the tensors until the data's begin is known. */
static int read_tensors(struct reader *r, uint64_t n, uint64_t **offsets)
{
    size_t cap = 0;
    for (uint64_t i = 0; i < n; i++) {
        char *name = take_name(r, "tensor", i, n);
        if (!name)
            return -1;
        struct tensor *t = checkpoint_add_tensor(r->c);
        if (t && i >= cap) {
            cap = cap ? cap * 2 : 64;
            uint64_t *more = mem_grow(*offsets, cap, sizeof(**offsets));
            *offsets = more ? more : *offsets;
            t = more ? t : (r->c->n_tensors--, NULL);
        }
        if (!t) {
            free(name);
            return OUT_OF_MEMORY(r, "no memory for %" PRIu64 " tensors", n);
        }
        t->name = name; /* the checkpoint's from here on */
        if (read_tensor(r, t, &(*offsets)[i]))
            return -1;
    }
    return 0;
}

/* Puts every tensor's data into place, inside the file. */
static int place_tensors(struct reader *r, const uint64_t *offsets, uint64_t alignment)
{
    uint64_t data_at = (r->at + alignment - 1) / alignment * alignment;
    for (uint32_t i = 0; i < r->c->n_tensors; i++) {
        struct tensor *t = &r->c->tensors[i];
        uint64_t begin, end;
        ASSERT(offsets);
        if (offsets[i] % alignment)
            return BAD(r,
                       "tensor %s begins at offset %" PRIu64 ", wanted is a multiple of %" PRIu64,
                       t->name, offsets[i], alignment);
        if (__builtin_add_overflow(data_at, offsets[i], &begin) ||
            __builtin_add_overflow(begin, (uint64_t)t->n_bytes, &end))
            return BAD(r,
                       "tensor %s begins at offset %" PRIu64 " and has %zu bytes, the file has %zu",
                       t->name, offsets[i], t->n_bytes, r->n);
        if (end > r->n)
            return BAD(r, "tensor %s ends at byte %" PRIu64 ", the file has %zu", t->name, end,
                       r->n);
        t->data = r->bytes + begin;
    }
    return 0;
}

static int compare_data(const void *a, const void *b)
{
    const struct tensor *const *x = a, *const *y = b;
    return (*x)->data < (*y)->data ? -1 : (*x)->data > (*y)->data;
}

static int check_overlap(const struct reader *r)
{
    uint32_t n = r->c->n_tensors;
    const struct tensor **sorted = mem_new((size_t)n + 1, sizeof(struct tensor *));
    int rc = 0;
    if (!sorted)
        return OUT_OF_MEMORY(r, "no memory for %u tensors", n);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &r->c->tensors[i];
    qsort(sorted, n, sizeof(struct tensor *), compare_data);
    for (uint32_t i = 1; i < n && rc == 0; i++) {
        const struct tensor *a = sorted[i - 1], *b = sorted[i];
        if (a->data + a->n_bytes > b->data)
            rc = BAD(r, "tensors overlap: %s ends at byte %zu, %s begins at byte %zu", a->name,
                     (size_t)(a->data - r->bytes) + a->n_bytes, b->name,
                     (size_t)(b->data - r->bytes));
    }
    free(sorted);
    return rc;
}

/* Not GGUF: says what it is, where that helps. */
static int bad_magic(const struct reader *r)
{
    static const char lfs[] = "version https://git-lfs";
    char seen[24] = "";
    if (r->n >= sizeof(lfs) - 1 && memcmp(r->bytes, lfs, sizeof(lfs) - 1) == 0)
        return BAD(
            r, "it is a git-lfs pointer of %zu bytes, not the model: fetch it with git lfs pull",
            r->n);
    if (r->n >= 4 && memcmp(r->bytes, "FUGG", 4) == 0)
        return LACK(r, "it is a big-endian GGUF, supported are little-endian ones");
    for (size_t i = 0, at = 0; i < 4 && i < r->n; i++)
        at += (size_t)snprintf(seen + at, sizeof(seen) - at,
                               isalnum(r->bytes[i]) ? "%c" : "\\x%02x", r->bytes[i]);
    return BAD(r, "not a GGUF file: it begins with \"%s\", wanted is \"GGUF\"", seen);
}

static int read_header(struct reader *r, uint64_t *n_tensors, uint64_t *n_keys)
{
    uint64_t version;
    if (r->n < 4 || memcmp(r->bytes, "GGUF", 4) != 0)
        return bad_magic(r);
    r->at = 4;
    if (take_uint(r, SCALAR_U32, &version))
        return -1;
    if (version && (version & 0xFFFF) == 0)
        return LACK(r, "it is a big-endian GGUF (v%" PRIu64 "), supported are little-endian ones",
                    (uint64_t)__builtin_bswap32((uint32_t)version));
    if (version < 2 || version > 3)
        return LACK(r, "it is GGUF v%" PRIu64 ", supported are v2 and v3", version);
    snprintf(r->c->format, sizeof(r->c->format), "GGUF v%u", (unsigned)version);
    if (take_uint(r, SCALAR_U64, n_tensors) || take_uint(r, SCALAR_U64, n_keys))
        return -1;
    size_t left = r->n - r->at;
    if (*n_keys > left / KEY_BYTES || *n_keys > INT32_MAX)
        return BAD(r, "it claims %" PRIu64 " keys, its %zu bytes have room for %zu", *n_keys, r->n,
                   left / KEY_BYTES);
    if (*n_tensors > left / TENSOR_BYTES || *n_tensors > INT32_MAX)
        return BAD(r, "it claims %" PRIu64 " tensors, its %zu bytes have room for %zu", *n_tensors,
                   r->n, left / TENSOR_BYTES);
    return 0;
}

/* Keys that say how to read the rest. */
static int read_layout(const struct reader *r, uint64_t *alignment)
{
    uint64_t n_parts, part;
    if (meta_uint_or(r->c, "split.count", 0, UINT64_MAX, 0, &n_parts, r->err) ||
        meta_uint_or(r->c, "split.no", 0, UINT64_MAX - 1, 0, &part, r->err) ||
        meta_uint_or(r->c, "general.alignment", 8, 1u << 30, 32, alignment, r->err))
        return -1;
    if (n_parts > 1)
        return LACK(r,
                    "it is part %" PRIu64 " of a model split into %" PRIu64
                    " files (split.count), supported is one file: merge them first",
                    part + 1, n_parts);
    if (*alignment & (*alignment - 1))
        return BAD(r, "key general.alignment is %" PRIu64 ", wanted is a power of two", *alignment);
    return 0;
}

int gguf_read(struct checkpoint *c, struct error *err)
{
    struct reader r = {c, c->map.bytes, c->map.n_bytes, 0, "the header", "", err};
    uint64_t n_tensors = 0, n_keys = 0, alignment = 0, *offsets = NULL;
    int rc = -1;
    if (read_header(&r, &n_tensors, &n_keys) || read_keys(&r, n_keys) ||
        checkpoint_index_metas(c, err) || read_layout(&r, &alignment) ||
        read_tensors(&r, n_tensors, &offsets) || checkpoint_index_tensors(c, err) ||
        place_tensors(&r, offsets, alignment) || check_overlap(&r))
        goto out;
    rc = 0;
out:
    free(offsets);
    return rc;
}
