/* [04 tokenizer] The tokens of a model: texts, types, scores, and two ways from a text to an id.
 * Ordinary tokens (normal and user-defined) are what a tokenizer may make out of text; marks
 * (control, unknown and user-defined tokens) are found in the text as they are written, before
 * any tokenizer. A control token is never ordinary, so that text cannot become one. Read-only
 * after vocab_open. */
#pragma once

#include "core/base/error.h"
#include "core/load/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_NONE UINT32_MAX

enum token_type { /* as the file numbers them */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN,
                  TOKEN_CONTROL,
                  TOKEN_USER, /* matched whole wherever it is written */
                  TOKEN_UNUSED,
                  TOKEN_BYTE, /* "<0x0A>": one byte */
                  TOKEN_TYPES
};

struct vocab {
    uint32_t n;
    char *bytes;      /* all texts, one behind the other */
    uint32_t *offset; /* [n + 1] into bytes */
    uint8_t *type;    /* [n] */
    float *score;     /* [n], or NULL where the file has none */
    uint32_t *slot;   /* [n_slots] hash of ordinary texts -> id */
    uint32_t n_slots; /* a power of two */
    uint32_t longest; /* bytes of the longest ordinary token */
    uint32_t *mark;   /* [n_marks] ids in order of their texts, then of ids */
    uint32_t n_marks;
    uint32_t mark_from[257]; /* marks that begin with byte b: [mark_from[b], mark_from[b + 1]) */
    uint32_t unknown;        /* id, or VOCAB_NONE */
};

/* Copies tokenizer.ggml.{tokens,token_type,scores}; checks their lengths against each other. */
int vocab_open(struct vocab *v, const struct checkpoint *c, struct error *err);
void vocab_close(struct vocab *v); /* of a zeroed one is fine */

static inline const char *vocab_text(const struct vocab *v, uint32_t id, uint32_t *n)
{
    *n = v->offset[id + 1] - v->offset[id];
    return v->bytes + v->offset[id];
}

/* The ordinary token whose text is s[0..n), or VOCAB_NONE. Of equal texts: a normal one before a
 * user-defined one, then the lowest id. */
uint32_t vocab_find(const struct vocab *v, const char *s, size_t n);

/* The control token whose text is s[0..n), or VOCAB_NONE. */
uint32_t vocab_find_control(const struct vocab *v, const char *s, size_t n);

/* The longest mark that s[0..n) begins with: its id, and *len; or VOCAB_NONE. special: control and
 * unknown tokens count too, else only user-defined ones. */
uint32_t vocab_mark_at(const struct vocab *v, const char *s, size_t n, bool special, size_t *len);

/* The id that `key` names, below n: 0 and *id, VOCAB_NONE where it is absent or says "none". */
int vocab_key_id(const struct vocab *v, const struct checkpoint *c, const char *key, uint32_t *id,
                 struct error *err);
