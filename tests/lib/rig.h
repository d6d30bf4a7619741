/* A scheduler without a model: the forward pass writes each row's token into its page and reads the
 * whole timeline back from the pages, so that whatever goes wrong with pages changes the answer. The
 * next token is a function of all tokens before it. One thread plays the loop and the engine. */
#pragma once

#include "core/sched/queue.h"
#include "core/sched/scheduler.h"

enum { RIG_VOCAB = 64, RIG_BOS = 1, RIG_END = 2, RIG_PAGE = 16, RIG_ANSWER_MAX = 512 };

struct rig {
    struct scheduler s;
    struct scheduler_books books;
    struct ready ready;
    struct kv_pool *kv;
    struct workers *workers;
    float *logits; /* [max_running + draft_rows, RIG_VOCAB] */
    uint64_t n_requests, n_steps;
    uint32_t n_rows, n_decode_rows; /* of the last step */
    bool ends;                      /* answers may end by themselves */
    bool habits;                    /* the next token mostly follows from the last */
};

struct rig_options {
    uint32_t n_pages, n_ctx, max_running, prefill_chunk; /* 0: 64, 256, 8, by pace */
    uint32_t max_rows;                                   /* beyond max_running; 0: 64 */
    bool no_auto_create, no_bos, ends;
    bool habits;
    uint32_t draft_rows; /* for speculation; 0: none */
    enum speculation speculation;
};

/* What became of a request. */
struct answer {
    struct request *r;
    uint32_t id[RIG_ANSWER_MAX];
    uint32_t n, prompt_tokens;
    bool started, done;
    struct request_result result;
};

void rig_open(struct rig *g, const struct rig_options *o);
void rig_close(struct rig *g); /* checks that nothing is used or promised */

/* Makes and takes a request. params->session and the like may be set; greedy sampling is filled in. */
void rig_submit(struct rig *g, struct answer *a, const struct request_params *params,
                const uint32_t *ids, uint32_t n);

/* Reads the events that are there; most: tokens to take at most. Releases the request at its end. */
void rig_read(struct rig *g, struct answer *a, uint32_t most);

/* Tends and steps once; false: nothing to compute. */
bool rig_step(struct rig *g);

/* Steps and reads until all are done (at most so many steps). */
void rig_run(struct rig *g, struct answer *a, uint32_t n);

/* The answer to a timeline, from the definition: the tokens that would be returned. */
uint32_t rig_expected(const struct rig *g, const uint32_t *ids, uint32_t n, uint32_t max_tokens,
                      uint32_t *answer, bool *ended);

struct session_command rig_command(struct rig *g, enum session_verb verb, const char *id,
                                   const char *to, int64_t at);

/* ---- for the tests' words ---- */

uint32_t rig_random(uint32_t *state);
void rig_fill(uint32_t *ids, uint32_t n, uint32_t seed); /* ordinary tokens */

/* The whole answer, as it is defined. */
void rig_expect(const struct rig *g, const struct answer *a, const uint32_t *timeline, uint32_t n,
                uint32_t max_tokens);
void rig_expect_error(const struct answer *a, enum error_code code, const char *text);
