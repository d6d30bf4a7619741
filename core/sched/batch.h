/* [05 scheduler] The rows of the next step: the decode row of every running request first, with the
 * rows of its draft, then prompt rows. Prompts alone get as many as step_ms allows. Beside running
 * streams a step may last at most BATCH_STRETCH times what the streams alone would take, so that a
 * long prompt makes them slower by no more than that: about the time that decode rows, waiting for
 * memory, leave to arithmetic. The price is the prompt's: its first token comes later than with whole
 * steps of its own.
 *
 * Half of the prompt rows go to the prompt that came first, so that none starves; half to those that
 * are nearest to their first token, so that a short one does not wait for a long one. A prompt whose
 * next page another is computing waits for it. */
#pragma once

#include "core/model/batch.h"
#include "core/sched/pace.h"
#include "core/sched/request.h"

/* Prompt rows that join a step in any case: as many again as a handful of streams have. */
enum { BATCH_LEAST = 4 };

/* Of the time of the decode rows alone; twice is the promise, this leaves room for what the model of
 * time does not know. */
#define BATCH_STRETCH 1.8

struct plan {
    struct batch_row *rows;   /* [max_rows] */
    struct request **members; /* [max_running] each has its rows together, in this order */
    uint32_t *n_rows_of;      /* [max_running] of each member */
    struct request **wanted;  /* [max_running] who choose, in the order of their rows of logits */
    struct request **prompts; /* [max_running] scratch: those with prompt rows to compute */
    uint32_t *grants;         /* [max_running] scratch: rows for each of prompts */
    uint32_t max_rows;
    uint32_t n_rows, n_members, n_wanted, n_prompt_rows;
    uint32_t n_logits; /* rows */
    struct load load;  /* of all rows */
};

int plan_open(struct plan *p, uint32_t max_rows, uint32_t max_running, struct error *err);
void plan_close(struct plan *p);

struct plan_limits {
    uint32_t prompt_rows; /* 0 = by time, else so many at most */
    double step_ns;       /* longest step to aim for */
    const struct pace *pace;
};

/* running [n_running], none blocked twice over: rows of those that are not blocked, pages covered. */
void plan_fill(struct plan *p, struct request **running, uint32_t n_running,
               const struct plan_limits *limits, struct kv_pool *kv,
               struct prefix *prefix) ON_ENGINE;
