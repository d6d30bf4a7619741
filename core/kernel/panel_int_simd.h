/* [kernel] Integer panels in vectors: a template, included by panel_int_variants.h once for each
 * CPU level, with
 *
 *   SIMD         the level's name: a CPU level of cpu.h           SIMD_TARGET  its target attribute
 *   SIMD_LANES   8 or 16 rows of W in a vector              SIMD_DOTS    1: byte dot products
 *
 * With byte dot products, dot_<level>(sum, codes, q) is sum + the four products of each lane, and
 * codes lie in the upper bits of their bytes, so that every zero point is 128. Without, codes are as
 * they are, and pairs of products are added in 16 bits. */
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
#define AS_FLOAT _mm512_castsi512_ps
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
#define AS_FLOAT _mm256_castsi256_ps
#define HALF(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define BYTES(p) _mm_loadl_epi64((const __m128i *)(p))
#endif
#define WIDTH ((size_t)SIMD_LANES * 4)

/* (c << left) & mask in bytes, or >> -left: c's other bits fall out of the mask. */
SIMD_INLINE SIMD_TARGET VI NAME(bits)(VI c, const int left, const int mask)
{
    c = left > 0 ? (VI)((VH)c << left) : left < 0 ? (VI)((VH)c >> -left) : c;
    return AND(c, OP(set1_epi8)((char)mask));
}

/* Codes of step j of a block, vector h. */
SIMD_INLINE SIMD_TARGET VI NAME(step)(const uint8_t *p, const uint32_t bits, const size_t j,
                                      const size_t h)
{
    if (bits == 8)
        return LOAD(p + 128 * j + WIDTH * h);
    const int place = SIMD_DOTS ? 8 - (int)bits : 0; /* of the lowest bit */
    VI c = LOAD(p + 128 * (j % 4) + WIDTH * h);
    c = NAME(bits)(c, place - (j < 4 ? 0 : 4), 15 << place);
    if (bits == 5)
        c = OR(c, NAME(bits)(LOAD(p + 512 + WIDTH * h), place + 4 - (int)j, 16 << place));
    if (bits == 6)
        c = OR(c, NAME(bits)(LOAD(p + 512 + 128 * (j / 4) + WIDTH * h),
                             place + 4 - 2 * (int)(j % 4), 48 << place));
    return c;
}

/* Scales of a block (p: after its codes), vector h; g: of its second half. */
SIMD_INLINE SIMD_TARGET VF NAME(scale)(const uint8_t *super, const uint8_t *p, const uint32_t bits,
                                       const enum int_scales scales, const size_t g, const size_t h)
{
    VF s;
    if (scales == SCALES_K_MIN)
        s = OP(mul_ps)(HALF(super + WIDTH / 2 * h),
                       OP(cvtepi32_ps)(OP(cvtepu8_epi32)(BYTES(p + WIDTH / 4 * h))));
    else if (scales == SCALES_K_HALVES)
        s = OP(mul_ps)(
            HALF(super + WIDTH / 2 * h),
            OP(cvtepi32_ps)(OP(cvtepi8_epi32)(BYTES(p + PANEL_ROWS * g + WIDTH / 4 * h))));
    else
        s = HALF(p + WIDTH / 2 * h);
    return SIMD_DOTS && bits < 8 ? OP(mul_ps)(s, OP(set1_ps)(1.0F / (float)(256 >> bits))) : s;
}

SIMD_INLINE SIMD_TARGET VF NAME(base)(VF scale)
{
    return OP(mul_ps)(scale, OP(set1_ps)(-PLANES_MAGIC_FLOAT));
}

SIMD_INLINE SIMD_TARGET VF NAME(min)(const uint8_t *super, const uint8_t *p,
                                     const enum int_scales scales, const size_t h)
{
    if (scales == SCALES_HALF_MIN)
        return HALF(p + 64 + WIDTH / 2 * h);
    VF product =
        OP(mul_ps)(HALF(super + 64 + WIDTH / 2 * h),
                   OP(cvtepi32_ps)(OP(cvtepu8_epi32)(BYTES(p + PANEL_ROWS + WIDTH / 4 * h))));
    return -product;
}

