/* [05 scheduler] the one way out of a request: finished, cancelled, late or failed. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/sched/scheduler.h"

#include <string.h>

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

ON_ENGINE static void leave_lists(struct scheduler *s, struct request *r)
{
    TAILQ_REMOVE(&s->live, r, live_link);
    if (r->state == STATE_WAITING)
        TAILQ_REMOVE(&s->waiting, r, wait_link);
    if (r->state != STATE_RUNNING) {
        s->n_waiting--;
        return;
    }
    uint32_t i = 0;
    while (s->running[i] != r)
        i++;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (s->n_running - i) * sizeof(struct request *));
}

static void fill_times(struct request *r)
{
    struct request_result *result = &r->result;
    uint64_t now = clock_ns(), started = r->start_ns ? r->start_ns : now;
    uint64_t first = r->first_ns ? r->first_ns : now;
    result->queue_ms = ms_between(r->submitted_ns, started);
    result->prefill_ms = ms_between(started, first);
    result->ttft_ms = ms_between(r->submitted_ns, first);
    result->decode_ms = r->first_ns ? ms_between(first, r->last_ns) : 0;
    r->last_ns = now;
}

/* Text that did not leave with a token: what the ring had no room for, what was held back. */
static void fill_tail(struct request *r)
{
    if (r->detok)
        detok_finish(r->detok, &r->text);
    str_free(&r->tail);
    r->tail = r->text;
    r->text = (struct str){0};
}

/* An aborted prefill leaves complete pages only; they were published as they were completed. */
ON_ENGINE static void give_back_pages(struct scheduler *s, struct request *r)
{
    if (!r->seq.pages)
        return;
    if (r->first_ns || r->seq.n_tokens == r->n_timeline)
        prefix_publish_tail(s->prefix, r->root, r->timeline, &r->seq);
    seq_close(&r->seq, s->o.kv);
}

/* Ended, or began to answer. What was cut off before that was not delivered: its session is as it was,
 * so that the same prompt can be sent again. */
static bool delivered(const struct request *r)
{
    return r->first_ns || r->result.finish == FINISH_STOP || r->result.finish == FINISH_LENGTH;
}

/* The timeline becomes the session's where something of it was delivered. */
ON_ENGINE static void leave_session(struct scheduler *s, struct request *r)
{
    if (!r->session)
        return;
    if (r->ran && delivered(r) && !r->session->deleted) {
        session_keep(&s->sessions, r->session, r->timeline, r->n_timeline, r->root);
        r->timeline = NULL;
    }
    r->result.session_tokens = r->session->n_ids;
    session_leave(&s->sessions, r->session, r);
}

void scheduler_finish(struct scheduler *s, struct request *r, enum finish_reason finish,
                      enum stop_type stop)
{
    ASSERT(!r->finished);
    r->result.finish = finish;
    r->result.stop = stop;
    r->result.completion_tokens = atomic_load(&r->n_completion);
    fill_times(r);
    fill_tail(r);
    if (finish == FINISH_CANCELLED)
        atomic_fetch_add(&s->books->requests_cancelled, 1);
    leave_lists(s, r);
    give_back_pages(s, r);
    leave_session(s, r);
    prefix_root_drop(s->prefix, r->root);
    r->root = PREFIX_NONE;
    free(r->timeline);
    r->timeline = NULL;
    draft_close(&r->draft);
    sampler_close(r->sampler);
    r->sampler = NULL;
    detok_close(r->detok);
    r->detok = NULL;
    r->finished = true;
    ready_touch(s->ready, r);
}

void scheduler_fail(struct scheduler *s, struct request *r, const struct error *err)
{
    r->result.error = *err;
    scheduler_finish(s, r, FINISH_ERROR, STOP_NONE);
}
