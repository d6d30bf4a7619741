/* [05 scheduler] Who runs: takes requests in, starts them when a slot and their pages are free,
 * runs step after step, and ends each of them on one path. All of it is the engine thread's.
 *
 *   take (in line of its session) -> admit (check, build the timeline) -> wait -> start (share
 *   prefixes, reserve pages) -> step (plan, forward, sample, emit) ... -> finish
 *
 * It knows no files and no layers: the forward pass is a function that it is given. */
#pragma once

#include "core/base/workers.h"
#include "core/sched/batch.h"
#include "core/sched/pace.h"
#include "core/sched/probe.h"
#include "core/sched/ready.h"
#include "core/sched/session.h"

struct scheduler_options {
    struct kv_pool *kv;
    const struct text *text; /* NULL: no tokenizer, answers are ids alone */
    const uint32_t *ends;    /* [n_ends] end tokens, rising */
    uint32_t n_ends;
    bool has_bos;
    uint32_t bos;
    uint32_t n_vocab, n_ctx;
    uint32_t max_running, max_rows, prefill_chunk, step_ms;
    uint32_t max_logits; /* rows; those beyond max_running are for drafts */
    enum speculation speculation;
    bool sessions_auto_create;
    struct workers *workers;
    float *logits;                                     /* [max_logits, n_vocab] */
    void (*forward)(void *arg, const struct batch *b); /* writes KV and logits */
    void *forward_arg;
};

/* Books, stored by the engine after each step, read anywhere. */
struct scheduler_books {
    _Atomic uint64_t steps, rows, tokens_in, tokens_out, tokens_cached, requests_cancelled;
    _Atomic uint64_t tokens_drafted, drafts_held;
    atomic_uint running, waiting, sessions;
    atomic_uint pages_used, pages_cached, pages_free, pages_reserved;
    _Atomic double last_step_ms, longest_step_ms;
};

struct scheduler {
    struct scheduler_options o;
    struct scheduler_books *books;
    struct ready *ready;
    struct prefix *prefix;
    struct sessions sessions;
    struct pace pace;
    struct probe probe;
    struct plan plan;
    struct request_list live;    /* every request taken and not finished */
    struct request_list waiting; /* checked, in the order in which they start */
    uint32_t n_waiting;          /* of live: not running */
    struct request **running;    /* [max_running] higher priority first, then by arrival */
    uint32_t n_running;
};

int scheduler_open(struct scheduler *s, const struct scheduler_options *o, struct ready *ready,
                   struct scheduler_books *books, struct error *err);
void scheduler_close(struct scheduler *s) ON_ENGINE; /* after scheduler_end */

void scheduler_take(struct scheduler *s, struct request *r) ON_ENGINE;
void scheduler_command(struct scheduler *s, struct session_command *c) ON_ENGINE;

/* Between steps: ends what was cancelled or is late, checks those whose turn has come, starts what
 * fits. News is collected in ready; the caller publishes it. */
void scheduler_tend(struct scheduler *s) ON_ENGINE;

/* Runs one step. False: nothing to compute now. */
bool scheduler_step(struct scheduler *s) ON_ENGINE;

/* Clock of the next deadline, 0 = none. */
uint64_t scheduler_deadline(const struct scheduler *s) ON_ENGINE;

/* Ends everything: what runs as cancelled, what waits with ERR_DRAINING. */
void scheduler_end(struct scheduler *s) ON_ENGINE;

/* calibrate.c: before the first request, measures what a step costs. */
void scheduler_calibrate(struct scheduler *s) ON_ENGINE;

/* ---- its files ---- */

static inline bool scheduler_is_end(const struct scheduler *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->o.n_ends; i++)
        if (s->o.ends[i] == id)
            return true;
    return false;
}

/* speculate.c: the drafts of the next step, into the requests. */
void scheduler_speculate(struct scheduler *s) ON_ENGINE;

/* admit.c: builds the timeline of a request whose turn in its session has come and checks it; it then
 * waits, or has ended with its error. */
void scheduler_admit(struct scheduler *s, struct request *r) ON_ENGINE;

/* finish.c: the one way out. Takes r out of every list, gives back pages, sampler and text, leaves
 * its timeline to its session. r is the loop's after the next ready_publish. */
void scheduler_finish(struct scheduler *s, struct request *r, enum finish_reason finish,
                      enum stop_type stop) ON_ENGINE;
void scheduler_fail(struct scheduler *s, struct request *r, const struct error *err) ON_ENGINE;
