/* [kernel] attention over pages: the variants of every CPU level and the choice among them. */
#include "core/kernel/attention.h"

#include "core/kernel/cpu.h"
#include "core/kernel/lanes.h"
#include "core/kernel/ops.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct kernels {
    void (*scores)(const struct attention *, const struct attention_page *);
    void (*weights)(const struct attention *, const struct attention_page *);
    void (*values)(const struct attention *, const struct attention_page *);
    void (*page)(const struct attention *, const struct attention_page *);
    void (*join)(uint32_t, float *, float *, float *, const float *, const float *, const float *,
                 uint32_t);
    void (*end)(uint32_t, const float *, const float *, float *, uint32_t);
    float (*encode)(const float *, int8_t *, uint32_t);
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

static const struct kernels *const levels[CPU_LEVELS] = CPU_BY_WIDTH(&kernels);

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

void attention_weights(const struct attention *a, const struct attention_page *page)
{
    kernels()->weights(a, page);
}

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

/* A few values of a row at a time: K's lie in a column. */
enum { SOME = 64 };

static void store_f32(const float *k, const float *v, uint32_t t, float *page_k, float *page_v,
                      uint32_t head_dim)
{
    page_k += kv_column(t, head_dim);
    for (size_t d = 0; d < head_dim; d++)
        page_k[d * KV_COLUMNS] = k[d];
    memcpy(page_v + (size_t)t * head_dim, v, head_dim * sizeof(*v));
}

static void store_f16(const float *k, const float *v, uint32_t t, uint16_t *page_k,
                      uint16_t *page_v, uint32_t head_dim)
{
    uint16_t some[SOME];
    page_k += kv_column(t, head_dim);
    for (size_t d = 0; d < head_dim; d++) {
        if (d % SOME == 0)
            ops_to_half(k + d, some, head_dim - d < SOME ? head_dim - d : SOME);
        page_k[d * KV_COLUMNS] = some[d % SOME];
    }
    ops_to_half(v, page_v + (size_t)t * head_dim, head_dim);
}

/* Row t of V has room for K's codes on their way. */
static void store_q8(const float *k, const float *v, uint32_t t, int8_t *page_k, int8_t *page_v,
                     uint32_t head_dim, uint32_t page_tokens)
{
    size_t n = (size_t)head_dim * page_tokens;
    int8_t *row = page_v + (size_t)t * head_dim;
    ((float *)(void *)(page_k + n))[t] = kernels()->encode(k, row, head_dim);
    page_k += kv_column(t, head_dim);
    for (size_t d = 0; d < head_dim; d++)
        page_k[d * KV_COLUMNS] = row[d];
    ((float *)(void *)(page_v + n))[t] = kernels()->encode(v, row, head_dim);
}

void attention_store(enum kv_type type, const float *k, const float *v, uint32_t t, void *page_k,
                     void *page_v, uint32_t head_dim, uint32_t page_tokens)
{
    if (type == KV_F32)
        store_f32(k, v, t, page_k, page_v, head_dim);
    else if (type == KV_F16)
        store_f16(k, v, t, page_k, page_v, head_dim);
    else
        store_q8(k, v, t, page_k, page_v, head_dim, page_tokens);
}
