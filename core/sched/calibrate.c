/* [05 scheduler] what a step costs, measured before the first request. One forward pass touches the
 * memory, then passes of 1, 8, 16 and 64 rows are timed, as many as together stay under CALIBRATE_NS. So
 * a small model knows what a row costs when prompts come; and a big one, whose one pass may take as
 * long, is not late for it: it learns from its first steps. What the passes write is forgotten: their
 * pages go back. */
#include "core/base/clock.h"
#include "core/sched/scheduler.h"

enum { CALIBRATE_ROWS = 64 };
#define CALIBRATE_NS 25e6 /* of those that are measured; the first may be longer */

/* n rows from position 0 on, logits of as many as there is room for, as decode rows have them. */
ON_ENGINE static double pass(struct scheduler *s, const struct seq *seq, uint32_t n)
{
    struct batch batch = {.rows = s->plan.rows, .n_rows = n};
    for (uint32_t i = 0; i < n; i++) {
        bool wanted = batch.n_logits < s->o.max_running && n < CALIBRATE_ROWS;
        s->plan.rows[i] = (struct batch_row){.token = i % s->o.n_vocab,
                                             .pos = i,
                                             .seq = seq,
                                             .logits_row = wanted ? (int32_t)batch.n_logits : -1};
        batch.n_logits += wanted;
    }
    uint64_t begin = clock_ns();
    s->o.forward(s->o.forward_arg, &batch);
    return (double)(clock_ns() - begin);
}

void scheduler_calibrate(struct scheduler *s)
{
    static const uint32_t sizes[] = {1, 8, 16, CALIBRATE_ROWS};
    struct seq seq;
    uint32_t most = s->o.n_ctx < s->o.max_rows ? s->o.n_ctx : s->o.max_rows;
    most = most < CALIBRATE_ROWS ? most : CALIBRATE_ROWS;
    if (seq_open(&seq, s->o.kv, most, NULL))
        return;
    if (seq_reserve(&seq, s->o.kv, most)) {
        seq_cover(&seq, s->o.kv, most);
        double cold = pass(s, &seq, 1); /* memory is touched for the first time: tells little */
        double next = cold / 2, all = 0;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct load l = {0};
            load_add(&l, sizes[i] < CALIBRATE_ROWS ? LOAD_DECODE : LOAD_PROMPT, 0, sizes[i]);
            next = i ? pace_ns(&s->pace, &l) / 2 : next; /* in proportion at most, mostly less */
            if (sizes[i] > most || all + next > CALIBRATE_NS)
                break;
            next = pass(s, &seq, sizes[i]);
            pace_learn(&s->pace, &l, next);
            all += next;
        }
    }
    seq_close(&seq, s->o.kv);
}
