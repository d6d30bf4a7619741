/* [bench] How streaming servers of several kinds are asked, and how their answers are read; for the load
 * client, tests/bench/serve.c. Knows no sockets. */
#pragma once

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dialect {
    DIALECT_ATTEND, /* POST /generate, NDJSON */
    DIALECT_LLAMA,  /* POST /completion of llama-server, SSE */
    DIALECT_OPENAI, /* POST /v1/completions, SSE; a token an event */
};
int dialect_find(const char *name); /* -1: unknown */

/* What is asked for. */
struct question {
    enum dialect dialect;
    const char *host; /* for the header Host */
    const char *model;
    double temperature;
    uint32_t n_tokens; /* of the answer */
    uint32_t n_words;  /* of the prompt, where it is made of random words */
    uint32_t n_ids;    /* ... or of random ids, below n_vocab; attend's and llama-server's */
    uint32_t n_vocab;  /* ids of the model */
    char **prompt;     /* [n_prompts] texts, taken in turn; NULL where the prompt is random */
    uint32_t n_prompts;
};

/* The whole request, head and body. Equal seeds give equal prompts. */
void question_write(const struct question *q, uint64_t seed, struct str *out);

enum answer_state {
    ANSWER_HEAD,
    ANSWER_BODY,
    ANSWER_SIZE,
    ANSWER_CHUNK,
    ANSWER_AFTER_CHUNK,
    ANSWER_END
};

/* An answer as it comes. Zeroed before each; line's memory is kept. */
struct answer {
    enum dialect dialect;
    enum answer_state state;
    int status;
    bool chunked, has_length, close, failed;
    uint64_t left;              /* bytes of the body or the chunk */
    struct str line, http_line; /* the ones at work: of the body, between its chunks */
    uint32_t n_fresh;           /* tokens since the caller last set it to 0 */
};

/* Takes what came. *n_fresh rises by the tokens in it; state is ANSWER_END when nothing more follows. Sets
 * failed where it is no HTTP, or the server reports an error. */
void answer_take(struct answer *a, const char *bytes, size_t n);

/* SplitMix64, a number for each (seed, n). */
uint64_t wire_random(uint64_t seed, uint64_t n);
