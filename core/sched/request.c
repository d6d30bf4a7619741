/* [03 queue] a request as the loop sees it: made, given its ids, polled, released. */
#include "core/sched/request.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/sched/ready.h"

#include <string.h>

static void params_free(struct request_params *p)
{
    for (uint32_t i = 0; p->stops && i < p->n_stops; i++)
        free(p->stops[i]);
    free(p->stops);
    free(p->n_stop);
    free(p->sampling.biases);
    p->stops = NULL;
    p->n_stop = NULL;
    p->sampling.biases = NULL;
    p->n_stops = p->sampling.n_biases = 0;
}

struct request *request_new(struct request_params *params, struct error *err)
{
    struct request *r = aligned_alloc(_Alignof(struct request), sizeof(*r));
    if (!r) {
        params_free(params);
        error_set(err, ERR_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    memset(r, 0, sizeof(*r));
    r->params = *params;
    params->stops = NULL;
    params->n_stop = NULL;
    params->sampling.biases = NULL;
    params->n_stops = params->sampling.n_biases = 0;
    r->root = PREFIX_NONE;
    if (ring_open(&r->ring, err)) {
        request_release(r);
        return NULL;
    }
    return r;
}

void request_set_ids(struct request *r, struct ids *ids)
{
    ids_free(&r->prompt);
    r->prompt = *ids;
    *ids = (struct ids){0};
}

const struct request_params *request_params(const struct request *r) { return &r->params; }

void request_set_owner(struct request *r, void *owner) { r->owner = owner; }

void *request_owner(const struct request *r) { return r->owner; }

void request_release(struct request *r)
{
    if (!r)
        return;
    if (r->is_ready) {
        thread_assert_loop();
        ready_remove(r->ready, r);
    }
    params_free(&r->params);
    ids_free(&r->prompt);
    ring_close(&r->ring);
    str_free(&r->tail);
    free(r);
}

size_t request_text_chunk(const struct request *r)
{
    if (r->text.n <= RING_TEXT_MAX)
        return r->text.n;
    return utf8_whole(r->text.s, RING_TEXT_MAX);
}

static bool next_token(struct request *r, struct engine_event *event, bool *wake_engine)
{
    if (!ring_pop(&r->ring, &r->record))
        return false;
    if (atomic_load(&r->wants_room) && ring_half_empty(&r->ring))
        *wake_engine = atomic_exchange(&r->wants_room, false);
    r->seen_prefilled = UINT32_MAX; /* no progress of the prompt after the first token */
    event->kind = EVENT_TOKEN;
    event->choice = r->record.choice;
    event->text = r->record.text;
    event->n_text = r->record.n_text;
    event->at_ns = r->record.at_ns;
    return true;
}

void request_next_event(struct request *r, struct engine_event *event, bool *wake_engine)
{
    memset(event, 0, offsetof(struct engine_event, choice));
    event->text = "";
    event->n_text = 0;
    event->result = NULL;
    *wake_engine = false;
    bool done = atomic_load(&r->done); /* before the ring: what is in it came earlier */
    if (!r->seen_started && atomic_load(&r->started)) {
        r->seen_started = true;
        event->kind = EVENT_STARTED;
        event->prompt_tokens = atomic_load(&r->n_prompt);
        event->at_ns = r->submitted_ns;
        return;
    }
    if (next_token(r, event, wake_engine))
        return;
    if (done && !r->seen_done) {
        r->seen_done = true;
        event->kind = EVENT_DONE;
        event->text = str_text(&r->tail);
        event->n_text = r->tail.n;
        event->at_ns = r->last_ns;
        event->result = &r->result;
        return;
    }
    uint32_t n_prefilled = atomic_load(&r->n_prefilled);
    if (!done && r->seen_started && n_prefilled > r->seen_prefilled) {
        r->seen_prefilled = n_prefilled;
        event->kind = EVENT_PROGRESS;
        event->prefilled = n_prefilled;
        event->prompt_tokens = atomic_load(&r->n_prompt);
        event->at_ns = atomic_load(&r->prefilled_ns);
    }
}

void request_info(const struct request *r, struct request_info *info)
{
    info->phase = (enum request_phase)atomic_load(&r->phase);
    info->prompt_tokens = atomic_load(&r->n_prompt);
    info->prefilled = atomic_load(&r->n_prefilled);
    info->completion_tokens = atomic_load(&r->n_completion);
    info->age_ms = (double)(clock_ns() - r->submitted_ns) / 1e6;
}
