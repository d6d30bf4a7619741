/* [kernel] Lanes: the few vector operations that ops.c and attention.c are written in, once per
 * CPU level, so that each kernel is written once (ops_lanes.inc, attention_lanes.inc) and
 * compiled for each level. A name ends in its level: add_scalar, add_avx2, add_avx512. A scalar
 * vector is one float.
 *
 * exp is one formula for all lanes and all tails of a level: tails are partial vectors, never
 * another exp. x = n ln 2 + r, |r| <= ln 2 / 2, e^x = 2^n e^r, e^r by its Taylor
 * series to r^7 (remainder under 6e-9 of it). Below -87.33 (the smallest normal number) it is
 * exactly 0, above 88 it stays e^88; NaN stays NaN.
 *
 * pow2 is the exp of attention's weights: 2^x for x up to 1, in half as many operations. x = n + f,
 * n whole, 0 <= f < 1, 2^f by the polynomial of degree 5 that is 1 at 0 and whose greatest
 * relative error is least (8.3e-8; 1.5e-7 as computed). 2^0 is exactly 1; where 2^x is no normal
 * number it may be 0, and is from -150 on; NaN stays NaN. */
#pragma once

#include "core/kernel/quant.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline, unused))

#define EXP_LOW    (-87.33654f)
#define EXP_HIGH   88.0f
#define EXP_LOG2E  1.44269504f
#define EXP_LN2_HI 0.693359375f      /* 9 bits: n times this is exact */
#define EXP_LN2_LO (-2.12194440e-4f) /* ln 2 less that */
#define EXP_C2     0.5f
#define EXP_C3     (1.0f / 6)
#define EXP_C4     (1.0f / 24)
#define EXP_C5     (1.0f / 120)
#define EXP_C6     (1.0f / 720)
#define EXP_C7     (1.0f / 5040)
#define POW2_LOW   (-126.0f)
#define POW2_C1    0.693151312f
#define POW2_C2    0.24016445f
#define POW2_C3    0.0557999131f
#define POW2_C4    0.00901703032f
#define POW2_C5    0.00186713007f

/* ---- scalar: a vector of one; runs anywhere ---- */

enum { N_scalar = 1 };
typedef float lanes_scalar;
#define TARGET_scalar

LANES_INLINE float load_scalar(const float *p) { return *p; }
LANES_INLINE float loadn_scalar(const float *p, uint32_t n) { return n ? *p : 0; }
LANES_INLINE float half_scalar(const uint16_t *p) { return quant_half_to_float(*p); }
LANES_INLINE float halfn_scalar(const uint16_t *p, uint32_t n)
{
    return n ? quant_half_to_float(*p) : 0;
}
LANES_INLINE float code_scalar(const int8_t *p) { return (float)*p; } /* bytes as floats */
LANES_INLINE float coden_scalar(const int8_t *p, uint32_t n) { return n ? (float)*p : 0; }
LANES_INLINE void store_scalar(float *p, float a) { *p = a; }
LANES_INLINE void storen_scalar(float *p, float a, uint32_t n)
{
    if (n)
        *p = a;
}
LANES_INLINE void storeh_scalar(uint16_t *p, float a) { *p = quant_float_to_half(a); }
LANES_INLINE void storehn_scalar(uint16_t *p, float a, uint32_t n)
{
    if (n)
        *p = quant_float_to_half(a);
}
/* To the nearest whole number, ties to even; -127 .. 127. */
LANES_INLINE void storecn_scalar(int8_t *p, float a, uint32_t n)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
    if (n)
        *p = (int8_t)(a + round - round);
}
LANES_INLINE float set1_scalar(float a) { return a; }
LANES_INLINE float add_scalar(float a, float b) { return a + b; }
LANES_INLINE float sub_scalar(float a, float b) { return a - b; }
LANES_INLINE float mul_scalar(float a, float b) { return a * b; }
LANES_INLINE float div_scalar(float a, float b) { return a / b; }
LANES_INLINE float fma_scalar(float a, float b, float c) { return a * b + c; }
LANES_INLINE float max_scalar(float a, float b) { return a > b ? a : b; }
LANES_INLINE float sum_scalar(float a) { return a; }
LANES_INLINE float top_scalar(float a) { return a; }
/* Lanes at and beyond n become fill. */
LANES_INLINE float keep_scalar(float a, uint32_t n, float fill) { return n ? a : fill; }
LANES_INLINE float exp_scalar(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
    float in = x < EXP_LOW ? EXP_LOW : x > EXP_HIGH ? EXP_HIGH : x;
    union {
        float f;
        uint32_t u;
    } t = {in * EXP_LOG2E + round}, scale;
    float n = t.f - round;
    float r = in - n * EXP_LN2_HI - n * EXP_LN2_LO;
    float p = EXP_C7;
    p = p * r + EXP_C6;
    p = p * r + EXP_C5;
    p = p * r + EXP_C4;
    p = p * r + EXP_C3;
    p = p * r + EXP_C2;
    p = p * (r * r) + r + 1.0f;
    scale.u = (t.u - 0x4B400000u + 127) << 23;
    return x < EXP_LOW ? 0.0f : p * scale.f;
}
LANES_INLINE float pow2_scalar(float x)
{
    const float round = 12582912.0f;
    float in = x < POW2_LOW ? POW2_LOW : x;
    union {
        float f;
        uint32_t u;
    } t = {in + round}, scale;
    if (t.f - round > in)
        t.u--; /* the next lower integer */
    float f = in - (t.f - round);
    float p = POW2_C5;
    p = p * f + POW2_C4;
    p = p * f + POW2_C3;
    p = p * f + POW2_C2;
    p = p * f + POW2_C1;
    p = p * f + 1.0f;
    scale.u = (t.u - 0x4B400000u + 127) << 23;
    return x < POW2_LOW ? 0.0f : p * scale.f;
}
/* Pairs (a, b) turned by pairs (cosine, sine): (a c - b s, b c + a s). Not for a single lane. */
LANES_INLINE float turned_scalar(float a, float turn) { return a * turn; }
LANES_INLINE void prefetch_scalar(const void *p) { (void)p; }

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- AVX2 + FMA + F16C: 8 floats ---- */

