/* [16 stream] one request's tokens on their way out: single writer, single reader, no locks. */
#include "core/sched/ring.h"

#include "core/base/mem.h"

#include <string.h>

struct record_head {
    uint64_t at_ns;
    uint32_t id, n_top, n_text;
    float logprob;
};

enum {
    RECORD_MAX = sizeof(struct record_head) + LOGPROBS_MAX * sizeof(struct logprob) + RING_TEXT_MAX
};

int ring_open(struct ring *r, struct error *err)
{
    atomic_init(&r->begin, 0);
    atomic_init(&r->end, 0);
    r->bytes = mem_new(RING_BYTES, 1);
    if (!r->bytes)
        return error_set(err, ERR_NO_MEMORY, "no memory for a request's ring of %d bytes",
                         RING_BYTES);
    return 0;
}

void ring_close(struct ring *r)
{
    free(r->bytes);
    r->bytes = NULL;
}

/* Copies n bytes to or from position at, round the end. */
static void put(struct ring *r, uint32_t *at, const void *from, size_t n)
{
    size_t offset = *at % RING_BYTES, first = RING_BYTES - offset < n ? RING_BYTES - offset : n;
    memcpy(r->bytes + offset, from, first);
    memcpy(r->bytes, (const uint8_t *)from + first, n - first);
    *at += (uint32_t)n;
}

static void get(const struct ring *r, uint32_t *at, void *to, size_t n)
{
    size_t offset = *at % RING_BYTES, first = RING_BYTES - offset < n ? RING_BYTES - offset : n;
    memcpy(to, r->bytes + offset, first);
    memcpy((uint8_t *)to + first, r->bytes, n - first);
    *at += (uint32_t)n;
}

static uint32_t n_used(const struct ring *r)
{
    uint32_t begin = atomic_load(&r->begin); /* first: end never falls behind it */
    return atomic_load(&r->end) - begin;
}

uint32_t ring_room(const struct ring *r) { return (RING_BYTES - n_used(r)) / RECORD_MAX; }

bool ring_half_empty(const struct ring *r) { return n_used(r) <= RING_BYTES / 2; }

void ring_push(struct ring *r, const struct sample_choice *choice, const char *text, size_t n_text,
               uint64_t at_ns)
{
    uint32_t end = atomic_load_explicit(&r->end, memory_order_relaxed);
    struct record_head head = {.at_ns = at_ns,
                               .id = choice->id,
                               .n_top = choice->n_top,
                               .n_text = (uint32_t)n_text,
                               .logprob = choice->logprob};
    ASSERT(n_text <= RING_TEXT_MAX && choice->n_top <= LOGPROBS_MAX && ring_room(r));
    put(r, &end, &head, sizeof(head));
    put(r, &end, choice->top, choice->n_top * sizeof(choice->top[0]));
    put(r, &end, text, n_text);
    atomic_store(&r->end, end);
}

bool ring_pop(struct ring *r, struct ring_record *record)
{
    uint32_t begin = atomic_load_explicit(&r->begin, memory_order_relaxed);
    struct record_head head;
    if (begin == atomic_load(&r->end))
        return false;
    get(r, &begin, &head, sizeof(head));
    ASSERT(head.n_text <= RING_TEXT_MAX && head.n_top <= LOGPROBS_MAX);
    record->at_ns = head.at_ns;
    record->choice.id = head.id;
    record->choice.logprob = head.logprob;
    record->choice.n_top = head.n_top;
    record->n_text = head.n_text;
    get(r, &begin, record->choice.top, head.n_top * sizeof(record->choice.top[0]));
    get(r, &begin, record->text, head.n_text);
    atomic_store(&r->begin, begin);
    return true;
}
