/* [05 scheduler] how long will a step take: a Kalman filter (R. Kalman, "A new approach to linear
 * filtering and prediction problems", 1960) whose state, the parts of the model, drifts slowly; each
 * step is one measurement of their weighted sum. Errors are relative, so that short decode steps count
 * as much as long ones. What a step does not tell stays as it was: a long prompt beside running
 * streams does not make forget how long they take alone. */
#include "core/sched/pace.h"

#include <string.h>

/* Parts of the whole: how far a step's time is from its mean, and how far a part drifts in a step. */
static const double noise = 0.1, drift = 0.02;
/* Before any is measured: a score costs a row / 1e4, and no more than ten times that is likely. */
static const double row_scores = 1e4, likely = 10;

enum { ROWS_AT_FIRST = 16 };

void load_add(struct load *l, enum load_kind kind, uint32_t pos, uint32_t n)
{
    l->rows[kind] += n;
    l->scores[kind] += (double)n * pos + (double)n * (n + 1.0) / 2;
}

void pace_open(struct pace *p) { *p = (struct pace){0}; }

static double rows_at(uint32_t knot) { return (double)(1u << knot); }

/* The knots on both sides of n rows (1 <= n): the first, and the weight of the second. */
static uint32_t place(uint32_t n, double *weight)
{
    uint32_t i = 0;
    while (i < PACE_KNOTS - 2 && rows_at(i + 1) <= n)
        i++;
    *weight = (n - rows_at(i)) / rows_at(i);
    return i;
}

/* Beyond the last knot the line goes on. */
static double rows_ns(const struct pace *p, uint32_t n)
{
    double weight;
    uint32_t i = n ? place(n, &weight) : 0;
    return n ? p->part[i] + weight * (p->part[i + 1] - p->part[i]) : 0;
}

double pace_ns(const struct pace *p, const struct load *l)
{
    double ns = rows_ns(p, load_rows(l));
    for (int kind = 0; kind < LOAD_KINDS; kind++)
        ns += p->part[PACE_KNOTS + kind] * l->scores[kind];
    return ns;
}

/* Knots that no step told about: as long as the first known below that, in proportion to the rows
 * above the last, on a line between two. And none is lower than the one before. */
static void fill(struct pace *p)
{
    uint32_t before = PACE_KNOTS;
    for (uint32_t i = 0; i < PACE_KNOTS; i++) {
        if (!p->seen[i])
            continue;
        for (uint32_t k = before == PACE_KNOTS ? 0 : before + 1; k < i; k++) {
            double part = before == PACE_KNOTS
                              ? 1
                              : (rows_at(k) - rows_at(before)) / (rows_at(i) - rows_at(before));
            double from = before == PACE_KNOTS ? 0 : p->part[before];
            p->part[k] = from + part * (p->part[i] - from);
        }
        before = i;
    }
    for (uint32_t i = before + 1; i < PACE_KNOTS; i++)
        p->part[i] = 2 * p->part[i - 1];
}

/* More rows do not take less time: where two knots say so, the truth is between them, nearer to the
 * one that is less in doubt; knots below n_fixed stay. */
static void keep_rising(struct pace *p, uint32_t n_fixed)
{
    double most = 0;
    for (uint32_t i = 0, last = PACE_KNOTS; i < PACE_KNOTS; i++) {
        if (!p->seen[i])
            continue;
        if (last < i && last >= n_fixed && p->part[last] > p->part[i]) {
            double a = p->doubt[last][last], b = p->doubt[i][i];
            double way = a + b > 0 ? b / (a + b) : 0.5;
            p->part[last] = p->part[i] += way * (p->part[last] - p->part[i]);
        }
        last = i;
    }
    for (uint32_t i = 0; i < PACE_KNOTS; i++) {
        if (p->seen[i] && p->part[i] < most)
            p->part[i] = most;
        most = p->seen[i] ? p->part[i] : most;
    }
}

/* How much of each part a step is made of: x, so that part . x is its time. Returns the knot that it
 * tells most about. */
static uint32_t parts_of(const struct load *l, double x[PACE_PARTS])
{
    double weight;
    uint32_t i = place(load_rows(l), &weight);
    memset(x, 0, PACE_PARTS * sizeof(*x));
    x[i] = 1 - weight;
    x[i + 1] = weight;
    for (int kind = 0; kind < LOAD_KINDS; kind++)
        x[PACE_KNOTS + kind] = l->scores[kind];
    return weight < 0.5 ? i : i + 1;
}

