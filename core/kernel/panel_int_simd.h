/* [kernel] Integer panels in vectors: a template, included by panel_int_variants.h once for each
 * CPU level, with
 *
 *   SIMD         the level's name: avx2, avx512, avx512vnni    SIMD_TARGET  its target attribute
 *   SIMD_LANES   8 or 16 rows of W in a vector
 *
 * and dot_<level>(sum, codes, q, wide): sum + the four products of each lane; wide: codes above 63. */
#if defined(SIMD)

#define SIMD_JOIN2(a, b) a##_##b
#define SIMD_JOIN(a, b)  SIMD_JOIN2(a, b)
#define NAME(x)          SIMD_JOIN(x, SIMD)

#if SIMD_LANES == 16
#define OP(x)    _mm512_##x
#define VI       __m512i
#define VF       __m512
#define VH       v32hu
#define LOAD(p)  _mm512_load_si512(p)
#define AND      _mm512_and_si512
#define OR       _mm512_or_si512
#define HALF(p)  _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define BYTES(p) _mm_loadu_si128((const __m128i *)(p))
#else
#define OP(x)    _mm256_##x
#define VI       __m256i
#define VF       __m256
#define VH       v16hu
#define LOAD(p)  _mm256_load_si256((const __m256i *)(p))
#define AND      _mm256_and_si256
#define OR       _mm256_or_si256
#define HALF(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define BYTES(p) _mm_loadl_epi64((const __m128i *)(p))
#endif
#define WIDTH ((size_t)SIMD_LANES * 4)

/* Codes of step j of a block, vector h. */
SIMD_INLINE SIMD_TARGET VI NAME(step)(const uint8_t *p, const uint32_t bits, const size_t j,
                                      const size_t h)
{
    if (bits == 8)
        return LOAD(p + 128 * j + WIDTH * h);
    VI c = LOAD(p + 128 * (j % 4) + WIDTH * h);
    c = AND(j < 4 ? c : (VI)((VH)c >> 4), OP(set1_epi8)(15));
    if (bits == 5) {
        VI upper = LOAD(p + 512 + WIDTH * h);
        upper = j < 4 ? (VI)((VH)upper << (int)(4 - j)) : (VI)((VH)upper >> (int)(j - 4));
        c = OR(c, AND(upper, OP(set1_epi8)(16)));
    }
    if (bits == 6) {
        VI upper = LOAD(p + 512 + 128 * (j / 4) + WIDTH * h);
        upper = j % 4 < 2 ? (VI)((VH)upper << (int)(4 - 2 * (j % 4)))
                          : (VI)((VH)upper >> (int)(2 * (j % 4) - 4));
        c = OR(c, AND(upper, OP(set1_epi8)(48)));
    }
    return c;
}

/* Scales of a block (p: after its codes), vector h; g: of its second half. */
SIMD_INLINE SIMD_TARGET VF NAME(scale)(const uint8_t *super, const uint8_t *p,
                                       const enum int_scales scales, const size_t g, const size_t h)
{
    switch (scales) {
    case SCALES_K_MIN:
        return OP(mul_ps)(HALF(super + WIDTH / 2 * h),
                          OP(cvtepi32_ps)(OP(cvtepu8_epi32)(BYTES(p + WIDTH / 4 * h))));
    case SCALES_K_HALVES:
        return OP(mul_ps)(
            HALF(super + WIDTH / 2 * h),
            OP(cvtepi32_ps)(OP(cvtepi8_epi32)(BYTES(p + PANEL_ROWS * g + WIDTH / 4 * h))));
    case SCALES_FLOAT:
    case SCALES_FLOAT_MIN:
    case SCALES_FLOAT_HALVES:
        return OP(load_ps)((const float *)(const void *)(p + 128 * g + WIDTH * h));
    default:
        return HALF(p + WIDTH / 2 * h);
    }
}

