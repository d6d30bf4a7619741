/* [base] what rounded activations cost: the same text with activations float, int8 and int16, and
 * how far the distributions of the next token are from those of float. */
#include "core/base/mem.h"
#include "core/base/sort.h"
#include "core/tool.h"
#include "core/tool_run.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, LEAST = 2 }; /* rows of a step; tokens of a text */

static const enum activations modes[TOOL_ACCURACIES] = {ACTIVATIONS_FLOAT, ACTIVATIONS_INT8,
                                                        ACTIVATIONS_INT16};
static const char *const names[TOOL_ACCURACIES] = {"float", "int8", "int16"};

/* What is kept of a position in one mode. */
struct position {
    double kl;    /* of float to the mode, nats */
    double loss;  /* -log p(next token), where there is a next one */
    bool flipped; /* another token is the most likely one */
};

struct study {
    struct tool_run run;
    struct tool_accuracy *job;
    struct ids ids;
    uint32_t window;
    float *reference;                            /* [CHUNK, n_vocab]: logits of the float mode */
    struct position *positions[TOOL_ACCURACIES]; /* [ids.n] */
};

/* One step's rows, compared. */
struct comparison {
    const struct study *study;
    uint32_t mode, begin, n, window_end; /* positions begin .. begin + n of the text */
};

/* Log of the sum of exp; *top: index of the largest, the lowest of equals. */
static double log_sum(const float *x, uint32_t n, uint32_t *top)
{
    double sum = 0;
    *top = 0;
    for (uint32_t i = 1; i < n; i++)
        *top = x[i] > x[*top] ? i : *top;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)x[*top]);
    return (double)x[*top] + log(sum);
}

/* KL(p || q) = sum p (log p - log q), of two rows of logits. */
static struct position compare(const float *p, const float *q, uint32_t n, const uint32_t *next)
{
    uint32_t p_top, q_top;
    double p_log = log_sum(p, n, &p_top), q_log = log_sum(q, n, &q_top), kl = 0;
    for (uint32_t i = 0; i < n; i++)
        kl += exp((double)p[i] - p_log) * ((double)p[i] - (double)q[i]);
    return (struct position){.kl = kl - p_log + q_log,
                             .loss = next ? q_log - (double)q[*next] : 0,
                             .flipped = p_top != q_top};
}

static void compare_worker(const struct worker *worker, void *arg)
{
    const struct comparison *c = arg;
    const struct study *s = c->study;
    uint32_t n_vocab = s->run.o.info.n_vocab;
    struct share share = share_begin(worker, c->n, 1);
    for (uint32_t i, end; share_take(&share, &i, &end);)
        for (; i < end; i++) {
            uint32_t at = c->begin + i;
            s->positions[c->mode][at] =
                compare(s->reference + (size_t)i * n_vocab, s->run.o.logits + (size_t)i * n_vocab,
                        n_vocab, at + 1 < c->window_end ? &s->ids.id[at + 1] : NULL);
        }
}

/* Positions [begin, end) of the text as a timeline of their own, each step in every mode in turn. */
static void run_window(struct study *s, uint32_t begin, uint32_t end)
{
    struct tool_run *run = &s->run;
    for (int mode = 0; mode < TOOL_ACCURACIES; mode++)
        run->seqs[mode].n_tokens = 0;
    for (uint32_t at = begin, n; at < end; at += n) {
        n = end - at < CHUNK ? end - at : CHUNK;
        for (uint32_t mode = 0; mode < TOOL_ACCURACIES; mode++) {
            struct comparison c = {s, mode, at, n, end};
            model_set_activations(run->o.model, modes[mode]);
            tool_run_append(run, &run->seqs[mode], s->ids.id + at, n, true);
            if (mode == 0)
                memcpy(s->reference, run->o.logits, sizeof(float) * n * run->o.info.n_vocab);
            workers_run(run->o.workers, compare_worker, &c);
        }
    }
}

