/* [14 sample] logprob(i) = x_i - max - ln(sum_j exp(x_j - max)), summed in double in order of
 * ids. */
#include "core/sample/logprobs.h"

#include <math.h>

/* The n_top best, best first, of equal ones the lowest id: by insertion, for n_top is small. */
static uint32_t best_of(const float *logits, uint32_t n_vocab, uint32_t n_top, struct logprob *top)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < n_vocab && n_top; id++) {
        if (n == n_top && !(logits[id] > top[n - 1].logprob))
            continue;
        uint32_t at = n < n_top ? n++ : n - 1;
        for (; at && top[at - 1].logprob < logits[id]; at--)
            top[at] = top[at - 1];
        top[at] = (struct logprob){.id = id, .logprob = logits[id]};
    }
    return n;
}

static float relative(float logit, double max, double log_sum)
{
    double p = (double)logit - max - log_sum;
    return p > (double)LOGPROB_OF_ZERO ? (float)p : LOGPROB_OF_ZERO;
}

void logprobs_fill(const float *logits, uint32_t n_vocab, uint32_t n_top,
                   struct sample_choice *choice)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        max = (double)logits[i] > max ? (double)logits[i] : max;
    if (max == -INFINITY)
        max = 0; /* nothing is possible: every logprob is that of 0 */
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - max);
    double log_sum = sum > 0 ? log(sum) : 0;
    choice->logprob = relative(logits[choice->id], max, log_sum);
    choice->n_top = best_of(logits, n_vocab, n_top, choice->top);
    for (uint32_t i = 0; i < choice->n_top; i++)
        choice->top[i].logprob = relative(choice->top[i].logprob, max, log_sum);
}
