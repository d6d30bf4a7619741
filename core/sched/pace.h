/* [05 scheduler] How long will a step take? A model of its time, learnt from the steps so far:
 *
 *   ns = base + row x rows + score x scores        (scores: pairs of query and key, of all rows)
 *
 * base is the reading of the weights, row the arithmetic of one token, score the attention, which
 * grows with the position. It decides how many prompt rows join a step, never what they give. */
#pragma once

#include <stdint.h>

struct pace {
    double step_ns;       /* to aim for */
    double cost[3];       /* ns: base, of a row, of a score; never negative */
    double m[3][3], v[3]; /* weighted sums of the steps so far: m cost = v */
    uint32_t most_rows;   /* of a step so far */
};

void pace_open(struct pace *p, uint32_t step_ms);

/* A step of so many rows and scores took ns. */
void pace_learn(struct pace *p, uint32_t rows, double scores, double ns);

/* The time that is left for prompt rows beside so many decode rows and their scores. */
double pace_left(const struct pace *p, uint32_t rows, double scores);

/* Rows from position pos on that fit into ns; *ns becomes what they do not use. */
uint32_t pace_rows(const struct pace *p, uint32_t pos, uint32_t most, double *ns);
