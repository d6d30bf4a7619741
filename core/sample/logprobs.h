/* [14 sample] Log-probabilities as answers carry them: of softmax(logits), before any stage of
 * sampling. */
#pragma once

#include "core/sample/sample.h"

/* What stands for the logarithm of 0, which JSON cannot say (clients know it from OpenAI). */
#define LOGPROB_OF_ZERO (-9999.0f)

/* logits [n_vocab] without NaN and +inf, choice->id set: fills logprob, n_top and top. */
void logprobs_fill(const float *logits, uint32_t n_vocab, uint32_t n_top,
                   struct sample_choice *choice);
