/* [07 norm] brings every row to one scale, so that depth neither blows it up nor fades it out.
 *
 * LayerNorm: y = (x - mean) / sqrt(var + eps) * gain + bias (Ba et al. 2016).
 * RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019). x, y, gain, bias [dim].
 * Where norms stand is arch.h's norm_place: before a branch here, the other two in block.c. */
#include "core/kernel/ops.h"
#include "core/model/stages.h"

#include <string.h>

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

void norm_apply(const struct step *s, const struct norm *w)
{
    uint32_t begin, end;
    step_rows(s, s->batch->n_rows, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        norm_row(s->m, w, s->a->x + (size_t)r * s->m->h.dim, s->a->h + (size_t)r * s->m->h.dim);
}
