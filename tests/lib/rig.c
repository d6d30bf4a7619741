/* A scheduler without a model. */
#include "tests/lib/rig.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint32_t fold(uint32_t h, uint32_t id) { return (h ^ id) * 2654435761u + 12345; }

static uint32_t next_of(const struct rig *g, uint32_t h, uint32_t last)
{
    if (g->ends && (h >> 8) % 23 == 0)
        return RIG_END;
    if (g->habits && (h >> 5) % 8)
        return 3 + (last * 7 + 1) % 12;
    return 3 + (h >> 12) % (RIG_VOCAB - 3);
}

static float *slot(const struct rig *g, const struct seq *s, uint32_t pos)
{
    assert_true(pos / RIG_PAGE < s->n_pages);
    return (float *)kv_page_k(g->kv, s->pages[pos / RIG_PAGE], 0, 0) + pos % RIG_PAGE;
}

static void forward(void *arg, const struct batch *b)
{
    struct rig *g = arg;
    uint32_t n_wanted = 0;
    g->n_steps++;
    g->n_rows = b->n_rows;
    g->n_decode_rows = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct batch_row *row = &b->rows[i];
        bool follows = i && b->rows[i - 1].seq == row->seq;
        assert_int_equal(row->pos, follows ? b->rows[i - 1].pos + 1 : row->seq->n_tokens);
        assert_int_equal(kv_page_refs(g->kv, row->seq->pages[row->pos / RIG_PAGE]), 1);
        *slot(g, row->seq, row->pos) = (float)row->token;
    }
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct batch_row *row = &b->rows[i];
        bool alone = (!i || b->rows[i - 1].seq != row->seq) &&
                     (i + 1 == b->n_rows || b->rows[i + 1].seq != row->seq);
        if (row->logits_row < 0)
            continue;
        g->n_decode_rows += alone;
        assert_int_equal(row->logits_row, n_wanted++);
        float *logits = g->logits + (size_t)row->logits_row * RIG_VOCAB;
        uint32_t h = 0;
        for (uint32_t pos = 0; pos <= row->pos; pos++)
            h = fold(h, (uint32_t)*slot(g, row->seq, pos));
        for (uint32_t v = 0; v < RIG_VOCAB; v++)
            logits[v] = (float)(fold(h, v) >> 20) / 4096.0f;
        logits[next_of(g, h, row->token)] = 10;
    }
    assert_int_equal(n_wanted, b->n_logits);
}

uint32_t rig_expected(const struct rig *g, const uint32_t *ids, uint32_t n, uint32_t max_tokens,
                      uint32_t *answer, bool *ended)
{
    uint32_t h = 0, n_answer = 0, last = ids[n - 1];
    for (uint32_t i = 0; i < n; i++)
        h = fold(h, ids[i]);
    *ended = false;
    while (n_answer < max_tokens) {
        uint32_t id = next_of(g, h, last);
        if (id == RIG_END) {
            *ended = true;
            break;
        }
        answer[n_answer++] = last = id;
        h = fold(h, id);
    }
    return n_answer;
}

void rig_open(struct rig *g, const struct rig_options *o)
{
    static const uint32_t ends[] = {RIG_END};
    struct kv_geometry geometry = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .page_tokens = RIG_PAGE, .type = KV_F32};
    *g = (struct rig){.ends = o->ends, .habits = o->habits};
    thread_enter_loop();
    log_set_level(LOG_ERROR);
    uint32_t max_running = o->max_running ? o->max_running : 8;
    g->kv = kv_pool_open(&geometry, o->n_pages ? o->n_pages : 64, NULL);
    g->workers = workers_open(1, NULL);
    uint32_t max_logits = max_running + o->draft_rows;
    g->logits = mem_new((size_t)max_logits * RIG_VOCAB, sizeof(float));
    ready_open(&g->ready, NULL, NULL);
    struct scheduler_options options = {.kv = g->kv,
                                        .ends = ends,
                                        .n_ends = 1,
                                        .has_bos = !o->no_bos,
                                        .bos = RIG_BOS,
                                        .n_vocab = RIG_VOCAB,
                                        .n_ctx = o->n_ctx ? o->n_ctx : 256,
                                        .max_running = max_running,
                                        .max_rows = max_logits + (o->max_rows ? o->max_rows : 64),
                                        .max_logits = max_logits,
                                        .speculation = o->speculation,
                                        .prefill_chunk = o->prefill_chunk,
                                        .step_ms = 100,
                                        .sessions_auto_create = !o->no_auto_create,
                                        .workers = g->workers,
                                        .logits = g->logits,
                                        .forward = forward,
                                        .forward_arg = g};
    assert_int_equal(scheduler_open(&g->s, &options, &g->ready, &g->books, NULL), 0);
}

