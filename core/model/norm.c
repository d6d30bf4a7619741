/* [07 norm] brings every row to one scale, so that depth neither blows it up nor fades it out.
 *
 * LayerNorm: y = (x - mean) / sqrt(var + eps) * gain + bias (Ba et al. 2016).
 * RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019). x, y, gain, bias [dim].
 * Where norms stand is arch.h's norm_place: before a branch here, the other two in block.c.
 *
 * A late RMSNorm makes h = x * gain column by column, and the product that reads it multiplies its rows
 * by 1 / sqrt(mean(x^2) + eps) (stages.h). */
#include "core/kernel/ops.h"
#include "core/kernel/panel.h"
#include "core/model/stages.h"

#include <math.h>
#include <string.h>

bool norm_is_late(const struct model *m)
{
    return m->h.arch->norm == NORM_RMS && m->h.arch->norm_places == NORM_BEFORE;
}

/* A place without a norm passes x on. */
void norm_row(const struct model *m, const struct norm *w, const float *x, float *y)
{
    if (!w->gain)
        memmove(y, x, m->h.dim * sizeof(*y));
    else if (m->h.arch->norm == NORM_RMS)
        ops_rms_norm(x, w->gain, m->h.norm_eps, y, m->h.dim);
    else
        ops_layer_norm(x, w->gain, w->bias, m->h.norm_eps, y, m->h.dim);
}

/* One panel's columns of rows [row, end). */
static void gain_panel(const struct step *s, const struct into *into, uint32_t n_rows,
                       uint32_t panel, uint32_t row, uint32_t end)
{
    const struct model *m = s->m;
    uint32_t dim = m->h.dim, k = panel * PANEL_ROWS;
    bool keep = feed_floats(s, into->to);
    struct ops_gain job = {.x = s->a->x + (size_t)row * dim + k,
                           .x_stride = dim,
                           .gain = into->norm->gain + k,
                           .h = keep ? s->a->h.x + (size_t)row * dim + k : s->scratch->tile,
                           .h_stride = keep ? dim : PANEL_ROWS,
                           .square = s->a->square + (size_t)panel * m->max_rows + row,
                           .n_rows = end - row,
                           .n = dim - k < PANEL_ROWS ? dim - k : PANEL_ROWS};
    struct planes_part part = {
        .x = job.h, .stride = job.h_stride, .row = row, .n_rows = job.n_rows, .k = k, .n = job.n};
    struct matmul_input in = feed_input(s, into->to, &s->a->h, n_rows);
    ops_gain(&job);
    matmul_quantise_part(&in, &part);
}

void norm_panels(const struct step *s, const struct into *into, uint32_t n_rows, uint32_t begin,
                 uint32_t end)
{
    for (uint32_t i = begin; i < end; i++)
        gain_panel(s, into, n_rows, i, 0, n_rows);
}

void norm_rows(const struct step *s, const struct into *into, uint32_t n_rows, uint32_t begin,
               uint32_t end)
{
    const struct model *m = s->m;
    uint32_t dim = m->h.dim;
    if (norm_is_late(m)) {
        for (uint32_t i = 0; i * PANEL_ROWS < dim && begin < end; i++)
            gain_panel(s, into, n_rows, i, begin, end);
        return;
    }
    struct matmul_input in = feed_input(s, into->to, &s->a->h, n_rows);
    for (uint32_t r = begin; r < end; r++) {
        float *h = feed_floats(s, into->to) ? s->a->h.x + (size_t)r * dim : s->scratch->row;
        struct planes_part part = {.x = h, .row = r, .n_rows = 1, .n = dim};
        norm_row(m, into->norm, s->a->x + (size_t)r * dim, h);
        matmul_quantise_part(&in, &part);
    }
}

/* Each worker for itself: a sum over the panels, in order. */
const float *norm_scale(const struct step *s, uint32_t n_rows)
{
    const struct model *m = s->m;
    const float *square = s->a->square;
    float *scale = s->scratch->scale;
    if (!norm_is_late(m) || !worker_takes(s->worker))
        return NULL;
    memset(scale, 0, n_rows * sizeof(*scale));
    for (uint32_t k = 0; k < m->h.dim; k += PANEL_ROWS, square += m->max_rows)
        for (uint32_t r = 0; r < n_rows; r++)
            scale[r] += square[r];
    for (uint32_t r = 0; r < n_rows; r++)
        scale[r] = 1.0F / sqrtf(scale[r] * (1.0F / (float)m->h.dim) + m->h.norm_eps);
    return scale;
}

struct matmul_input norm_input(const struct step *s, const struct stack *w, const struct norm *norm,
                               const float *scale, uint32_t n_rows)
{
    struct matmul_input in = feed_input(s, w, &s->a->h, n_rows);
    if (s->m->activations != ACTIVATIONS_INT8 || in.activations != ACTIVATIONS_INT16 ||
        !worker_takes(s->worker))
        return in;
    const float value = matmul_least(w->fine * norm->rms);
    for (uint32_t r = 0; r < n_rows; r++) /* a late norm's rows are not divided yet */
        s->scratch->least[r] = scale ? value / scale[r] : value;
    matmul_choose(&in, s->scratch->least, s->scratch->fine);
    return in;
}
