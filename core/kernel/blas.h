/* [kernel] OpenBLAS, opened at run time: its core type must be set before the library loads. It
 * is used for float matrices and many rows, one thread per call, each worker its own columns. */
#pragma once

#include "core/base/error.h"
#include "core/kernel/matmul.h"

/* What the library will read from the environment when it is loaded, once. Before other threads are
 * there: they may be reading the environment while it is changed. */
void blas_prepare(void);

/* Start-up. Opens the library once (it stays open) and allocates a scratch for each worker. name
 * gets "OpenBLAS version core". -1: no library, or it did not recognise this machine. */
int blas_open(char *name, size_t n_name, struct error *err);

/* Whether worker `id` may call blas_run. */
bool blas_ready(uint32_t id);

/* Panels [begin, end), all rows (matmul_run_panels). */
void blas_run(const struct matrix *w, const struct matmul_input *in,
              const struct matmul_output *out, uint32_t begin, uint32_t end, uint32_t worker);

uint64_t blas_calls(void);
