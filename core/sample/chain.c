/* [14 sample] the logits through the stages of sampler.def. All selection is by partial heaps:
 * vocabularies are large and what is left is small. Sums are double, in the order of the candidates,
 * which depends on the logits alone. */
#include "core/sample/chain.h"

#include "core/base/mem.h"
#include "core/sample/logprobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    struct sample_params params; /* biases are ours */
    uint32_t n_vocab;
    struct candidate *c; /* [n_vocab] */
    uint32_t *count;     /* [n_vocab], or NULL */
    float *raw;          /* [n_vocab] what logprobs are of, or NULL */
    double *block;
    float *peak;
};

static void (*const stages[])(struct chain *) = {
#define SAMPLER(id) sampler_##id,
#include "core/sample/sampler.def"
#undef SAMPLER
};

/* ---- opening ---- */

static int refuse(const char *field, double value, const char *wanted, struct error *err)
{
    return error_set_field(err, ERR_INVALID, field, "\"%s\" is %g, wanted is %s", field, value,
                           wanted);
}

int sampler_check(const struct sample_params *p, uint32_t n_vocab, struct error *err)
{
    if (!(p->temperature >= 0) || isinf(p->temperature))
        return refuse("temperature", p->temperature, "a number not below 0", err);
    if (isnan(p->top_p))
        return refuse("top_p", p->top_p, "a number", err);
    if (isnan(p->min_p))
        return refuse("min_p", p->min_p, "a number", err);
    if (!(p->repeat_penalty > 0) || isinf(p->repeat_penalty))
        return refuse("repeat_penalty", p->repeat_penalty, "a number above 0", err);
    if (!isfinite(p->presence_penalty))
        return refuse("presence_penalty", p->presence_penalty, "a number", err);
    if (!isfinite(p->frequency_penalty))
        return refuse("frequency_penalty", p->frequency_penalty, "a number", err);
    if (p->n_logprobs < -1 || p->n_logprobs > LOGPROBS_MAX)
        return refuse("logprobs", p->n_logprobs, "0 to 20", err);
    for (uint32_t i = 0; i < p->n_biases; i++)
        if (p->biases[i].id >= n_vocab || isnan(p->biases[i].bias))
            return error_set_field(err, ERR_INVALID, "logit_bias",
                                   "\"logit_bias\": token %u with %g, wanted are tokens below %u "
                                   "with numbers",
                                   p->biases[i].id, (double)p->biases[i].bias, n_vocab);
    return 0;
}

static bool has_penalties(const struct sample_params *p)
{
    return p->repeat_last_n != 0 &&
           (p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0);
}

struct sampler *sampler_open(const struct sample_params *params, uint32_t n_vocab,
                             struct error *err)
{
    if (sampler_check(params, n_vocab, err) < 0)
        return NULL;
    struct sampler *s = mem_new(1, sizeof(*s));
    if (s) {
        s->params = *params;
        s->n_vocab = n_vocab;
        s->c = mem_new(n_vocab, sizeof(*s->c));
        s->block = mem_new(n_vocab / CHAIN_BLOCK + 1, sizeof(*s->block));
        s->peak = mem_new(n_vocab / CHAIN_PEAK + 1, sizeof(*s->peak));
        s->count = mem_new(has_penalties(params) ? n_vocab : 0, sizeof(*s->count));
        s->raw = mem_new(params->n_logprobs < 0 ? 0 : n_vocab, sizeof(*s->raw));
        s->params.biases = mem_new(params->n_biases, sizeof(*params->biases));
    }
    if (!s || !s->c || !s->block || !s->peak || !s->count || !s->raw || !s->params.biases) {
        error_set(err, ERR_NO_MEMORY, "no memory to sample from %u tokens", n_vocab);
        sampler_close(s);
        return NULL;
    }
    if (params->n_biases)
        memcpy(s->params.biases, params->biases, params->n_biases * sizeof(*params->biases));
    return s;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    free(s->params.biases);
    free(s->c);
    free(s->count);
    free(s->raw);
    free(s->block);
    free(s->peak);
    free(s);
}

/* ---- order ---- */

/* Moves the candidate at i down a heap of n whose root is the first (or, worst_up, the last) in order. */
static void sift(struct candidate *c, uint32_t n, uint32_t i, bool worst_up)
{
    struct candidate moving = c[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && candidate_before(c[child + 1], c[child]) != worst_up)
            child++;
        if (candidate_before(moving, c[child]) != worst_up)
            break;
        c[i] = c[child];
    }
    c[i] = moving;
}