SIMD_INLINE SIMD_TARGET VF NAME(min)(const uint8_t *super, const uint8_t *p,
                                     const enum int_scales scales, const size_t h)
{
    if (scales == SCALES_FLOAT_MIN)
        return OP(load_ps)((const float *)(const void *)(p + 256 + WIDTH * h));
    if (scales == SCALES_HALF_MIN)
        return HALF(p + 64 + WIDTH / 2 * h);
    VF product =
        OP(mul_ps)(HALF(super + 64 + WIDTH / 2 * h),
                   OP(cvtepi32_ps)(OP(cvtepu8_epi32)(BYTES(p + PANEL_ROWS + WIDTH / 4 * h))));
    return -product;
}

SIMD_INLINE SIMD_TARGET void NAME(decode)(const uint8_t *w, const uint32_t bits,
                                          const enum int_scales scales, uint32_t begin, uint32_t n,
                                          struct int_block *out)
{
    for (uint32_t b = begin; b < begin + n; b++, out++) {
        const uint8_t *super = w + int_super_at(bits, scales, b);
        const uint8_t *p = w + int_block_at(bits, scales, b), *s = p + int_code_bytes(bits);
        SIMD_UNROLL for (size_t h = 0; h < PANEL_ROWS / SIMD_LANES; h++)
        {
            SIMD_UNROLL for (size_t j = 0; j < 8; j++) *
                (VI *)(void *)out->codes[j][SIMD_LANES * h] = NAME(step)(p, bits, j, h);
            SIMD_UNROLL for (size_t g = 0; g < int_groups(scales); g++)
                OP(store_ps)(out->scale[g] + SIMD_LANES * h, NAME(scale)(super, s, scales, g, h));
            if (int_has_min(scales))
                OP(store_ps)(out->min + SIMD_LANES * h, NAME(min)(super, s, scales, h));
        }
    }
}

SIMD_INLINE SIMD_TARGET VI NAME(four)(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return OP(set1_epi32)(v);
}
SIMD_INLINE SIMD_TARGET VF NAME(one)(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof(v));
    return OP(set1_ps)(v);
}

/* A tile: mt rows of X times 2 vectors of rows of W, from vector h0 on. The integer sum of a block
 * starts with -zero * sum(q). Two planes: first the high one's sum, times 256, then the low one's on
 * top. */
