/* [05 scheduler] How long will a step take? A model of its time, measured at start and learnt from
 * every step:
 *
 *   ns = rows(n) + decode x (scores of decode rows) + prompt x (scores of prompt rows)
 *
 * rows(n), a line between knots at 1, 2, 4, ... rows, is weights read and arithmetic: nearly flat as
 * long as a step waits for memory, then rising with n. Scores are pairs of query and key, counted
 * over all rows; one row after another costs more for each than many of one prompt together.
 * It decides how many rows join a step, never what they give. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { PACE_KNOTS = 13 /* up to 4096 rows */, PACE_PARTS = PACE_KNOTS + 2 };

/* What a step computes. */
enum load_kind { LOAD_DECODE, LOAD_PROMPT, LOAD_KINDS };
struct load {
    uint32_t rows[LOAD_KINDS];
    double scores[LOAD_KINDS];
};

static inline uint32_t load_rows(const struct load *l)
{
    return l->rows[LOAD_DECODE] + l->rows[LOAD_PROMPT];
}

/* n rows more, from position pos on. */
void load_add(struct load *l, enum load_kind kind, uint32_t pos, uint32_t n);

struct pace {
    double part[PACE_PARTS];              /* ns of 2^i rows, never falling; then ns of a score */
    double doubt[PACE_PARTS][PACE_PARTS]; /* covariance of the errors of part */
    bool seen[PACE_KNOTS];                /* some step told about it */
    uint32_t most_rows;                   /* of a step so far */
};

void pace_open(struct pace *p);

/* A step took ns. */
void pace_learn(struct pace *p, const struct load *l, double ns);

/* How long a step will take; 0: nothing was learnt yet. */
double pace_ns(const struct pace *p, const struct load *l);

/* Prompt rows from position pos on, `most` at most, with which a step that already has `beside`
 * takes no longer than ns. */
uint32_t pace_rows(const struct pace *p, const struct load *beside, uint32_t pos, uint32_t most,
                   double ns);
