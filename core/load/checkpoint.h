/* [load] a model as its file gives it: typed keys and tensors, whatever the file format. Loaders
 * (gguf.c; later others) fill it; everything in it was range-checked against the file. Read-only
 * after checkpoint_open: ANY_THREAD. Owner: whoever opened it. */
#pragma once

#include "core/base/error.h"
#include "core/kernel/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct checkpoint;

enum meta_type { META_UINT, META_INT, META_FLOAT, META_BOOL, META_STRING, META_ARRAY };

/* One key. Arrays are of one element type, never of arrays. */
struct meta {
    const char *key; /* NUL-terminated */
    enum meta_type type, of;
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct {
            const char *s; /* in the file, not NUL-terminated; valid while the checkpoint is open */
            size_t n;
        } str;
    };
    uint64_t n_items;  /* META_ARRAY */
    const void *items; /* loader's own */
};

struct tensor {
    const char *name; /* NUL-terminated */
    enum quant_id type;
    uint32_t n_dims;
    uint64_t dims[4];    /* outermost first, as mathematics writes it: a matrix is [n_out, n_in] */
    const uint8_t *data; /* n_bytes, inside the mapping */
    size_t n_bytes;
};

/* path: a GGUF file, or a folder with exactly one GGUF file. A file without
 * tensors (a vocabulary) is fine. Errors name the file, the key or tensor, and both values. */
struct checkpoint *checkpoint_open(const char *path, struct error *err);
void checkpoint_close(struct checkpoint *c); /* NULL is fine */

/* n bytes of a tensor's data will not be read again: lets their pages go. */
void checkpoint_done(const struct checkpoint *c, const uint8_t *data, size_t n);

const char *checkpoint_path(const struct checkpoint *c);   /* of the file itself */
const char *checkpoint_format(const struct checkpoint *c); /* "GGUF v3" */
uint64_t checkpoint_bytes(const struct checkpoint *c);

uint32_t checkpoint_n_meta(const struct checkpoint *c);
const struct meta *checkpoint_meta(const struct checkpoint *c, uint32_t i);
uint32_t checkpoint_n_tensors(const struct checkpoint *c);
const struct tensor *checkpoint_tensor(const struct checkpoint *c, uint32_t i); /* one array */

const struct meta *meta_find(const struct checkpoint *c, const char *key); /* or NULL */
const struct tensor *tensor_find(const struct checkpoint *c, const char *name);

/* Typed reads: 0 and *value; an absent key gives -1 (ERR_FORMAT naming it), one of another type or
 * out of [min, max] too. The _or forms give `other` where the key is absent, and fail only on a
 * wrong type or range. Any integer type, signed or not, reads as uint where it is not negative. */
int meta_uint(const struct checkpoint *c, const char *key, uint64_t min, uint64_t max,
              uint64_t *value, struct error *err);
int meta_uint_or(const struct checkpoint *c, const char *key, uint64_t min, uint64_t max,
                 uint64_t other, uint64_t *value, struct error *err);
int meta_float_or(const struct checkpoint *c, const char *key, double other, double *value,
                  struct error *err);
int meta_bool_or(const struct checkpoint *c, const char *key, bool other, bool *value,
                 struct error *err);

/* String in the file (not NUL-terminated); false where absent or no string. */
bool meta_str(const struct checkpoint *c, const char *key, const char **s, size_t *n);

/* Item i of an array key (i < n_items, checked by ASSERT). */
void meta_item_str(const struct meta *m, uint64_t i, const char **s, size_t *n);
double meta_item_float(const struct meta *m, uint64_t i);
int64_t meta_item_int(const struct meta *m, uint64_t i);