enum { N_avx2 = 8 };
typedef __m256 lanes_avx2;
#define TARGET_avx2 __attribute__((target("avx2,fma,f16c")))
#define LANES_AVX2  LANES_INLINE TARGET_avx2

LANES_AVX2 __m256i first_avx2(uint32_t n) /* all ones in lanes below n */
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), lane);
}
LANES_AVX2 __m256 load_avx2(const float *p) { return _mm256_loadu_ps(p); }
LANES_AVX2 __m256 loadn_avx2(const float *p, uint32_t n)
{
    return _mm256_maskload_ps(p, first_avx2(n));
}
LANES_AVX2 __m256 half_avx2(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
LANES_AVX2 __m256 halfn_avx2(const uint16_t *p, uint32_t n)
{
    uint16_t whole[8] = {0};
    memcpy(whole, p, (n < 8 ? n : 8) * sizeof(*p));
    return half_avx2(whole);
}
LANES_AVX2 __m256 code_avx2(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
LANES_AVX2 __m256 coden_avx2(const int8_t *p, uint32_t n)
{
    int8_t whole[8] = {0};
    memcpy(whole, p, n < 8 ? n : 8);
    return code_avx2(whole);
}
LANES_AVX2 void store_avx2(float *p, __m256 a) { _mm256_storeu_ps(p, a); }
LANES_AVX2 void storen_avx2(float *p, __m256 a, uint32_t n)
{
    _mm256_maskstore_ps(p, first_avx2(n), a);
}
LANES_AVX2 void storeh_avx2(uint16_t *p, __m256 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
LANES_AVX2 void storehn_avx2(uint16_t *p, __m256 a, uint32_t n)
{
    uint16_t whole[8];
    storeh_avx2(whole, a);
    memcpy(p, whole, (n < 8 ? n : 8) * sizeof(*p));
}
LANES_AVX2 void storecn_avx2(int8_t *p, __m256 a, uint32_t n)
{
    __m256i i = _mm256_cvtps_epi32(a);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    int64_t whole = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
    memcpy(p, &whole, n < 8 ? n : 8);
}
LANES_AVX2 __m256 set1_avx2(float a) { return _mm256_set1_ps(a); }
LANES_AVX2 __m256 add_avx2(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
LANES_AVX2 __m256 sub_avx2(__m256 a, __m256 b) { return _mm256_sub_ps(a, b); }
LANES_AVX2 __m256 mul_avx2(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
LANES_AVX2 __m256 div_avx2(__m256 a, __m256 b) { return _mm256_div_ps(a, b); }
LANES_AVX2 __m256 fma_avx2(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
LANES_AVX2 __m256 max_avx2(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
LANES_AVX2 float sum_avx2(__m256 a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
LANES_AVX2 float top_avx2(__m256 a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
LANES_AVX2 __m256 keep_avx2(__m256 a, uint32_t n, float fill)
{
    return _mm256_blendv_ps(_mm256_set1_ps(fill), a, _mm256_castsi256_ps(first_avx2(n)));
}
LANES_AVX2 __m256 exp_avx2(__m256 x)
{
    /* min and max give their second operand where one is NaN */
    __m256 in = _mm256_max_ps(_mm256_set1_ps(EXP_LOW), _mm256_min_ps(_mm256_set1_ps(EXP_HIGH), x));
    __m256i ni = _mm256_cvtps_epi32(_mm256_mul_ps(in, _mm256_set1_ps(EXP_LOG2E)));
    __m256 n = _mm256_cvtepi32_ps(ni);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HI), in);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LO), r);
    __m256 p = _mm256_set1_ps(EXP_C7);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i scale = _mm256_slli_epi32(_mm256_add_epi32(ni, _mm256_set1_epi32(127)), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOW), _CMP_LT_OQ), p);
}
LANES_AVX2 __m256 pow2_avx2(__m256 x)
{
    __m256 n = _mm256_floor_ps(x), f = _mm256_sub_ps(x, n);
    __m256 p = _mm256_set1_ps(POW2_C5);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(POW2_C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(POW2_C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(POW2_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(POW2_C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    __m256i scale = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(scale, 23)));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(POW2_LOW), _CMP_LT_OQ), p);
}
LANES_AVX2 __m256 turned_avx2(__m256 a, __m256 turn)
{
    __m256 cross = _mm256_mul_ps(_mm256_permute_ps(a, 0xB1), _mm256_movehdup_ps(turn));
    return _mm256_addsub_ps(_mm256_mul_ps(a, _mm256_moveldup_ps(turn)), cross);
}
LANES_AVX2 void prefetch_avx2(const void *p) { _mm_prefetch(p, _MM_HINT_T1); }

/* ---- AVX-512 (F, BW, DQ, VL): 16 floats ---- */

enum { N_avx512 = 16 };
typedef __m512 lanes_avx512;
#define TARGET_avx512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define LANES_AVX512  LANES_INLINE TARGET_avx512

LANES_AVX512 __mmask16 first_avx512(uint32_t n)
{
    return n < 16 ? (__mmask16)((1u << n) - 1) : (__mmask16)0xFFFF;
}
LANES_AVX512 __m512 load_avx512(const float *p) { return _mm512_loadu_ps(p); }
LANES_AVX512 __m512 loadn_avx512(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(first_avx512(n), p);
}
LANES_AVX512 __m512 half_avx512(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
LANES_AVX512 __m512 halfn_avx512(const uint16_t *p, uint32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_avx512(n), p));
}
LANES_AVX512 __m512 code_avx512(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
LANES_AVX512 __m512 coden_avx512(const int8_t *p, uint32_t n)
{
    __m128i whole = _mm_maskz_loadu_epi8(first_avx512(n), p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(whole));
}
LANES_AVX512 void store_avx512(float *p, __m512 a) { _mm512_storeu_ps(p, a); }
LANES_AVX512 void storen_avx512(float *p, __m512 a, uint32_t n)
{
    _mm512_mask_storeu_ps(p, first_avx512(n), a);
}
LANES_AVX512 void storeh_avx512(uint16_t *p, __m512 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
LANES_AVX512 void storehn_avx512(uint16_t *p, __m512 a, uint32_t n)
{
    _mm256_mask_storeu_epi16(p, first_avx512(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
LANES_AVX512 void storecn_avx512(int8_t *p, __m512 a, uint32_t n)
{
    _mm_mask_storeu_epi8(p, first_avx512(n), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
}
LANES_AVX512 __m512 set1_avx512(float a) { return _mm512_set1_ps(a); }
LANES_AVX512 __m512 add_avx512(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
LANES_AVX512 __m512 sub_avx512(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
LANES_AVX512 __m512 mul_avx512(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
LANES_AVX512 __m512 div_avx512(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
LANES_AVX512 __m512 fma_avx512(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
LANES_AVX512 __m512 max_avx512(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
LANES_AVX512 float sum_avx512(__m512 a)
{
    __m256 high = _mm512_extractf32x8_ps(a, 1);
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(a), high);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
LANES_AVX512 float top_avx512(__m512 a) { return _mm512_reduce_max_ps(a); }
LANES_AVX512 __m512 keep_avx512(__m512 a, uint32_t n, float fill)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(fill), first_avx512(n), a);
}
LANES_AVX512 __m512 exp_avx512(__m512 x)
{
    __m512 in = _mm512_max_ps(_mm512_set1_ps(EXP_LOW), _mm512_min_ps(_mm512_set1_ps(EXP_HIGH), x));
    __m512 t = _mm512_mul_ps(in, _mm512_set1_ps(EXP_LOG2E));
    __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_HI), in);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_LO), r);
    __m512 p = _mm512_set1_ps(EXP_C7);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    /* not (x < low), so that NaN passes */
    __mmask16 live = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOW), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(live, p, n);
}
LANES_AVX512 __m512 pow2_avx512(__m512 x)
{
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); /* x - floor(x) */
    __m512 p = _mm512_set1_ps(POW2_C5);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POW2_C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POW2_C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POW2_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POW2_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, x); /* p 2^floor(x) */
}
LANES_AVX512 __m512 turned_avx512(__m512 a, __m512 turn)
{
    __m512 cross = _mm512_mul_ps(_mm512_permute_ps(a, 0xB1), _mm512_movehdup_ps(turn));
    return _mm512_fmaddsub_ps(a, _mm512_moveldup_ps(turn), cross);
}
LANES_AVX512 void prefetch_avx512(const void *p) { _mm_prefetch(p, _MM_HINT_T1); }
#endif
