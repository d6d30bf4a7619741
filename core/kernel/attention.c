/* [kernel] attention over pages: the variants of every CPU level and the choice among them. */
#include "core/kernel/attention.h"

#include "core/kernel/cpu.h"
#include "core/kernel/lanes.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct kernels {
    void (*scores)(const struct attention *, const struct attention_page *);
    void (*weights)(const struct attention *);
    void (*values)(const struct attention *, const struct attention_page *);
    void (*page)(const struct attention *, const struct attention_page *);
    void (*join)(uint32_t, float *, float *, float *, const float *, const float *, const float *,
                 uint32_t);
    void (*end)(uint32_t, const float *, const float *, float *, uint32_t);
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

enum { LOTS = ATTENTION_BLOCK, LINE = 64 };
#define LOG2E 1.44269504f

/* Blocks of queries, one by one: as few as can be, and all of about one size. */
static uint32_t rows_of(uint32_t n)
{
    uint32_t n_blocks = (n + LOTS - 1) / LOTS;
    return (n + n_blocks - 1) / n_blocks;
}

static uint32_t most_keys(const struct attention *a)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < a->n_q; r++)
        most = a->n_keys[r] > most ? a->n_keys[r] : most;
    return most;
}

/* Queries r .. r + n - 1 of a. */
static struct attention part_of(const struct attention *a, uint32_t r, uint32_t n)
{
    struct attention part = *a;
    part.n_q = n;
    part.q += (size_t)r * a->head_dim;
    part.o += (size_t)r * a->head_dim;
    part.n_keys += r;
    part.m += r;
    part.l += r;
    part.decay += r;
    return part;
}

#define TARGET TARGET_scalar
#define L(x)   x##_scalar
#define LN     ((uint32_t)N_scalar)
#define WIDE   4
#include "core/kernel/attention_lanes.inc"
#undef TARGET
#undef L
#undef LN
#undef WIDE

#if defined(__x86_64__)
#define TARGET TARGET_avx2
#define L(x)   x##_avx2
#define LN     ((uint32_t)N_avx2)
#define WIDE   2
#include "core/kernel/attention_lanes.inc"
#undef TARGET
#undef L
#undef LN
#undef WIDE

#define TARGET TARGET_avx512
#define L(x)   x##_avx512
#define LN     ((uint32_t)N_avx512)
#define WIDE   4
#include "core/kernel/attention_lanes.inc"
#undef TARGET
#undef L
#undef LN
#undef WIDE
#endif

static const struct kernels *const levels[CPU_LEVELS] = {
    [CPU_SCALAR] = &kernels_scalar,
#if defined(__x86_64__)
    [CPU_AVX2] = &kernels_avx2,
    [CPU_AVX512] = &kernels_avx512,
    [CPU_AVX512VNNI] = &kernels_avx512,
#endif
};

static const struct kernels *kernels(void) { return levels[cpu_level()]; }

void attention_begin(const struct attention *a)
{
    for (uint32_t r = 0; r < a->n_q; r++) {
        a->m[r] = -FLT_MAX;
        a->l[r] = 0;
    }
    memset(a->o, 0, (size_t)a->n_q * a->head_dim * sizeof(*a->o));
}

void attention_scores(const struct attention *a, const struct attention_page *page)
{
    kernels()->scores(a, page);
}

void attention_weights(const struct attention *a) { kernels()->weights(a); }

void attention_values(const struct attention *a, const struct attention_page *page)
{
    kernels()->values(a, page);
}

void attention_page(const struct attention *a, const struct attention_page *page)
{
    kernels()->page(a, page);
}

void attention_join(uint32_t n, float *m, float *l, float *o, const float *part_m,
                    const float *part_l, const float *part_o, uint32_t head_dim)
{
    kernels()->join(n, m, l, o, part_m, part_l, part_o, head_dim);
}

void attention_end(uint32_t n, const float *l, const float *o, float *out, uint32_t head_dim)
{
    kernels()->end(n, l, o, out, head_dim);
}
