/* [kernel] norms, activations, rotation: the variants of every CPU level and the choice among
 * them. */
#include "core/kernel/ops.h"

#include "core/kernel/cpu.h"
#include "core/kernel/lanes.h"

#include <math.h>

struct ops {
    void (*layer_norm)(const float *, const float *, const float *, float, float *, uint32_t);
    void (*rms_norm)(const float *, const float *, float, float *, uint32_t);
    void (*gain)(const struct ops_gain *);
    void (*add)(float *, const float *, size_t);
    void (*scale)(const float *, float, float *, size_t);
    void (*silu)(const float *, const float *, float *, size_t);
    void (*gelu_tanh)(const float *, const float *, float *, size_t);
    void (*exp)(const float *, float *, size_t);
    void (*to_half)(const float *, uint16_t *, size_t);
    void (*rope_pairs)(const float *, float, const float *, uint32_t, float *, uint32_t);
};

#define TARGET TARGET_scalar
#define L(x)   x##_scalar
#define LN     ((size_t)N_scalar)
#include "core/kernel/ops_lanes.inc"
#undef TARGET
#undef L
#undef LN

#if defined(__x86_64__)
#define TARGET TARGET_avx2
#define L(x)   x##_avx2
#define LN     N_avx2
#include "core/kernel/ops_lanes.inc"
#undef TARGET
#undef L
#undef LN

#define TARGET TARGET_avx512
#define L(x)   x##_avx512
#define LN     N_avx512
#include "core/kernel/ops_lanes.inc"
#undef TARGET
#undef L
#undef LN
#endif

static const struct ops *const levels[CPU_LEVELS] = CPU_BY_WIDTH(&ops);

static const struct ops *ops(void) { return levels[cpu_level()]; }

void ops_layer_norm(const float *x, const float *gain, const float *bias, float eps, float *y,
                    uint32_t n)
{
    ops()->layer_norm(x, gain, bias, eps, y, n);
}

void ops_rms_norm(const float *x, const float *gain, float eps, float *y, uint32_t n)
{
    ops()->rms_norm(x, gain, eps, y, n);
}

void ops_gain(const struct ops_gain *job) { ops()->gain(job); }

void ops_add(float *x, const float *y, size_t n) { ops()->add(x, y, n); }

void ops_scale(const float *x, float factor, float *out, size_t n)
{
    ops()->scale(x, factor, out, n);
}

void ops_silu(const float *x, const float *up, float *out, size_t n) { ops()->silu(x, up, out, n); }

void ops_gelu_tanh(const float *x, const float *up, float *out, size_t n)
{
    ops()->gelu_tanh(x, up, out, n);
}

void ops_exp(const float *x, float *y, size_t n) { ops()->exp(x, y, n); }

void ops_to_half(const float *x, uint16_t *out, size_t n) { ops()->to_half(x, out, n); }

void ops_rope_pairs(const float *x, float factor, const float *turn, uint32_t n_pairs, float *out,
                    uint32_t n, uint32_t head_dim)
{
    for (uint32_t i = 0; i < n; i++, x += head_dim, out += head_dim)
        ops()->rope_pairs(x, factor, turn, 2 * n_pairs, out, head_dim);
}

void ops_rope_turn(float *turn, uint32_t pos, const double *freq, uint32_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++) {
        double angle = pos * freq[i];
        turn[2 * i] = (float)cos(angle);
        turn[2 * i + 1] = (float)sin(angle);
    }
}
