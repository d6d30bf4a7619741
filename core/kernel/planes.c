/* [kernel] activations to integers: per 32 values, s = max |x| / 127 (one plane) or / 32639 (two:
 * the largest 256 * high + low of bytes), q = round(x / s), halves to even. */
#include "core/kernel/planes.h"

#include "core/kernel/cpu.h"

#include <math.h>
#include <string.h>

static size_t whole(size_t n) { return (n + 63) / 64 * 64; }

struct planes planes_layout(uint32_t n_in, uint32_t n_planes, uint8_t *rows)
{
    struct planes p = {.rows = rows, .n_planes = n_planes};
    p.n_blocks = n_in / PLANES_BLOCK + (n_in % PLANES_BLOCK != 0);
    size_t n = p.n_blocks;
    p.scale_at = n * PLANES_BLOCK * n_planes;
    p.sum_at = p.scale_at + n * sizeof(float);
    p.minus_at = p.sum_at + n * sizeof(float);
    p.halves_at = p.minus_at + n * n_planes * sizeof(int32_t);
    p.row_bytes = whole(p.halves_at + n * n_planes * 2 * sizeof(int32_t));
    return p;
}

/* One block. Adding 1.5 * 2^23 rounds |v| < 2^22 to an integer, halves to even, and leaves it in
 * the low bits: the same at every CPU level, and a compiler can vectorise it. */
static inline __attribute__((always_inline)) void block(const struct planes *p, uint8_t *record,
                                                        uint32_t b, const float *x)
{
    const float steps = p->n_planes == 1 ? 127.0F : 32639.0F;
    int8_t *high = (int8_t *)record + (size_t)b * PLANES_BLOCK;
    int8_t *low = high + (size_t)p->n_blocks * PLANES_BLOCK;
    int32_t q[PLANES_BLOCK], minus[2][2] = {{0}};
    uint32_t most = 0; /* |x| as bits: ordered as the values are, and NaN above all */
    for (int i = 0; i < PLANES_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float top, scale, inverse;
    memcpy(&top, &most, sizeof(top));
    if (most >= 0x7f800000) { /* infinite or NaN: so will be the products */
        scale = NAN;
        inverse = 0;
    } else if (top < 0x1p-100F) { /* too small for 1 / s */
        scale = 0;
        inverse = 0;
    } else {
        scale = top / steps;
        inverse = steps / top;
    }
    for (int i = 0; i < PLANES_BLOCK; i++) {
        float v = (most >= 0x7f800000 ? 0 : x[i]) * inverse + 0x1.8p23F;
        uint32_t bits;
        memcpy(&bits, &v, sizeof(bits));
        q[i] = (int32_t)(bits - 0x4b400000);
    }
    if (p->n_planes == 1) {
        for (int i = 0; i < PLANES_BLOCK; i++)
            high[i] = (int8_t)q[i];
    } else {
        for (int i = 0; i < PLANES_BLOCK; i++) {
            int32_t l = (int8_t)(q[i] & 255);
            low[i] = (int8_t)l;
            high[i] = (int8_t)((q[i] - l) / 256);
        }
    }
    for (int h = 0; h < 2; h++)
        for (int i = 16 * h; i < 16 * h + 16; i++) {
            minus[0][h] -= high[i];
            if (p->n_planes == 2)
                minus[1][h] -= low[i];
        }
    int32_t sum = 0;
    for (uint32_t plane = 0; plane < p->n_planes; plane++) {
        size_t at = (size_t)plane * p->n_blocks + b;
        int32_t both = minus[plane][0] + minus[plane][1];
        memcpy(record + p->halves_at + at * 2 * sizeof(int32_t), minus[plane], sizeof(minus[0]));
        memcpy(record + p->minus_at + at * sizeof(int32_t), &both, sizeof(both));
        sum -= plane == 0 && p->n_planes == 2 ? 256 * both : both;
    }
    float product = scale * (float)sum;
    memcpy(record + p->scale_at + b * sizeof(float), &scale, sizeof(scale));
    memcpy(record + p->sum_at + b * sizeof(float), &product, sizeof(product));
}

static inline __attribute__((always_inline)) void row_of(const struct planes *p, uint8_t *record,
                                                         const float *x, uint32_t n_in)
{
    uint32_t n_whole = n_in / PLANES_BLOCK;
    for (uint32_t b = 0; b < n_whole; b++)
        block(p, record, b, x + (size_t)b * PLANES_BLOCK);
    if (n_whole < p->n_blocks) {
        float last[PLANES_BLOCK] = {0};
        memcpy(last, x + (size_t)n_whole * PLANES_BLOCK, n_in % PLANES_BLOCK * sizeof(float));
        block(p, record, n_whole, last);
    }
}

static void row_scalar(const struct planes *p, uint8_t *record, const float *x, uint32_t n_in)
{
    row_of(p, record, x, n_in);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void row_avx2(const struct planes *p, uint8_t *record,
                                                     const float *x, uint32_t n_in)
{
    row_of(p, record, x, n_in);
}
#endif

void planes_quantise(const struct planes *p, uint32_t row, const float *x, uint32_t n_in)
{
    uint8_t *record = p->rows + row * p->row_bytes;
#if defined(__x86_64__)
    if (cpu_level() >= CPU_AVX2) {
        row_avx2(p, record, x, n_in);
        return;
    }
#endif
    row_scalar(p, record, x, n_in);
}
