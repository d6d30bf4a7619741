/* [04 tokenizer] The model's vocabulary and chat form: text -> token ids and back. Built once
 * from the checkpoint's keys, read-only after: ANY_THREAD. Owner: engine.c (or tool.c). Keeps no
 * pointer into the checkpoint. */
#pragma once

#include "core/base/error.h"
#include "core/base/str.h"
#include "core/load/checkpoint.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text;

/* A growing array of token ids. Zeroed is empty; ids_free when done. */
struct ids {
    uint32_t *id;
    uint32_t n, cap;
    const atomic_bool *stop; /* may be NULL; where it becomes true, text_encode fails soon */
};
int ids_add(struct ids *ids, uint32_t id, struct error *err);
void ids_free(struct ids *ids);

/* A file without a tokenizer gives a text whose text_has_tokenizer is false: ids only. */
struct text *text_open(const struct checkpoint *c, struct error *err);
void text_close(struct text *t); /* NULL is fine */

bool text_has_tokenizer(const struct text *t);
uint32_t text_n_vocab(const struct text *t);
const char *text_tokenizer_name(const struct text *t); /* "byte-level BPE (smollm)" */

/* Appends the ids of s[0..n), valid UTF-8 (else ERR_INVALID). special: control tokens written in the
 * text are control tokens; else they are ordinary text. Never adds BOS or EOS. */
int text_encode(const struct text *t, const char *s, size_t n, bool special, struct ids *out,
                struct error *err);

/* The bytes of one token as the answer carries them (a byte token is its byte, a control token is
 * empty unless special), appended to out. first: the token begins the text (SentencePiece drops
 * the space in front). */
void text_token_bytes(const struct text *t, uint32_t id, bool first, bool special, struct str *out);

bool text_is_control(const struct text *t, uint32_t id);
bool text_is_end(const struct text *t, uint32_t id); /* eos, eot, eom: ends an answer */
/* All end tokens, rising. */
const uint32_t *text_ends(const struct text *t, uint32_t *n);
bool text_bos(const struct text *t, uint32_t *id); /* false: the model has none */
bool text_add_bos(const struct text *t);           /* the model's default */

/* Chat. */
struct chat_turn {
    const char *role, *content; /* UTF-8, not NUL-terminated */
    size_t n_role, n_content;
};
/* Appends the ids of the turns and of the opening of the assistant's turn. Contents are always
 * ordinary text. A model without a chat form that we render: ERR_UNSUPPORTED naming "messages". */
bool text_has_chat(const struct text *t);
int text_render_chat(const struct text *t, const struct chat_turn *turns, uint32_t n_turns,
                     struct ids *out, struct error *err);

/* "pcre2 10.42 2022-12-11, utf8proc 2.7.0", for --version. */
void text_libraries(struct str *out);
