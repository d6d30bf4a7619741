/* [kernel] Y = X W^T + b: weights packed once into panels, activations quantised once per input.
 *
 *   matrix         W [n_out, n_in], packed; its panels lie in a block of the caller
 *   matmul_input   X [n_rows, n_in], as float rows and, where a quantised matrix will read it, as
 *                  planes of int8 with one scale per 32 values (a view: buffers are the caller's)
 *
 * Bits (README: the same bits): an element of Y depends on its row of X and its row of W only, never
 * on n_rows, the panel range, the worker or their number; OpenBLAS (below) excepted.
 * ANY_THREAD: const on matrices; each worker writes its own panels' columns of Y. */
#pragma once

#include "core/base/error.h"
#include "core/base/workers.h"
#include "core/kernel/fine.h"
#include "core/kernel/planes.h"
#include "core/kernel/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum activations { ACTIVATIONS_INT8, ACTIVATIONS_INT16, ACTIVATIONS_FLOAT };

struct matrix {
    uint32_t panel; /* enum panel_id (panel.h) */
    uint32_t n_out, n_in;
    uint32_t n_panels;
    size_t panel_bytes; /* from panel to panel */
    uint8_t *panels;    /* [n_panels, panel_bytes], 64-byte aligned; NULL = no matrix */
    size_t n_bytes;     /* of all panels, without what lies between */
};

/* A matrix of n_out x n_in weights of a file type, without panels: n_bytes says what they take. They
 * come by matrix_place, to zeroed memory that outlives the matrix, panel_bytes apart (more than a panel
 * where others lie between). */
int matrix_shape(struct matrix *w, enum quant_id type, uint32_t n_out, uint32_t n_in,
                 struct error *err);
void matrix_place(struct matrix *w, uint8_t *panels, size_t panel_bytes);

/* Packs n_rows rows of the file's type, the first at `data`, to rows out_begin and on. Workers may
 * pack disjoint panels at once; a panel is one worker's. */
void matrix_pack(struct matrix *w, enum quant_id type, const uint8_t *data, uint32_t out_begin,
                 uint32_t n_rows);

/* One row, dequantised, bit for bit what the file's type defines: [n_in]. */
void matrix_row(const struct matrix *w, uint32_t row, float *out);

struct matmul_input {
    const float *x; /* [n_rows, n_in], 64-byte aligned */
    uint32_t n_rows, n_in;
    enum activations activations;
    uint8_t *buffer; /* the quantised planes and scales, or NULL: float matrices only */
    const uint8_t
        *fine; /* of int16: which blocks are read so (fine.h), the others as int8; NULL: all */
};

/* What matmul_choose is given for a row whose blocks of 32 values are read in 16 bits where one of them is
 * at least `value` large, the others in their upper 8 bits, which are as good as int8. A row's outliers
 * cost it accuracy, for each shares its scale with 31 others. */
float matmul_least(float value);

/* Sets in->fine for quantised rows. least [n_rows]; room: matmul_fine_bytes for at least as many rows,
 * is read as long as `in` is. */
size_t matmul_fine_bytes(uint32_t n_rows, uint32_t n_in);
void matmul_choose(struct matmul_input *in, const float *least, uint8_t *room);

/* Bytes of buffer for at most n_rows rows of n_in values. */
size_t matmul_input_bytes(uint32_t n_rows, uint32_t n_in, enum activations activations);

/* Quantises rows [begin, end) of in->x into in->buffer. No-op for ACTIVATIONS_FLOAT or no buffer.
 * Barrier before matmul_run_panels. */
void matmul_quantise(const struct matmul_input *in, uint32_t begin, uint32_t end);

/* The same for some columns of some rows, from where the part says, not from in->x. */
void matmul_quantise_part(const struct matmul_input *in, const struct planes_part *part);

/* What becomes of the products p = scale x W^T + bias. */
enum matmul_store {
    MATMUL_SET, /* y = p */
    MATMUL_ADD  /* y = y + p: one addition, after the whole of p */
};

/* Memory that someone will read next, fetched to the second-level cache while blocks are multiplied, some
 * lines for each: multiplying many rows leaves the memory idle. */
struct matmul_fetch {
    const uint8_t *at, *end;                 /* what is left of a range */
    bool (*more)(struct matmul_fetch *next); /* sets the next one; false: that was all */
};

struct matmul_output {
    float *y; /* [n_rows, stride] floats, of which n_out are written */
    size_t stride;
    uint32_t first;     /* y begins with the columns of this panel */
    const float *scale; /* [n_rows] or NULL: of rows, as a norm divides them; not with MATMUL_ADD */
    const float *bias;  /* [n_out] or NULL */
    enum matmul_store store;
    struct matmul_fetch *fetch; /* the caller's own, or NULL; of quantised matrices */
};

enum { MATMUL_BLAS_ROWS = 64 }; /* fewer are not worth OpenBLAS's while */

/* The columns of panels [begin, end) of W (first <= begin < end <= w->n_panels; 32 each), all rows.
 * n_rows 1 .. any. Panels may be computed in any order by anyone: bits do not depend on it. worker:
 * who calls (OpenBLAS has a scratch for each). OpenBLAS is used where matmul_blas(true) was said, W is
 * float and n_rows >= MATMUL_BLAS_ROWS; but where W is BF16, activations are int8 or some blocks are
 * read as int8, and the level is CPU_AVX512BF16, rows of X are rounded to BF16 instead. */
void matmul_run_panels(const struct matrix *w, const struct matmul_input *in,
                       const struct matmul_output *out, uint32_t begin, uint32_t end,
                       uint32_t worker);

/* Sets OpenBLAS's environment, before threads are started (blas.h). */
void matmul_blas_prepare(void);

/* Lets float matrices use OpenBLAS (start-up; default off). Returns -1 with the reason where the
 * library or a usable core is missing. name: e.g. "OpenBLAS 0.3.21 SkylakeX". */
int matmul_blas(bool on, char *name, size_t n_name, struct error *err);
uint64_t matmul_blas_calls(void); /* sgemm calls so far */