SIMD_INLINE SIMD_TARGET void NAME(decode)(const uint8_t *w, const uint32_t bits,
                                          const uint32_t zero, const enum int_scales scales,
                                          uint32_t begin, uint32_t n, struct int_decoded *out)
{
    out->codes = bits == 8 ? w + int_block_at(bits, scales, begin) : out->buffer[0][0][0];
    out->stride = bits == 8 ? int_block_bytes(bits, scales) : sizeof(out->buffer[0]);
    out->zero = SIMD_DOTS && zero ? 128 : zero;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *super = w + int_super_at(bits, scales, begin + i);
        const uint8_t *p = w + int_block_at(bits, scales, begin + i), *s = p + int_code_bytes(bits);
        struct int_factors *to = &out->factors[i];
        SIMD_UNROLL for (size_t h = 0; h < PANEL_ROWS / SIMD_LANES; h++)
        {
            if (bits != 8)
                SIMD_UNROLL for (size_t j = 0; j < 8; j++) *
                    (VI *)(void *)out->buffer[i][j][SIMD_LANES * h] = NAME(step)(p, bits, j, h);
            SIMD_UNROLL for (size_t g = 0; g < int_groups(scales); g++)
            {
                VF scale = NAME(scale)(super, s, bits, scales, g, h);
                OP(store_ps)(to->scale[g] + SIMD_LANES * h, scale);
                OP(store_ps)(to->base[g] + SIMD_LANES * h, NAME(base)(scale));
            }
            if (int_has_min(scales))
                OP(store_ps)(to->min + SIMD_LANES * h, NAME(min)(super, s, scales, h));
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

/* u[t] += steps [begin, end) of a block with the codes q [mt, 32] of one plane. */
#if SIMD_DOTS
SIMD_INLINE SIMD_TARGET void NAME(dots)(VI u[PLANES_TILE][2], const uint8_t *p, const uint32_t bits,
                                        const int most, const size_t begin, const size_t end,
                                        const uint8_t *q, const size_t mt, const size_t h0)
{
    (void)most;
    SIMD_UNROLL for (size_t j = begin; j < end; j++)
    {
        VI c0 = NAME(step)(p, bits, j, h0), c1 = NAME(step)(p, bits, j, h0 + 1);
        SIMD_UNROLL for (size_t t = 0; t < mt; t++)
        {
            VI v = NAME(four)(q + PLANES_BLOCK * t + 4 * j);
            u[t][0] = NAME(dot)(u[t][0], c0, v);
            u[t][1] = NAME(dot)(u[t][1], c1, v);
        }
    }
}
#else
/* maddubs adds two products of an unsigned and a signed byte in 16 bits, which saturate from codes
 * of 129 on: wide codes are multiplied as 16-bit integers, even and odd ones apart. Of narrow codes
 * as many pairs are added in 16 bits as fit there: 2 of codes up to 63 and bytes from -128 on, 4 up
 * to 31, 8 up to 15. SIMD_KEEP stops the compiler from adding in another order, which takes more
 * registers than there are. */
SIMD_INLINE SIMD_TARGET void NAME(dots_wide)(VI u[PLANES_TILE][2], const uint8_t *p,
                                             const size_t begin, const size_t end, const uint8_t *q,
                                             const size_t mt, const size_t h0)
{
    SIMD_UNROLL for (size_t j = begin; j < end; j++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
    {
        VI c = NAME(step)(p, 8, j, h0 + h);
        VI even = AND(c, OP(set1_epi16)(255)), odd = OP(srli_epi16)(c, 8);
        SIMD_UNROLL for (size_t t = 0; t < mt; t++)
        {
            VI v = NAME(four)(q + PLANES_BLOCK * t + 4 * j);
            VI v_even = OP(srai_epi16)(OP(slli_epi16)(v, 8), 8), v_odd = OP(srai_epi16)(v, 8);
            u[t][h] = OP(add_epi32)(u[t][h], OP(madd_epi16)(even, v_even));
            u[t][h] = OP(add_epi32)(u[t][h], OP(madd_epi16)(odd, v_odd));
            SIMD_KEEP(u[t][h]);
        }
    }
}

SIMD_INLINE SIMD_TARGET void NAME(dots)(VI u[PLANES_TILE][2], const uint8_t *p, const uint32_t bits,
                                        const int most, const size_t begin, const size_t end,
                                        const uint8_t *q, const size_t mt, const size_t h0)
{
    if (most > 63) {
        NAME(dots_wide)(u, p, begin, end, q, mt, h0);
        return;
    }
    VI pairs[PLANES_TILE][2];
    const size_t n = most > 31 ? 2 : most > 15 ? 4 : 8;
    SIMD_UNROLL for (size_t j = begin; j < end; j++)
    {
        VI c0 = NAME(step)(p, bits, j, h0), c1 = NAME(step)(p, bits, j, h0 + 1);
        SIMD_UNROLL for (size_t t = 0; t < mt; t++)
        {
            VI v = NAME(four)(q + PLANES_BLOCK * t + 4 * j);
            VI m0 = OP(maddubs_epi16)(c0, v), m1 = OP(maddubs_epi16)(c1, v);
            pairs[t][0] = (j - begin) % n ? OP(add_epi16)(pairs[t][0], m0) : m0;
            pairs[t][1] = (j - begin) % n ? OP(add_epi16)(pairs[t][1], m1) : m1;
            SIMD_KEEP(pairs[t][0]);
            SIMD_KEEP(pairs[t][1]);
            if ((j - begin) % n != n - 1 && j + 1 != end)
                continue;
            SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            {
                VI sums = OP(madd_epi16)(pairs[t][h], OP(set1_epi16)(1));
                u[t][h] = OP(add_epi32)(u[t][h], sums);
                SIMD_KEEP(u[t][h]);
            }
        }
    }
}
#endif

/* The first value of a sum: at, made for a zero point of 128, shifted for the one there is. */
SIMD_INLINE SIMD_TARGET VI NAME(start)(const uint8_t *at, const size_t n_planes,
                                       const uint32_t shift)
{
    VI v = NAME(four)(at);
    if (SIMD_DOTS)
        return v;
    const VI magic = OP(set1_epi32)(n_planes == 1 ? PLANES_MAGIC : 0);
    v = OP(sra_epi32)(OP(sub_epi32)(v, magic), _mm_cvtsi32_si128((int)shift));
    return OP(add_epi32)(v, magic);
}

/* Adds a * b to a sum of a tile: in the register, or where there is none for it, in memory at `to`. */
SIMD_INLINE SIMD_TARGET void NAME(add)(VF *kept, float *to, VF a, VF b)
{
    if (kept)
        *kept = OP(fmadd_ps)(a, b, *kept);
    else
        OP(store_ps)(to, OP(fmadd_ps)(a, b, OP(load_ps)(to)));
}

/* A tile: mt rows of X times 2 vectors of rows of W, from vector h0 on; codes up to `most`. One
 * plane: the sum of a block becomes a float by its first value (planes.h). Two planes: first the
 * high one's sum, times 256, then the low one's on top. */
SIMD_INLINE SIMD_TARGET void NAME(tile)(const struct int_product *job, const uint32_t bits,
                                        const uint32_t zero, const enum int_scales scales,
                                        const int most, const size_t n_planes, const size_t mt,
                                        const size_t h0)
{
    const int decoded = int_is_decoded(scales), has_min = int_has_min(scales);
    const size_t n_groups = int_groups(scales), n_steps = 8 / n_groups;
    const struct planes_record at = planes_record(mt, n_planes);
    const uint8_t *x = job->x;
    /* from vector h0 on: what lies at it has constant offsets from here */
    const uint8_t *codes = (decoded ? job->decoded->codes : job->w) + WIDTH * h0;
    const float *by =
        decoded ? (const float *)(const void *)job->decoded->factors + SIMD_LANES * h0 : NULL;
    const size_t s_width = int_super_bytes(scales) ? WIDTH / 4 : WIDTH / 2;
    const size_t stride = decoded ? job->decoded->stride : 0;
    const uint32_t shift = int_shift(decoded ? job->decoded->zero : zero);
    const uint8_t *ahead = job->ahead;
    const uint32_t n_ahead = h0 ? 0 : job->n_ahead;
    float *acc = job->acc + SIMD_LANES * h0;
    /* acc stays in registers, unless a second plane or unpacking needs these; 8 lanes have 16 */
    const int kept =
        SIMD_DOTS &&
        (mt < 4 || (SIMD_LANES == 16 && mt == 4 && n_planes == 1) ||
         (SIMD_LANES == 16 && (mt == 4 || n_planes == 1) && (decoded || bits == 4 || bits == 8)));
    VF f[PLANES_TILE][2];
    if (kept)
        SIMD_UNROLL for (size_t t = 0; t < mt; t++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            f[t][h] = OP(load_ps)(acc + t * PANEL_ROWS + SIMD_LANES * h);
    for (uint32_t i = 0; i < job->n; i++, x += at.n_bytes) {
        const uint32_t b = job->begin + i;
        const uint8_t *p = decoded ? codes : codes + int_block_at(bits, scales, b);
        const uint8_t *super = codes + int_super_at(bits, scales, b) - WIDTH / 2 * h0;
        const uint8_t *s = p + int_code_bytes(bits) - (WIDTH - s_width) * h0;
        if (decoded || n_ahead)
            for (uint32_t line = 0; line < n_ahead; line++, ahead += 64)
                __builtin_prefetch(ahead, 0, 2);
        else if (!h0)
            SIMD_UNROLL for (uint32_t line = 0; line < int_block_bytes(bits, scales); line += 64)
                __builtin_prefetch(p + INT_AHEAD + line);
        SIMD_UNROLL for (size_t g = 0; g < n_groups; g++)
        {
            VI u[PLANES_TILE][2];
            if (!kept)
                SIMD_FORGET(acc);
            const size_t start = n_groups == 2 ? at.halves + g * 4 * mt : at.start;
            if (n_planes == 2 || has_min)
                SIMD_UNROLL for (size_t t = 0; t < mt; t++) u[t][0] = u[t][1] =
                    OP(set1_epi32)(n_planes == 1 ? PLANES_MAGIC : 0);
            else
                SIMD_UNROLL for (size_t t = 0; t < mt; t++) u[t][0] = u[t][1] =
                    NAME(start)(x + start + 4 * t, n_planes, shift);
            NAME(dots)(u, p, bits, most, g * n_steps, (g + 1) * n_steps, x, mt, 0);
            if (n_planes == 2) {
                SIMD_AFTER(p, u[mt - 1][1]);
                SIMD_AFTER(x, u[mt - 1][1]);
                SIMD_UNROLL for (size_t t = 0; t < mt; t++)
                {
                    u[t][0] = OP(slli_epi32)(u[t][0], 8);
                    u[t][1] = OP(slli_epi32)(u[t][1], 8);
                    if (!has_min) {
                        VI z = NAME(start)(x + start + 4 * t, n_planes, shift);
                        u[t][0] = OP(add_epi32)(u[t][0], z);
                        u[t][1] = OP(add_epi32)(u[t][1], z);
                    }
                }
                NAME(dots)
                (u, p, bits, most, g * n_steps, (g + 1) * n_steps, x + PLANES_BLOCK * mt, mt, 0);
            }
            SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            {
                if (SIMD_DOTS)
                    SIMD_AFTER(x, u[mt - 1][h]);
                VF scale = decoded ? OP(load_ps)(by + INT_FACTOR(scale[g]) + SIMD_LANES * h)
                                   : NAME(scale)(super, s, bits, scales, g, h);
                VF base = n_planes == 2 ? scale
                          : decoded     ? OP(load_ps)(by + INT_FACTOR(base[g]) + SIMD_LANES * h)
                                        : NAME(base)(scale);
                SIMD_UNROLL for (size_t t = 0; t < mt; t++)
                {
                    VF v = n_planes == 1 ? OP(fmadd_ps)(AS_FLOAT(u[t][h]), scale, base)
                                         : OP(mul_ps)(OP(cvtepi32_ps)(u[t][h]), scale);
                    VF d = NAME(one)(x + at.scale + 4 * t);
                    float *to = acc + t * PANEL_ROWS + SIMD_LANES * h;
                    NAME(add)(kept ? &f[t][h] : NULL, to, v, d);
                    if (g + 1 < n_groups && h && t + 1 == mt) {
                        SIMD_AFTER(p, v);
                        SIMD_AFTER(x, v);
                    }
                }
            }
        }
        if (has_min)
            SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            {
                VF m = decoded ? OP(load_ps)(by + INT_FACTOR(min) + SIMD_LANES * h)
                               : NAME(min)(super, s, scales, h);
                SIMD_UNROLL for (size_t t = 0; t < mt; t++)
                {
                    VF d = NAME(one)(x + at.sum + 4 * t);
                    float *to = acc + t * PANEL_ROWS + SIMD_LANES * h;
                    NAME(add)(kept ? &f[t][h] : NULL, to, m, d);
                }
            }
        if (decoded) {
            codes += stride;
            by += sizeof(struct int_factors) / sizeof(*by);
        }
    }
    if (kept)
        SIMD_UNROLL for (size_t t = 0; t < mt; t++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            OP(store_ps)(acc + t * PANEL_ROWS + SIMD_LANES * h, f[t][h]);
}

#undef NAME
#undef SIMD_JOIN
#undef SIMD_JOIN2
#undef OP
#undef VI
#undef VF
#undef VH
#undef AS_FLOAT
#undef LOAD
#undef AND
#undef OR
#undef HALF
#undef BYTES
#undef WIDTH
#endif
