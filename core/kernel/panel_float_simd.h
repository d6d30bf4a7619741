/* [kernel] Float panels in vectors: a template, included by panel_float_variants.h once for each
 * CPU level, with SIMD, SIMD_TARGET and SIMD_LANES as in panel_int_simd.h. */
#if defined(SIMD)

#define SIMD_JOIN2(a, b) a##_##b
#define SIMD_JOIN(a, b)  SIMD_JOIN2(a, b)
#define NAME(x)          SIMD_JOIN(x, SIMD)

#if SIMD_LANES == 16
#define OP(x)     _mm512_##x
#define VF        __m512
#define HALVES(p) _mm256_load_si256((const __m256i *)(p))
#define AS_FLOAT  _mm512_castsi512_ps
#else
#define OP(x)     _mm256_##x
#define VF        __m256
#define HALVES(p) _mm_load_si128((const __m128i *)(p))
#define AS_FLOAT  _mm256_castsi256_ps
#endif

SIMD_INLINE SIMD_TARGET VF NAME(load)(const uint8_t *p, const enum float_kind kind)
{
    if (kind == FLOAT_HALF)
        return OP(cvtph_ps)(HALVES(p));
    if (kind == FLOAT_BRAIN)
        return AS_FLOAT(OP(slli_epi32)(OP(cvtepu16_epi32)(HALVES(p)), 16));
    return OP(load_ps)((const float *)(const void *)p);
}

/* A tile: mt rows of X times 2 vectors of rows of W, from vector h0 on. */
SIMD_INLINE SIMD_TARGET void NAME(float_tile)(const struct float_product *job,
                                              const enum float_kind kind, const size_t mt,
                                              const size_t h0)
{
    float *acc = job->acc;
    const size_t elem = kind == FLOAT_WHOLE ? 4 : 2;
    const float *r[FLOAT_TILE];
    VF f[FLOAT_TILE][2];
    SIMD_UNROLL for (size_t t = 0; t < mt; t++)
    {
        r[t] = job->x + t * job->x_stride;
        SIMD_UNROLL for (size_t h = 0; h < 2; h++) f[t][h] =
            OP(load_ps)(acc + t * PANEL_ROWS + SIMD_LANES * (h0 + h));
    }
    const uint8_t *w = job->w + elem * SIMD_LANES * h0;
    const uint32_t n_in = job->n_in;
    for (uint32_t k = 0; k < n_in; k++, w += elem * PANEL_ROWS) {
        __builtin_prefetch(w + 4096);
        VF w0 = NAME(load)(w, kind), w1 = NAME(load)(w + elem * SIMD_LANES, kind);
        SIMD_UNROLL for (size_t t = 0; t < mt; t++)
        {
            VF v = OP(set1_ps)(r[t][k]);
            f[t][0] = OP(fmadd_ps)(w0, v, f[t][0]);
            f[t][1] = OP(fmadd_ps)(w1, v, f[t][1]);
        }
    }
    SIMD_UNROLL for (size_t t = 0; t < mt; t++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
        OP(store_ps)(acc + t * PANEL_ROWS + SIMD_LANES * (h0 + h), f[t][h]);
}

#undef NAME
#undef SIMD_JOIN
#undef SIMD_JOIN2
#undef OP
#undef VF
#undef HALVES
#undef AS_FLOAT
#endif
