/* A matrix that stands alone, as tests and benchmarks of the kernels need it (a model's lie in one
 * block), and a worker's share of a product. */
#pragma once

#include "core/kernel/matmul.h"

#include <stdlib.h>
#include <string.h>

/* Panels of its own, zeroed. */
static inline int matrix_open(struct matrix *w, enum quant_id type, uint32_t n_out, uint32_t n_in,
                              struct error *err)
{
    if (matrix_shape(w, type, n_out, n_in, err))
        return -1;
    uint8_t *panels = aligned_alloc(64, w->n_bytes);
    if (!panels)
        abort();
    memset(panels, 0, w->n_bytes);
    matrix_place(w, panels, w->panel_bytes);
    return 0;
}

static inline void matrix_close(struct matrix *w)
{
    free(w->panels);
    *w = (struct matrix){0};
}

/* The worker's slice of the panels. */
static inline void matmul_slice(const struct matrix *w, const struct matmul_input *in,
                                const struct matmul_output *out, const struct worker *worker)
{
    uint32_t begin, end;
    worker_slice(worker, w->n_panels, &begin, &end);
    if (begin < end)
        matmul_run_panels(w, in, out, begin, end, worker->id);
}
