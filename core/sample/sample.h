/* [14 sample] logits -> the next token. One sampler belongs to one request; it sees logits and ids
 * only. Random numbers are a function of (seed, position), so that batching cannot shift them; equal
 * logits: the lowest id wins. sampler_pick may run on any worker (a row each). */
#pragma once

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOGPROBS_MAX = 20 };

struct logit_bias {
    uint32_t id;
    float bias; /* added to the logit; -inf bans */
};

struct sample_params {
    double temperature; /* 0 = greedy */
    uint32_t top_k;     /* 0 = off */
    double top_p, min_p;
    double repeat_penalty; /* 1 = off */
    int32_t repeat_last_n; /* window of the three penalties; 0 = off, -1 = whole timeline */
    double presence_penalty, frequency_penalty;
    uint64_t seed;
    struct logit_bias *biases; /* [n_biases], the request's */
    uint32_t n_biases;
    int32_t n_logprobs; /* -1 = none, 0..LOGPROBS_MAX alternatives */
};

struct sample_defaults { /* where the request is silent */
    double temperature, top_p, min_p;
    uint32_t top_k;
};

struct logprob {
    uint32_t id;
    float logprob; /* of softmax(logits) before temperature, penalties and bias */
};

struct sample_choice {
    uint32_t id;
    float logprob; /* where n_logprobs >= 0 */
    uint32_t n_top;
    struct logprob top[LOGPROBS_MAX]; /* most probable first, then lowest id */
};

struct sampler;

/* Are the params in range? sampler_open asks too; alone it needs no memory. */
int sampler_check(const struct sample_params *params, uint32_t n_vocab, struct error *err);

/* params are copied (biases too). banned: tokens never chosen while n_generated < min_tokens or
 * ignore_eos asks so are passed to sampler_pick. Allocates all it will need. */
struct sampler *sampler_open(const struct sample_params *params, uint32_t n_vocab,
                             struct error *err);
void sampler_close(struct sampler *s); /* NULL is fine */

/* Chooses from logits [n_vocab] (which it may overwrite) the token of position pos. timeline
 * [n_timeline]: the ids so far, for penalties. banned [n_banned]: never chosen. NaN logits count
 * as -inf; if nothing is left the lowest id that is not banned. */
void sampler_pick(struct sampler *s, float *logits, uint32_t pos, const uint32_t *timeline,
                  uint32_t n_timeline, const uint32_t *banned, uint32_t n_banned,
                  struct sample_choice *choice);