static void first(struct pace *p, const struct load *l, double ns)
{
    double x[PACE_PARTS];
    uint32_t knot = parts_of(l, x);
    p->seen[knot] = true;
    p->part[knot] = ns;
    for (int kind = 0; kind < LOAD_KINDS; kind++) {
        double score = ns / (load_rows(l) * row_scores), doubt = score * likely;
        p->part[PACE_KNOTS + kind] = score;
        p->doubt[PACE_KNOTS + kind][PACE_KNOTS + kind] = doubt * doubt;
    }
    fill(p);
    for (uint32_t i = 0; i < PACE_KNOTS; i++)
        p->doubt[i][i] = p->part[i] * p->part[i] / 4;
}

/* Time has passed: every part is a little less certain, up to its own size. */
static void age(struct pace *p)
{
    for (int i = 0; i < PACE_PARTS; i++) {
        double size = p->part[i] * p->part[i];
        if (p->doubt[i][i] < size)
            p->doubt[i][i] += drift * drift * size;
    }
}

/* What decode rows cost is told by steps without prompt rows; beside these, which may be most of the
 * step, it would be a guess. Their knots and scores stay as they are. */
static uint32_t fixed_knots(const struct load *l)
{
    double weight;
    uint32_t n = l->rows[LOAD_DECODE];
    return n && l->rows[LOAD_PROMPT] ? place(n, &weight) + 1 + (weight > 0) : 0;
}

/* part . x was measured as ns: the filter's update. Fixed parts are not moved, but the others' doubt
 * about them changes all the same, or the covariance would be none any more (S. Schmidt, "Application
 * of state-space methods to navigation problems", 1966). */
static void measure(struct pace *p, const struct load *l, const double x[PACE_PARTS], double ns,
                    double error)
{
    double dx[PACE_PARTS], gain[PACE_PARTS], all = 0;
    for (uint32_t i = 0; i < PACE_PARTS; i++) {
        dx[i] = 0;
        for (uint32_t j = 0; j < PACE_PARTS; j++)
            dx[i] += p->doubt[i][j] * x[j];
        all += x[i] * dx[i];
    }
    all = (all > 0 ? all : 0) + noise * noise * ns * ns;
    for (uint32_t i = 0, n_fixed = fixed_knots(l); i < PACE_PARTS; i++)
        gain[i] = i < n_fixed || (n_fixed && i == PACE_KNOTS + LOAD_DECODE) ? 0 : dx[i] / all;
    for (uint32_t i = 0; i < PACE_PARTS; i++) {
        double part = p->part[i] + gain[i] * error, least = p->part[i] / 10;
        p->part[i] = part > least ? part : least;
        for (uint32_t j = 0; j < PACE_PARTS; j++)
            p->doubt[i][j] += gain[i] * gain[j] * all - gain[i] * dx[j] - dx[i] * gain[j];
    }
}

void pace_learn(struct pace *p, const struct load *l, double ns)
{
    double x[PACE_PARTS], guess = pace_ns(p, l);
    uint32_t rows = load_rows(l);
    if (!rows)
        return;
    ns = ns > 1 ? ns : 1;
    p->most_rows = rows > p->most_rows ? rows : p->most_rows;
    if (guess <= 0) {
        first(p, l, ns);
        return;
    }
    uint32_t knot = parts_of(l, x);
    if (p->seen[knot] && ns > 2 * guess) /* another process took the processors */
        ns = 2 * guess;
    age(p);
    measure(p, l, x, ns, ns - guess);
    p->seen[knot] = true;
    keep_rising(p, fixed_knots(l));
    fill(p);
}

static bool fits(const struct pace *p, const struct load *beside, uint32_t pos, uint32_t n,
                 double ns)
{
    struct load l = *beside;
    load_add(&l, LOAD_PROMPT, pos, n);
    return pace_ns(p, &l) <= ns;
}

uint32_t pace_rows(const struct pace *p, const struct load *beside, uint32_t pos, uint32_t most,
                   double ns)
{
    uint32_t trusted = p->most_rows * 2 > ROWS_AT_FIRST ? p->most_rows * 2 : ROWS_AT_FIRST;
    trusted = trusted > load_rows(beside) ? trusted - load_rows(beside) : 0;
    uint32_t least = 0, beyond = (most < trusted ? most : trusted) + 1; /* no far leap */
    while (beyond - least > 1) {
        uint32_t n = least + (beyond - least) / 2;
        if (fits(p, beside, pos, n, ns))
            least = n;
        else
            beyond = n;
    }
    return least;
}
