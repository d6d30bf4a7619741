/* [kernel] OpenBLAS. Debian's build does not know new processors and falls back to SSE3
 * ("Prescott", 4.8 times slower, measured), so its core is chosen here, by what the processor can
 * do. */
#include "core/kernel/blas.h"

#include "core/base/mem.h"
#include "core/kernel/cpu.h"
#include "core/kernel/panel.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A scratch holds floats [K_CHUNK, N_CHUNK] of W: OpenBLAS repacks its operands in each call, so
 * that calls of one panel (32 columns) would cost twice the time. */
enum { K_CHUNK = 512, N_CHUNK = 256, WORKERS_MAX = 256, ROW_MAJOR = 101, NO_TRANS = 111 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

static struct {
    void *library;
    sgemm_fn *sgemm;
    float *scratch; /* [n_workers, K_CHUNK, N_CHUNK] */
    uint32_t n_workers;
    atomic_uint_fast64_t calls;
} blas;

void blas_prepare(void)
{
    static bool done;
    enum cpu_level best = cpu_detect();
    if (done)
        return;
    done = true;
    const char *core = best >= CPU_AVX512 ? "SkylakeX" : best >= CPU_AVX2 ? "Haswell" : NULL;
    if (core)
        setenv("OPENBLAS_CORETYPE", core, 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* its own threads would stand beside our workers */
}

/* dlsym gives an object pointer; POSIX lets it be a function's. */
static void find(void *library, const char *symbol, void *fn)
{
    void *address = dlsym(library, symbol);
    memcpy(fn, &address, sizeof(address));
}

/* "OpenBLAS 0.3.21 NO_LAPACKE ..." and the core's name. */
static void describe(const char *config, const char *core, char *name, size_t n_name)
{
    char library[32] = "", version[32] = "";
    if (sscanf(config, "%31s %31s", library, version) != 2)
        snprintf(library, sizeof(library), "OpenBLAS");
    snprintf(name, n_name, "%s %s %s", library, version, core);
}

static int open_scratch(struct error *err)
{
    long n = sysconf(_SC_NPROCESSORS_CONF);
    uint32_t n_workers = n < 8 ? 8 : n > WORKERS_MAX ? WORKERS_MAX : (uint32_t)n;
    size_t n_bytes = sizeof(float) * K_CHUNK * N_CHUNK * n_workers;
    blas.scratch = mem_big_new(n_bytes, MEM_ACTIVATIONS);
    if (!blas.scratch)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes beside OpenBLAS", n_bytes);
    blas.n_workers = n_workers;
    return 0;
}

int blas_open(char *name, size_t n_name, struct error *err)
{
    char *(*corename)(void), *(*config)(void);
    void (*set_threads)(int);
    if (!blas.library) {
        blas_prepare();
        blas.library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
        if (!blas.library)
            return error_set(err, ERR_IO, "OpenBLAS: %s", dlerror());
    }
    find(blas.library, "openblas_get_corename", &corename);
    find(blas.library, "openblas_get_config", &config);
    find(blas.library, "openblas_set_num_threads", &set_threads);
    find(blas.library, "cblas_sgemm", &blas.sgemm);
    if (!corename || !config || !set_threads || !blas.sgemm)
        return error_set(err, ERR_UNSUPPORTED, "libopenblas.so.0 is not OpenBLAS as we know it");
    describe(config(), corename(), name, n_name);
    if (strcasecmp(corename(), "Prescott") == 0)
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: it does not know this processor and would use SSE3 "
                         "(OPENBLAS_CORETYPE names another core)",
                         name);
    set_threads(1);
    return blas.scratch ? 0 : open_scratch(err);
}

bool blas_ready(uint32_t id) { return id < blas.n_workers; }

uint64_t blas_calls(void) { return atomic_load(&blas.calls); }

/* Rows [k, k + n_k) of panels [begin, begin + n_panels) as [n_k, n_panels * PANEL_ROWS]. */
static void unpack(const struct matrix *w, uint32_t begin, uint32_t n_panels, uint32_t k,
                   uint32_t n_k, float *out)
{
    size_t stride = (size_t)n_panels * PANEL_ROWS;
    const struct panel *p = panel_table[w->panel];
    for (uint32_t i = 0; i < n_panels; i++)
        p->widen(w->panels + (begin + i) * w->panel_bytes, k, n_k, out + (size_t)i * PANEL_ROWS,
                 stride);
}

/* y = scale y + bias, bias from column o on; each may be absent. */
static void finish(const struct matmul_output *out, uint32_t o, uint32_t n_out, uint32_t n_rows,
                   float *y)
{
    for (uint32_t r = 0; r < n_rows && out->scale; r++)
        for (uint32_t i = 0; i < n_out; i++)
            y[r * out->stride + i] *= out->scale[r];
    for (uint32_t r = 0; r < n_rows && out->bias; r++)
        for (uint32_t i = 0; i < n_out; i++)
            y[r * out->stride + i] += out->bias[o + i];
}

void blas_run(const struct matrix *w, const struct matmul_input *in,
              const struct matmul_output *out, uint32_t begin, uint32_t end, uint32_t worker)
{
    float *scratch = blas.scratch + (size_t)worker * K_CHUNK * N_CHUNK;
    uint32_t most = N_CHUNK / PANEL_ROWS;
    for (uint32_t n_panels; begin < end; begin += n_panels) {
        n_panels = end - begin < most ? end - begin : most;
        uint32_t o = begin * PANEL_ROWS, width = n_panels * PANEL_ROWS;
        uint32_t n_out = w->n_out - o < width ? w->n_out - o : width;
        float *y = out->y + (size_t)(begin - out->first) * PANEL_ROWS;
        for (uint32_t k = 0; k < w->n_in; k += K_CHUNK) {
            uint32_t n_k = w->n_in - k < K_CHUNK ? w->n_in - k : K_CHUNK;
            bool add = k || out->store == MATMUL_ADD;
            unpack(w, begin, n_panels, k, n_k, scratch);
            blas.sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, (int)in->n_rows, (int)n_out, (int)n_k, 1,
                       in->x + k, (int)in->n_in, scratch, (int)width, add ? 1 : 0, y,
                       (int)out->stride);
            atomic_fetch_add_explicit(&blas.calls, 1, memory_order_relaxed);
        }
        finish(out, o, n_out, in->n_rows, y);
    }
}
