/* [kernel] Element-wise and row-wise operations on floats: norms, activations, rotation, sums.
 * They know pointers and sizes only. Every function has a variant per CPU level (cpu.h); within a
 * level a row's result depends on nothing but the row. ANY_THREAD: pure functions of their
 * arguments. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* LayerNorm (Ba et al. 2016): y = (x - mean) / sqrt(var + eps) * gain + bias; var is the mean
 * square distance from the mean. bias may be NULL; y may be x. All [n]. */
void ops_layer_norm(const float *x, const float *gain, const float *bias, float eps, float *y,
                    uint32_t n);

/* RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * gain. y may be x. */
void ops_rms_norm(const float *x, const float *gain, float eps, float *y, uint32_t n);

/* The part of RMSNorm that a few columns can do alone: h = x * gain, and square = the sum of x^2 over
 * the columns. n_rows rows of n columns, x_stride and h_stride floats apart; square [n_rows]. */
struct ops_gain {
    const float *x, *gain;
    float *h, *square;
    size_t x_stride, h_stride;
    uint32_t n_rows, n;
};
void ops_gain(const struct ops_gain *job);

/* x += y */
void ops_add(float *x, const float *y, size_t n);

/* out = act(x) * up, or act(x) where up is NULL; out may be x.
 * SiLU: x / (1 + e^-x). GELU, tanh form as GPT-2 defines it: x/2 (1 + tanh(z)), z = sqrt(2/pi) (x +
 * 0.044715 x^3), which is x / (1 + e^-2z). */
void ops_silu(const float *x, const float *up, float *out, size_t n);
void ops_gelu_tanh(const float *x, const float *up, float *out, size_t n);

/* y = e^x, as it is in the two above (lanes.h). */
void ops_exp(const float *x, float *y, size_t n);

/* Rotary position (Su et al. 2021), adjacent pairs: of each of n heads (x[2i], x[2i+1]), times
 * factor, is turned by the angle whose cosine and sine are turn[2i], turn[2i+1]; what lies behind
 * the pairs is only scaled. x, out [n, head_dim]; out may be x. */
void ops_rope_pairs(const float *x, float factor, const float *turn, uint32_t n_pairs, float *out,
                    uint32_t n, uint32_t head_dim);

/* The cosines and sines of position pos: angle i is pos * freq[i]. turn [2 * n_pairs]. In double:
 * at position 100,000 a float angle is off by 0.004. */
void ops_rope_turn(float *turn, uint32_t pos, const double *freq, uint32_t n_pairs);

/* out = factor * x */
void ops_scale(const float *x, float factor, float *out, size_t n);

/* To IEEE halves: nearest, ties to even. */
void ops_to_half(const float *x, uint16_t *out, size_t n);
