/* [kernel] attention over pages: the variants of every CPU level and the choice among them. */
#include "core/kernel/attention.h"

#include "core/kernel/cpu.h"
#include "core/kernel/lanes.h"
#include "core/kernel/ops.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct kernels {
    void (*scores)(const struct attention *, const void *, bool);
    void (*weights)(const struct attention *);
    void (*values)(const struct attention *, const void *, bool);
    void (*join)(float *, float *, float *, float, float, const float *, uint32_t);
    void (*end)(float, const float *, float *, uint32_t);
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Queries of a block: LOTS, or what is left, by the sizes that have code. */
enum { LOTS = 6 };
#define EACH_ROWS ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(6)
static uint32_t rows_of(uint32_t n) { return n >= LOTS ? LOTS : n == 5 ? 4 : n; }

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

void attention_scores(const struct attention *a, const void *k, bool half)
{
    kernels()->scores(a, k, half);
}

void attention_weights(const struct attention *a) { kernels()->weights(a); }

void attention_values(const struct attention *a, const void *v, bool half)
{
    kernels()->values(a, v, half);
}

/* More than one block of queries reads the page: halves become floats once, exactly. */
static const void *as_floats(const struct attention *a, const void *page)
{
    ops_from_half(page, a->floats, (size_t)a->page_tokens * a->head_dim);
    return a->floats;
}

void attention_page(const struct attention *a, const void *k, const void *v, bool half)
{
    bool convert = half && a->n_q > LOTS;
    attention_scores(a, convert ? as_floats(a, k) : k, half && !convert);
    attention_weights(a);
    attention_values(a, convert ? as_floats(a, v) : v, half && !convert);
}

void attention_join(float *m, float *l, float *o, float part_m, float part_l, const float *part_o,
                    uint32_t head_dim)
{
    kernels()->join(m, l, o, part_m, part_l, part_o, head_dim);
}

void attention_end(float l, const float *o, float *out, uint32_t head_dim)
{
    kernels()->end(l, o, out, head_dim);
}
