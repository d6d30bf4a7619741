/* [16 stream] What a request's events look like on the wire: text, NDJSON, SSE, or one JSON
 * document. Knows no connection: it fills a buffer, its owner takes from it. Concatenated pieces
 * equal the text of the final object. ON_LOOP, or its owner's thread. */
#pragma once

#include "core/engine.h"
#include "server/accept.h"

struct stream {
    enum stream_format format;
    bool logprobs;
    /* The bytes of a token, as logprobs show them. */
    void (*token_bytes)(const void *arg, uint32_t id, struct str *out);
    const void *token_arg;

    struct str out; /* to be sent; out.s[taken..out.n) is left */
    size_t taken;
    bool ended;  /* nothing more comes */
    bool broken; /* ... and the body must be left unterminated (text, after a failure) */

    struct str text;   /* the whole answer; JSON formats only */
    struct ids tokens; /* of which the first n_told are in pieces already */
    uint32_t n_told;
    struct str choices;    /* logprobs of all tokens, JSON objects with commas */
    size_t n_choices_told; /* bytes of it in pieces already */
    bool failed;           /* no memory */
};

/* What the final object says beside text and tokens. */
struct stream_end {
    const char *id, *model;
    const char *stop_word; /* STOP_WORD [n_stop_word] */
    size_t n_stop_word;
    uint64_t seed;
    const char *session;  /* "" = anonymous */
    const char *warnings; /* JSON strings with commas */
    const struct request_result *result;
};

void stream_free(struct stream *st);

/* A token, and the text that may leave now. */
void stream_token(struct stream *st, const struct sample_choice *choice, const char *text,
                  size_t n_text);

/* The last text and the final object. FORMAT_DOCUMENT: out is the document. */
void stream_finish(struct stream *st, const char *text, size_t n_text,
                   const struct stream_end *end);

/* A failure after the head has left. */
void stream_fail(struct stream *st, const struct error *err);

/* Something harmless to send, that says how far the prompt is. Nothing in text. */
void stream_progress(struct stream *st, uint32_t prefilled, uint32_t prompt_tokens);

/* Bytes to send, up to max. 0: none now. */
size_t stream_take(struct stream *st, char *to, size_t max);
static inline bool stream_has(const struct stream *st) { return st->taken < st->out.n; }

const char *stream_content_type(enum stream_format format);
const char *stream_finish_name(enum finish_reason finish);
