/* [05 scheduler] how long will a step take: least squares over the steps so far, older ones fading.
 * Errors are relative (each step is weighted with 1 / ns^2), so that short decode steps, which tell
 * base, count as much as long ones, which tell the slopes. */
#include "core/sched/pace.h"

#include <math.h>

static const double fade = 0.97; /* a step's weight after each later one */

enum { SWEEPS = 8, ROWS_AT_FIRST = 16, OUTLIER = 4 };

void pace_open(struct pace *p, uint32_t step_ms) { *p = (struct pace){.step_ns = step_ms * 1e6}; }

/* Coordinate descent on m cost = v from the estimate before, clamped at 0: what the last steps do not
 * tell (no prompt rows for long) stays as it was. */
static void solve(struct pace *p)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < 3; i++) {
            double rest = p->v[i];
            for (int j = 0; j < 3; j++)
                rest -= j == i ? 0 : p->m[i][j] * p->cost[j];
            if (p->m[i][i] > 0)
                p->cost[i] = rest > 0 ? rest / p->m[i][i] : 0;
        }
    }
}

void pace_learn(struct pace *p, uint32_t rows, double scores, double ns)
{
    double x[3] = {1, rows, scores};
    double guess = p->cost[0] + p->cost[1] * rows + p->cost[2] * scores;
    if (p->most_rows && ns > OUTLIER * guess) /* another process took the processors */
        ns = OUTLIER * guess;
    if (ns < 1)
        ns = 1;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            p->m[i][j] = p->m[i][j] * fade + x[i] * x[j] / (ns * ns);
        p->v[i] = p->v[i] * fade + x[i] / ns;
    }
    p->most_rows = rows > p->most_rows ? rows : p->most_rows;
    solve(p);
}

double pace_left(const struct pace *p, uint32_t rows, double scores)
{
    return p->step_ns - p->cost[0] - p->cost[1] * rows - p->cost[2] * scores;
}

/* n rows from pos on: n row + score (n pos + n (n + 1) / 2) <= ns, the positive root. */
uint32_t pace_rows(const struct pace *p, uint32_t pos, uint32_t most, double *ns)
{
    uint32_t trusted = p->most_rows * 2 > ROWS_AT_FIRST ? p->most_rows * 2 : ROWS_AT_FIRST;
    double a = p->cost[2] / 2, b = p->cost[1] + p->cost[2] * (pos + 0.5), n = trusted;
    most = most < trusted ? most : trusted; /* do not leap far beyond what was measured */
    if (*ns <= 0)
        return 0;
    if (a > 0)
        n = (sqrt(b * b + 4 * a * *ns) - b) / (2 * a);
    else if (b > 0)
        n = *ns / b;
    uint32_t rows = n < most ? (uint32_t)n : most;
    *ns -= rows * b + a * rows * (double)rows;
    return rows;
}