void rig_close(struct rig *g)
{
    struct kv_count c;
    scheduler_tend(&g->s);
    kv_count(g->kv, &c);
    assert_int_equal(c.n_used, 0);
    assert_int_equal(c.n_reserved, 0);
    assert_int_equal(atomic_load(&g->books.running), 0);
    assert_int_equal(atomic_load(&g->books.waiting), 0);
    scheduler_close(&g->s);
    ready_close(&g->ready);
    kv_pool_close(g->kv);
    workers_close(g->workers);
    free(g->logits);
}

void rig_submit(struct rig *g, struct answer *a, const struct request_params *params,
                const uint32_t *ids, uint32_t n)
{
    struct request_params p = *params;
    struct ids prompt = {0};
    struct error err;
    *a = (struct answer){0};
    p.sampling.repeat_penalty = 1;
    if (!p.sampling.n_logprobs)
        p.sampling.n_logprobs = -1;
    a->r = request_new(&p, &err);
    assert_non_null(a->r);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(ids_add(&prompt, ids[i], NULL), 0);
    request_set_ids(a->r, &prompt);
    a->r->number = g->n_requests++;
    a->r->submitted_ns = 1; /* long ago: any deadline is over */
    scheduler_take(&g->s, a->r);
}

void rig_read(struct rig *g, struct answer *a, uint32_t most)
{
    struct engine_event event;
    bool wake;
    (void)g;
    while (!a->done && most) {
        request_next_event(a->r, &event, &wake);
        switch (event.kind) {
        case EVENT_NONE:
            return;
        case EVENT_STARTED:
            assert_false(a->started);
            a->started = true;
            a->prompt_tokens = event.prompt_tokens;
            break;
        case EVENT_PROGRESS:
            assert_int_equal(a->n, 0);
            break;
        case EVENT_TOKEN:
            assert_true(a->n < RIG_ANSWER_MAX);
            a->id[a->n++] = event.choice.id;
            most--;
            break;
        case EVENT_DONE:
            a->done = true;
            a->result = *event.result;
            assert_int_equal(a->result.completion_tokens, a->n);
            request_release(a->r);
            a->r = NULL;
            break;
        }
    }
}

bool rig_step(struct rig *g)
{
    scheduler_tend(&g->s);
    ready_publish(&g->ready);
    bool computed = scheduler_step(&g->s);
    ready_publish(&g->ready);
    if (!computed)
        scheduler_tend(&g->s); /* books */
    ready_publish(&g->ready);
    return computed;
}

void rig_run(struct rig *g, struct answer *a, uint32_t n)
{
    for (uint32_t step = 0, n_done = 0; n_done < n; step++) {
        assert_true(step < 20000);
        rig_step(g);
        n_done = 0;
        for (uint32_t i = 0; i < n; i++) {
            rig_read(g, &a[i], UINT32_MAX);
            n_done += a[i].done;
        }
    }
    scheduler_tend(&g->s);
}

struct session_command rig_command(struct rig *g, enum session_verb verb, const char *id,
                                   const char *to, int64_t at)
{
    struct session_command c = {.verb = verb, .has_at = at >= 0, .at = (uint32_t)at};
    if (id)
        snprintf(c.id, sizeof(c.id), "%s", id);
    if (to)
        snprintf(c.to, sizeof(c.to), "%s", to);
    scheduler_command(&g->s, &c);
    ready_publish(&g->ready);
    assert_ptr_equal(ready_next_answer(&g->ready), &c);
    return c;
}

uint32_t rig_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

void rig_fill(uint32_t *ids, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = 3 + rig_random(&seed) % (RIG_VOCAB - 3);
}

void rig_expect(const struct rig *g, const struct answer *a, const uint32_t *timeline, uint32_t n,
                uint32_t max_tokens)
{
    uint32_t want[RIG_ANSWER_MAX];
    bool ended;
    uint32_t n_want = rig_expected(g, timeline, n, max_tokens, want, &ended);
    assert_true(a->done);
    assert_int_equal(a->n, n_want);
    assert_memory_equal(a->id, want, n_want * sizeof(*want));
    assert_int_equal(a->result.finish, ended ? FINISH_STOP : FINISH_LENGTH);
    assert_int_equal(a->result.stop, ended ? STOP_EOS : STOP_LIMIT);
    assert_int_equal(a->result.prompt_tokens, n);
}

void rig_expect_error(const struct answer *a, enum error_code code, const char *text)
{
    assert_true(a->done);
    assert_false(a->started);
    assert_int_equal(a->result.finish, FINISH_ERROR);
    assert_int_equal(a->result.error.code, code);
    if (strcmp(a->result.error.text, text) != 0)
        fail_msg("\"%s\", wanted \"%s\"", a->result.error.text, text);
}
