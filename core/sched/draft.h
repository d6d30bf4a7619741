/* [05 scheduler] What may come next, from the text itself (prompt lookup: A. Saxena, "Prompt lookup
 * decoding", 2023): where the last tokens of a timeline occurred before in it, what followed there. A
 * draft is computed in the same step as the row before it, and a token of it holds exactly when the
 * sampler, with that position's own random number, picks it: answers are the same with and without.
 *
 * Whether that pays is known without paying: each guess is compared with what was picked, drafted or
 * not. A draft is as long as what it will probably gain exceeds what its rows cost (pace.h).
 *
 * One request owns a draft. ON_ENGINE. */
#pragma once

#include "core/base/error.h"
#include "core/sched/pace.h"

#include <stdbool.h>
#include <stdint.h>

enum speculation { SPECULATION_AUTO, SPECULATION_OFF, SPECULATION_ON };

enum {
    DRAFT_MAX = 7,   /* tokens of a draft */
    DRAFT_ROWS = 24, /* of all drafts of a step: more logits there are not */
    DRAFT_SUFFIXES = 2,
};

struct draft {
    uint32_t *ends; /* [n_ends] behind the last occurrence of a suffix with this hash; 0 = none */
    uint32_t n_ends, n_indexed;
    double held[DRAFT_SUFFIXES], failed[DRAFT_SUFFIXES]; /* guesses, fading; by suffix length */

    /* the guess for this step */
    uint32_t n, suffix;
    uint32_t id[DRAFT_MAX];
};

/* For a timeline of up to cap tokens. Without memory there will be no guesses. */
void draft_open(struct draft *d, uint32_t cap);
void draft_close(struct draft *d); /* zeroed is fine */

/* Guesses what follows timeline [n]; d->n = 0: nothing like its end occurred before. */
void draft_guess(struct draft *d, const uint32_t *timeline, uint32_t n);

/* What was picked: ids [n_picked], of which the first n_picked - 1 are as guessed; n_rows of the guess
 * were computed with it. */
void draft_learn(struct draft *d, const uint32_t *picked, uint32_t n_picked, uint32_t n_rows);

/* Probability that a guessed token is picked where those before it were. */
double draft_hope(const struct draft *d);

/* Tokens that n rows of the guess will probably give: p + p^2 + ... + p^n. */
double draft_gain(const struct draft *d, uint32_t n);

/* How many tokens of the guess, at most `most`, pay as rows from position pos on in a step of `load`
 * that so far makes `tokens` (expected) and may become `limit_ns` long. */
uint32_t draft_rows(const struct draft *d, const struct pace *pace, const struct load *load,
                    double tokens, uint32_t pos, uint32_t most, double limit_ns);
