/* [05 scheduler] The rows of the next step: the decode row of every running request first, then as
 * many prompt rows as the step's time allows. Half of these go to the prompt that came first, so
 * that none starves; half to those that are nearest to their first token, so that a short one does
 * not wait for a long one. A prompt whose next page another is computing waits for it. */
#pragma once

#include "core/model/batch.h"
#include "core/sched/pace.h"
#include "core/sched/request.h"

enum { BATCH_LEAST = 16 }; /* prompt rows that join a step in any case */

struct plan {
    struct batch_row *rows;   /* [max_rows] */
    struct request **members; /* [max_running] each has its rows together, in this order */
    uint32_t *n_rows_of;      /* [max_running] of each member */
    struct request **wanted;  /* [max_running] whose logits rows are 0.. */
    struct request **prompts; /* [max_running] scratch: those with prompt rows to compute */
    uint32_t *grants;         /* [max_running] scratch: rows for each of prompts */
    uint32_t max_rows;
    uint32_t n_rows, n_members, n_wanted, n_prompt_rows;
    double scores; /* of all rows */
};

int plan_open(struct plan *p, uint32_t max_rows, uint32_t max_running, struct error *err);
void plan_close(struct plan *p);

/* running [n_running], none blocked twice over: rows of those that are not blocked, pages covered.
 * prompt_rows: 0 = by pace, else so many at most. */
void plan_fill(struct plan *p, struct request **running, uint32_t n_running, uint32_t prompt_rows,
               const struct pace *pace, struct kv_pool *kv, struct prefix *prefix) ON_ENGINE;
