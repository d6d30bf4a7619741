/* [04 tokenizer] Cutting text into words for byte-level BPE, by the pattern that
 * `tokenizer.ggml.pre` names (pretok.def). Compiled once, const after; each text_encode walks
 * with a walker of its own. */
#pragma once

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct pretok {
    const char *name;
    bool whole_words; /* a word that is a token is that token, without merging */
    bool add_bos;     /* where the file does not say */
    void *code;       /* pcre2_code */
};

/* name NULL: the file has none; it gets GPT-2's and the log says so. Unknown: ERR_UNSUPPORTED. */
int pretok_open(struct pretok *p, const char *name, size_t n_name, struct error *err);
void pretok_close(struct pretok *p);

/* One walk over s[0..n), valid UTF-8. */
struct pretok_walk {
    const struct pretok *p;
    const char *s;
    size_t n, at; /* the next word begins at `at` */
    void *match;  /* pcre2_match_data */
};
int pretok_begin(struct pretok_walk *w, const struct pretok *p, const char *s, size_t n,
                 struct error *err);
/* 1: the next word is s[*begin .. *end); 0: no more; -1: failed. */
int pretok_next(struct pretok_walk *w, size_t *begin, size_t *end, struct error *err);
void pretok_end(struct pretok_walk *w);
