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
    DRAFT_MAX = 7,                 /* tokens of a draft */
    DRAFT_GUESSES = DRAFT_MAX + 1, /* what is picked behind a whole draft is compared too */
    DRAFT_ROWS = 24,               /* of all drafts of a step: more logits there are not */
};

/* Where a guess is from: where the last two tokens occurred before, or three; or further on where the
 * one before held, though the same words may have come again since. Each is trusted as it deserves. */
enum draft_kind { DRAFT_SHORT, DRAFT_LONG, DRAFT_GOES_ON, DRAFT_KINDS };

struct draft {
    uint32_t *ends; /* [n_ends] behind the last occurrence of a suffix with this hash; 0 = none */
    uint32_t n_ends, n_indexed;
    double held[DRAFT_KINDS], failed[DRAFT_KINDS]; /* guesses, fading */
    uint32_t from; /* of the timeline; what is there should come next; 0 = nothing is known */

    /* the guess for this step */
    enum draft_kind kind;
    uint32_t n;
    uint32_t id[DRAFT_GUESSES];
};

/* For a timeline of up to cap tokens. Without memory there will be no guesses. */
void draft_open(struct draft *d, uint32_t cap);
void draft_close(struct draft *d); /* zeroed is fine */

/* What guesses within the prompt, timeline [n], would have been worth: the first of the answer are
 * trusted as these were, but no more than a few of its own will outweigh. */
void draft_read(struct draft *d, const uint32_t *timeline, uint32_t n);

/* Guesses what follows timeline [n]; d->n = 0: nothing like its end occurred before. */
void draft_guess(struct draft *d, const uint32_t *timeline, uint32_t n);

/* What was picked: ids [n_picked], of which all but the last are as guessed. */
void draft_learn(struct draft *d, const uint32_t *picked, uint32_t n_picked);

/* Probability that a guessed token is picked where those before it were. */
double draft_hope(const struct draft *d);

/* Tokens that n rows of the guess will probably give: p + p^2 + ... + p^n. */
double draft_gain(const struct draft *d, uint32_t n);

/* How many tokens of the guess, at most `most`, pay as rows from position pos on in a step of `load`
 * that so far makes `tokens` (expected) and may become `limit_ns` long. */
uint32_t draft_rows(const struct draft *d, const struct pace *pace, const struct load *load,
                    double tokens, uint32_t pos, uint32_t most, double limit_ns);
