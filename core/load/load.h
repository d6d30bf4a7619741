/* [load] what the loaders of this room share: the inside of a checkpoint and how a loader fills
 * it. Nobody outside core/load includes this. ANY_THREAD: a checkpoint under construction is its
 * opener's. */
#pragma once

#include "core/base/file.h"
#include "core/load/checkpoint.h"

/* A number as a file stores it, little endian. The values are GGUF's own. */
enum scalar {
    SCALAR_U8,
    SCALAR_I8,
    SCALAR_U16,
    SCALAR_I16,
    SCALAR_U32,
    SCALAR_I32,
    SCALAR_F32,
    SCALAR_BOOL,
    SCALAR_STRING, /* not a number: see struct items */
    SCALAR_ARRAY,  /* nor this */
    SCALAR_U64,
    SCALAR_I64,
    SCALAR_F64,
    SCALAR_COUNT
};

struct span {
    const char *s; /* not NUL-terminated */
    size_t n;
};

/* Behind meta.items of an array: numbers as they lie in the file, or a span for each string. */
struct items {
    enum scalar scalar;
    const uint8_t *bytes; /* numbers */
    struct span *spans;   /* strings: [n_items], owned */
};

struct checkpoint {
    char *path;
    char format[16];
    char label[256]; /* the path, or the end of a long one: what errors call the file */
    struct file_map map;
    struct meta *metas; /* [n_metas], in the order of the file */
    uint32_t n_metas, cap_metas;
    struct tensor *tensors; /* [n_tensors], in the order of the file */
    uint32_t n_tensors, cap_tensors;
    uint32_t *by_key;  /* [n_metas] indices in the order of the keys */
    uint32_t *by_name; /* [n_tensors] indices in the order of the names */
};

enum { NAME_MAX_BYTES = 255 }; /* of a key or a tensor's name: errors quote them whole */

size_t scalar_bytes(enum scalar s); /* 0: not a number */
enum meta_type scalar_meta(enum scalar s);

/* Sets m->type and the value from a number at p (scalar_bytes(s) bytes, any alignment). */
void scalar_read(enum scalar s, const uint8_t *p, struct meta *m);

/* Next zeroed entry of the checkpoint, already counted, or NULL without memory. */
struct meta *checkpoint_add_meta(struct checkpoint *c);
struct tensor *checkpoint_add_tensor(struct checkpoint *c);

/* Sorts the keys (the names) for look-ups; two equal ones are an error. */
int checkpoint_index_metas(struct checkpoint *c, struct error *err);
int checkpoint_index_tensors(struct checkpoint *c, struct error *err);

/* Fills c from c->map. */
int gguf_read(struct checkpoint *c, struct error *err);
