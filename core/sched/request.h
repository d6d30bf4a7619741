/* [03 queue] One request, from engine_submit to EVENT_DONE.
 *
 * Who may touch what:
 *   the loop's until submit, constant after   params, prompt, number, submitted_ns
 *   the engine's from submit to `done`        timeline, seq, sampler, detok and the rest of its part
 *   both                                      the ring, the atomics (who writes stands beside each)
 *   the loop's                                seen_*, record, owner
 *   the loop's after `done`                   result, tail
 * The engine stores `done` last, under the mutex of ready.c, and never touches the request again.
 *
 * Who holds what: the request owns its params, ids, ring, timeline, sampler, detok and (by seq) one
 * reference to each page of its timeline; a session owns its token ids and has its requests in line;
 * the scheduler's lists own nothing. finish.c gives back everything but the request itself, which
 * request_release frees. */
#pragma once

#include "core/engine.h"
#include "core/kv/prefix.h"
#include "core/sched/draft.h"
#include "core/sched/ring.h"
#include "core/text/detok.h"

#include <stdatomic.h>
#include <sys/queue.h>

struct ready;
struct session;

enum request_state {
    STATE_LINE,    /* another request of its session is before it */
    STATE_WAITING, /* checked; waits for a slot and pages */
    STATE_RUNNING,
};

struct request {
    struct ring ring;
    struct request_params params;
    struct ids prompt;
    uint64_t number; /* order of arrival */
    uint64_t submitted_ns;

    atomic_bool cancel;            /* the loop: please end */
    atomic_bool wants_room;        /* the engine sets, the loop clears: wake me when half empty */
    atomic_bool done;              /* the engine, last of all */
    atomic_bool started;           /* the engine */
    atomic_uint phase;             /* the engine: enum request_phase */
    atomic_uint n_prompt;          /* the engine: tokens of the timeline before the answer */
    atomic_uint n_prefilled;       /* the engine: of these, in pages */
    atomic_uint n_completion;      /* the engine */
    _Atomic uint64_t prefilled_ns; /* the engine: when n_prefilled rose */
    struct request_result result;
    struct str tail; /* text that comes with EVENT_DONE */

    struct ready *ready; /* whose list it may be in */
    TAILQ_ENTRY(request) ready_link;
    bool is_ready; /* in that list: under its mutex */

    /* the loop's */
    bool seen_started, seen_done;
    uint32_t seen_prefilled;
    void *owner;
    struct ring_record record;

    /* the engine's */
    enum request_state state;
    bool touched;  /* in the list of those with news in this step */
    bool finished; /* nothing but the news of it is left */
    bool ran;      /* a row of it was computed, or found in the cache */
    bool blocked;  /* its ring is full */
    struct request *touched_next;
    TAILQ_ENTRY(request) live_link, wait_link, line_link;
    struct session *session; /* NULL = anonymous */
    uint32_t *timeline;      /* [cap_timeline] ids */
    uint32_t n_timeline, cap_timeline;
    uint32_t n_max; /* tokens to generate: max_tokens, at most what the context leaves */
    uint32_t root;  /* its tree of prefixes, or PREFIX_NONE */
    struct seq seq;
    struct sampler *sampler;
    struct detok *detok; /* NULL where the model has no tokenizer */
    struct draft draft;
    uint32_t n_draft;   /* ids of it behind the timeline, computed in this step */
    uint32_t n_choices; /* of this step: one, and one more for each id of the draft that held */
    struct sample_choice choices[1 + DRAFT_MAX];
    uint32_t logits_row;                  /* of the first */
    struct str text;                      /* decoded, not yet in the ring */
    uint64_t start_ns, first_ns, last_ns; /* first row, first token, last token */
};

TAILQ_HEAD(request_list, request);

/* No token of the answer was chosen yet. */
static inline bool request_in_prompt(const struct request *r) { return !r->first_ns; }

/* Text that may go into one record now: at most RING_TEXT_MAX bytes, whole characters. */
size_t request_text_chunk(const struct request *r);

/* The loop's part of engine.h's request_poll. *wake_engine: the engine waits for the room that was
 * made. */
void request_next_event(struct request *r, struct engine_event *event, bool *wake_engine) ON_LOOP;