/* Sums up one mode. kl: room for [n]. */
static int sum_up(const struct study *s, uint32_t mode, double *kl, struct error *err)
{
    struct tool_accuracy *job = s->job;
    struct tool_accuracy_of *of = &job->of[mode];
    double loss = 0;
    *of = (struct tool_accuracy_of){.activations = names[mode]};
    for (uint32_t i = 0; i < s->ids.n; i++) {
        const struct position *p = &s->positions[mode][i];
        kl[i] = p->kl < 0 ? 0 : p->kl; /* less is rounding */
        of->mean_kl += kl[i] / s->ids.n;
        of->flips += (double)p->flipped / s->ids.n;
        loss += p->loss;
    }
    sort_doubles(kl, s->ids.n);
    of->p99_kl = kl[(uint64_t)(s->ids.n - 1) * 99 / 100];
    of->max_kl = kl[s->ids.n - 1];
    of->perplexity = exp(loss / job->n_predicted);
    if (!isfinite(of->mean_kl) || !isfinite(of->perplexity))
        return error_set(err, ERR_FORMAT, "%s: with %s activations its logits are not finite",
                         job->model, names[mode]);
    return 0;
}

static int read_ids(struct study *s, struct error *err)
{
    const struct tool_accuracy *job = s->job;
    struct text *text = tool_text(job->model, err);
    int rc = -1;
    if (!text)
        return -1;
    if (!text_has_tokenizer(text))
        error_set(err, ERR_UNSUPPORTED, "%s has no tokenizer", job->model);
    else
        rc = text_encode(text, job->text, job->n_text, false, &s->ids, err);
    text_close(text);
    if (rc == 0 && s->ids.n < LEAST)
        return error_set(err, ERR_INVALID, "the text has %u tokens, wanted are at least %d",
                         s->ids.n, LEAST);
    return rc;
}

static int study_open(struct study *s, struct error *err)
{
    struct engine_options e = s->job->engine;
    struct open_options options = {.engine = &e, .max_rows = CHUNK, .max_logits = CHUNK};
    if (read_ids(s, err))
        return -1;
    s->window = s->job->window < s->ids.n ? s->job->window : s->ids.n;
    e.model = s->job->model;
    e.activations = "int16"; /* has room for the others */
    if (tool_run_open(&s->run, &options, TOOL_ACCURACIES, s->window, err))
        return -1;
    if (tool_run_check(&s->run, s->ids.id, s->ids.n, err))
        return -1;
    s->reference = mem_new((size_t)CHUNK * s->run.o.info.n_vocab, sizeof(float));
    for (int mode = 0; mode < TOOL_ACCURACIES; mode++) {
        s->positions[mode] = mem_new(s->ids.n, sizeof(struct position));
        if (!s->positions[mode])
            return error_set(err, ERR_NO_MEMORY, "no memory for %u positions", s->ids.n);
    }
    return s->reference ? 0
                        : error_set(err, ERR_NO_MEMORY, "no memory for %d rows of logits", CHUNK);
}

int tool_accuracy(struct tool_accuracy *job, struct error *err)
{
    struct study s = {.job = job};
    double *kl = NULL;
    int rc = -1;
    if (study_open(&s, err))
        goto out;
    kl = mem_new(s.ids.n, sizeof(*kl));
    if (!kl) {
        error_set(err, ERR_NO_MEMORY, "no memory for %u positions", s.ids.n);
        goto out;
    }
    job->n_tokens = s.ids.n;
    job->n_predicted = s.ids.n - (s.ids.n + s.window - 1) / s.window;
    for (uint32_t at = 0; at < s.ids.n; at += s.window)
        run_window(&s, at, s.ids.n - at < s.window ? s.ids.n : at + s.window);
    for (uint32_t mode = 0; mode < TOOL_ACCURACIES; mode++)
        if (sum_up(&s, mode, kl, err))
            goto out;
    rc = 0;
out:
    free(kl);
    free(s.reference);
    for (int mode = 0; mode < TOOL_ACCURACIES; mode++)
        free(s.positions[mode]);
    ids_free(&s.ids);
    tool_run_close(&s.run);
    return rc;
}