static void heapify(struct candidate *c, uint32_t n, bool worst_up)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(c, n, i, worst_up);
}

void chain_keep(struct chain *ch, uint32_t k)
{
    struct candidate *c = ch->c;
    if (ch->sorted) {
        ch->n = k < ch->n ? k : ch->n;
        return;
    }
    k = k < ch->n ? k : ch->n;
    heapify(c, k, true); /* the worst of the k best on top */
    for (uint32_t i = k; i < ch->n; i++)
        if (candidate_before(c[i], c[0])) {
            c[0] = c[i];
            sift(c, k, 0, true);
        }
    for (uint32_t left = k; left > 1;) { /* the worst goes to the end */
        struct candidate worst = c[0];
        c[0] = c[--left];
        c[left] = worst;
        sift(c, left, 0, true);
    }
    ch->n = k;
    ch->sorted = true;
}

float chain_best(const struct chain *ch)
{
    float best = ch->c[0].logit;
    for (uint32_t i = 1; i < ch->n && !ch->sorted; i++)
        best = ch->c[i].logit > best ? ch->c[i].logit : best;
    return best;
}

void chain_heapify(struct chain *ch)
{
    if (!ch->sorted)
        heapify(ch->c, ch->n, false);
}

struct candidate chain_next(struct chain *ch, uint32_t taken)
{
    if (ch->sorted)
        return ch->c[taken];
    struct candidate best = ch->c[0];
    uint32_t left = ch->n - taken - 1;
    ch->c[0] = ch->c[left];
    ch->c[left] = best; /* taken ones grow from the end */
    sift(ch->c, left, 0, false);
    return best;
}

void chain_taken(struct chain *ch, uint32_t m)
{
    if (!ch->sorted) {
        for (uint32_t i = 0; i < m; i++) { /* c[n - 1 - i] is the i-th best */
            uint32_t from = ch->n - 1 - i;
            struct candidate other = ch->c[i];
            if (from <= i)
                break;
            ch->c[i] = ch->c[from];
            ch->c[from] = other;
        }
    }
    ch->n = m;
    ch->sorted = true;
}

/* ---- picking ---- */

/* Nothing is possible: the lowest id that nobody banned, else that the caller did not ban, else 0.
 * The stages are over: the candidates are room for marks, so that many bans cost no more than few. */
static uint32_t lowest_allowed(struct chain *ch)
{
    enum { FREE, BIASED, BANNED };
    uint32_t lowest = 0;
    for (uint32_t id = 0; id < ch->n_vocab; id++)
        ch->c[id].id = FREE;
    for (uint32_t i = 0; i < ch->params->n_biases; i++)
        if (ch->params->biases[i].bias == -INFINITY)
            ch->c[ch->params->biases[i].id].id = BIASED;
    for (uint32_t i = 0; i < ch->n_banned; i++)
        if (ch->banned[i] < ch->n_vocab)
            ch->c[ch->banned[i]].id = BANNED;
    for (uint32_t id = 1; id < ch->n_vocab; id++)
        if (ch->c[id].id < ch->c[lowest].id)
            lowest = id;
    return lowest;
}

/* NOLINTNEXTLINE(readability-function-size): eight parameters, what a row consists of */
void sampler_pick(struct sampler *s, float *logits, uint32_t pos, const uint32_t *timeline,
                  uint32_t n_timeline, const uint32_t *banned, uint32_t n_banned,
                  struct sample_choice *choice)
{
    struct chain ch = {.params = &s->params,
                       .logits = logits,
                       .c = s->c,
                       .n_vocab = s->n_vocab,
                       .pos = pos,
                       .timeline = timeline,
                       .n_timeline = n_timeline,
                       .banned = banned,
                       .n_banned = n_banned,
                       .count = has_penalties(&s->params) ? s->count : NULL,
                       .block = s->block,
                       .peak = s->peak};
    bool wants_logprobs = s->params.n_logprobs >= 0;
    for (uint32_t id = 0; wants_logprobs && id < s->n_vocab; id++)
        s->raw[id] = logit_clean(logits[id]);
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++)
        stages[i](&ch);
    choice->id = ch.c[0].logit > -INFINITY ? ch.c[0].id : lowest_allowed(&ch);
    choice->logprob = 0;
    choice->n_top = 0;
    if (wants_logprobs)
        logprobs_fill(s->raw, s->n_vocab, (uint32_t)s->params.n_logprobs, choice);
}