SIMD_INLINE SIMD_TARGET void NAME(tile)(const struct int_product *job, const uint32_t bits,
                                        const enum int_scales scales, const int wide,
                                        const size_t mt, const size_t h0)
{
    const uint8_t *w = job->w;
    const struct planes *x = job->x;
    const uint32_t begin = job->begin, end = begin + job->n, shift = job->shift;
    float *acc = job->acc;
    const size_t n_groups = int_groups(scales), n_steps = 8 / n_groups;
    const size_t plane = (size_t)x->n_blocks * PLANES_BLOCK;
    const uint8_t *r[6];
    VF f[6][2];
    SIMD_UNROLL for (size_t t = 0; t < mt; t++)
    {
        r[t] = planes_row(x, job->row + (uint32_t)t);
        SIMD_UNROLL for (size_t h = 0; h < 2; h++) f[t][h] =
            OP(load_ps)(acc + t * PANEL_ROWS + SIMD_LANES * (h0 + h));
    }
    for (uint32_t b = begin; b < end; b++) {
        const uint32_t i = int_is_decoded(scales) ? b - begin : b;
        const uint8_t *super = w + int_super_at(bits, scales, i);
        const uint8_t *p = w + int_block_at(bits, scales, i), *s = p + int_code_bytes(bits);
        const size_t q_at = (size_t)b * PLANES_BLOCK;
        const size_t scale_at = x->scale_at + b * sizeof(float);
        const size_t minus_at = n_groups == 2 ? x->halves_at + (size_t)b * 2 * sizeof(int32_t)
                                              : x->minus_at + b * sizeof(int32_t);
        const size_t low_at = minus_at + (size_t)x->n_blocks * n_groups * sizeof(int32_t);
        if (!int_is_decoded(scales))
            SIMD_UNROLL for (uint32_t line = 0; line < int_block_bytes(bits, scales); line += 64)
                __builtin_prefetch(p + 4096 + line);
        SIMD_UNROLL for (size_t g = 0; g < n_groups; g++)
        {
            VI u[6][2];
            SIMD_UNROLL for (size_t t = 0; t < mt; t++) u[t][0] = u[t][1] =
                int_has_min(scales)
                    ? OP(set1_epi32)(0)
                    : OP(sllv_epi32)(NAME(four)(r[t] + minus_at + g * sizeof(int32_t)),
                                     OP(set1_epi32)((int)shift));
            SIMD_UNROLL for (size_t j = 0; j < n_steps; j++)
            {
                const size_t k = j + g * n_steps;
                VI c0 = NAME(step)(p, bits, k, h0), c1 = NAME(step)(p, bits, k, h0 + 1);
                SIMD_UNROLL for (size_t t = 0; t < mt; t++)
                {
                    VI q = NAME(four)(r[t] + q_at + 4 * k);
                    u[t][0] = NAME(dot)(u[t][0], c0, q, wide);
                    u[t][1] = NAME(dot)(u[t][1], c1, q, wide);
                }
            }
            if (x->n_planes == 2) {
                SIMD_FORGET(p);
                SIMD_UNROLL for (size_t t = 0; t < mt; t++)
                {
                    u[t][0] = OP(slli_epi32)(u[t][0], 8);
                    u[t][1] = OP(slli_epi32)(u[t][1], 8);
                    if (!int_has_min(scales)) {
                        VI z = OP(sllv_epi32)(NAME(four)(r[t] + low_at + g * sizeof(int32_t)),
                                              OP(set1_epi32)((int)shift));
                        u[t][0] = OP(add_epi32)(u[t][0], z);
                        u[t][1] = OP(add_epi32)(u[t][1], z);
                    }
                }
                SIMD_UNROLL for (size_t j = 0; j < n_steps; j++)
                {
                    const size_t k = j + g * n_steps;
                    VI c0 = NAME(step)(p, bits, k, h0), c1 = NAME(step)(p, bits, k, h0 + 1);
                    SIMD_UNROLL for (size_t t = 0; t < mt; t++)
                    {
                        VI q = NAME(four)(r[t] + plane + q_at + 4 * k);
                        u[t][0] = NAME(dot)(u[t][0], c0, q, wide);
                        u[t][1] = NAME(dot)(u[t][1], c1, q, wide);
                    }
                }
            }
            VF s0 = NAME(scale)(super, s, scales, g, h0);
            VF s1 = NAME(scale)(super, s, scales, g, h0 + 1);
            SIMD_UNROLL for (size_t t = 0; t < mt; t++)
            {
                VF d = NAME(one)(r[t] + scale_at);
                f[t][0] = OP(fmadd_ps)(OP(mul_ps)(s0, d), OP(cvtepi32_ps)(u[t][0]), f[t][0]);
                f[t][1] = OP(fmadd_ps)(OP(mul_ps)(s1, d), OP(cvtepi32_ps)(u[t][1]), f[t][1]);
            }
        }
        if (int_has_min(scales)) {
            const size_t sum_at = x->sum_at + b * sizeof(float);
            VF m0 = NAME(min)(super, s, scales, h0), m1 = NAME(min)(super, s, scales, h0 + 1);
            SIMD_UNROLL for (size_t t = 0; t < mt; t++)
            {
                VF d = NAME(one)(r[t] + sum_at);
                f[t][0] = OP(fmadd_ps)(m0, d, f[t][0]);
                f[t][1] = OP(fmadd_ps)(m1, d, f[t][1]);
            }
        }
    }
    SIMD_UNROLL for (size_t t = 0; t < mt; t++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
        OP(store_ps)(acc + t * PANEL_ROWS + SIMD_LANES * (h0 + h), f[t][h]);
}

#undef NAME
#undef SIMD_JOIN
#undef SIMD_JOIN2
#undef OP
#undef VI
#undef VF
#undef VH
#undef LOAD
#undef AND
#undef OR
#undef HALF
#undef BYTES
#undef WIDTH
#endif
