/* [04 tokenizer] What every kind of tokenizer provides: one row in tokenizer.def, one file in
 * tokenizer/. It sees the text between marks only (vocab.h). Its state is built once and const
 * after. */
#pragma once

#include "core/base/str.h"
#include "core/text/merge.h"
#include "core/text/text.h"
#include "core/text/vocab.h"

/* Working memory of one text_encode, reused from fragment to fragment. */
struct scratch {
    struct merge merge;
    struct str str;
};

/* A part of the text between marks: s[0..n), n > 0, valid UTF-8; it begins at byte `at`. */
struct fragment {
    const char *s;
    size_t n, at;
};

struct tokenizer {
    const char *gguf;  /* what tokenizer.ggml.model says */
    const char *title; /* "byte-level BPE" */
    bool add_bos;      /* where the file does not say */

    /* The state, or NULL. variant (64 bytes): what of this kind it is, "smollm", or "". */
    void *(*open)(const struct checkpoint *c, const struct vocab *v, char *variant, bool *add_bos,
                  struct error *err);
    void (*close)(void *state); /* NULL is fine */

    /* Appends the ids of a fragment. */
    int (*encode)(const void *state, const struct vocab *v, struct fragment f,
                  struct scratch *scratch, struct ids *out, struct error *err);

    /* Appends the bytes of a normal token. first: it begins the text. */
    void (*bytes)(const void *state, const struct vocab *v, uint32_t id, bool first,
                  struct str *out);
};

#define TOKENIZER(id) extern const struct tokenizer tokenizer_##id;
#include "core/text/tokenizer.def"
#undef TOKENIZER

/* No token for these bytes: the unknown token if there is one, else ERR_INVALID. */
int tokenizer_unknown(const struct vocab *v, struct fragment f, struct ids *out, struct error *err);
