/* [kernel] Integer panels in vectors: a template, included by panel_int_variants.h once for each
 * CPU level, with
 *
 *   SIMD         a level of cpu.h, by its name       SIMD_TARGET  its target attribute
 *   SIMD_LANES   8 or 16 rows of W in a vector       SIMD_DOTS    1: byte dot products
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

/* Block b of a panel, the i-th decoded. */
SIMD_INLINE SIMD_TARGET void NAME(decode_block)(const uint8_t *w, const uint32_t bits,
                                                const enum int_scales scales, uint32_t b,
                                                struct int_decoded *out, uint32_t i)
{
    const uint8_t *super = w + int_super_at(bits, scales, b);
    const uint8_t *p = w + int_block_at(bits, scales, b), *s = p + int_code_bytes(bits);
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

SIMD_INLINE SIMD_TARGET void NAME(decode)(const uint8_t *w, const uint32_t bits,
                                          const uint32_t zero, const enum int_scales scales,
                                          uint32_t begin, uint32_t n, struct int_decoded *out)
{
    out->codes = bits == 8 ? w + int_block_at(bits, scales, begin) : out->buffer[0][0][0];
    out->stride = bits == 8 ? int_block_bytes(bits, scales) : sizeof(out->buffer[0]);
    out->zero = SIMD_DOTS && zero ? 128 : zero;
    for (uint32_t i = 0; i < n; i++)
        NAME(decode_block)(w, bits, scales, begin + i, out, i);
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

/* u[row] += steps [begin, end) of a block with the codes q. to: where its codes are copied, or NULL. */
#if SIMD_DOTS
SIMD_INLINE SIMD_TARGET void NAME(dots)(VI u[PLANES_TILE][2], const uint8_t *p, const uint32_t bits,
                                        const int most, const size_t begin, const size_t end,
                                        const struct int_records x, const size_t rows,
                                        const struct int_rows some, const size_t h0, uint8_t *to)
{
    (void)most;
    /* dots of one sum wait for each other: a single row has four sums, in the places of other rows */
    const size_t n = rows == 1 ? 4 : rows;
    SIMD_UNROLL for (size_t r = rows; r < n; r++) u[r][0] = u[r][1] = OP(set1_epi32)(0);
    SIMD_UNROLL for (size_t j = begin; j < end; j++)
    {
        VI c0 = NAME(step)(p, bits, j, h0), c1 = NAME(step)(p, bits, j, h0 + 1);
        if (to) {
            *(VI *)(void *)(to + 128 * j + WIDTH * h0) = c0;
            *(VI *)(void *)(to + 128 * j + WIDTH * (h0 + 1)) = c1;
        }
        SIMD_UNROLL for (size_t r = 0; r < rows; r++)
        {
            VI v = NAME(four)(int_row(x, some, r, PLANES_BLOCK) + 4 * j);
            const size_t at = n > rows ? j % n : r;
            u[at][0] = NAME(dot)(u[at][0], c0, v);
            u[at][1] = NAME(dot)(u[at][1], c1, v);
        }
    }
    SIMD_UNROLL for (size_t d = n / 2; d >= rows; d /= 2) SIMD_UNROLL for (size_t r = 0; r < d; r++)
        SIMD_UNROLL for (size_t h = 0; h < 2; h++) u[r][h] = OP(add_epi32)(u[r][h], u[r + d][h]);
}
#else
/* maddubs adds two products of an unsigned and a signed byte in 16 bits, which saturate from codes
 * of 129 on: wide codes are multiplied as 16-bit integers, even and odd ones apart. Of narrow codes
 * as many pairs are added in 16 bits as fit there: 2 of codes up to 63 and bytes from -128 on, 4 up
 * to 31, 8 up to 15. SIMD_KEEP stops the compiler from adding in another order, which takes more
 * registers than there are. */
SIMD_INLINE SIMD_TARGET void NAME(dots_wide)(VI u[PLANES_TILE][2], const uint8_t *p,
                                             const size_t begin, const size_t end,
                                             const struct int_records x, const size_t rows,
                                             const struct int_rows some, const size_t h0)
{
    SIMD_UNROLL for (size_t j = begin; j < end; j++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
    {
        VI c = NAME(step)(p, 8, j, h0 + h);
        VI even = AND(c, OP(set1_epi16)(255)), odd = OP(srli_epi16)(c, 8);
        SIMD_UNROLL for (size_t r = 0; r < rows; r++)
        {
            VI v = NAME(four)(int_row(x, some, r, PLANES_BLOCK) + 4 * j);
            VI v_even = OP(srai_epi16)(OP(slli_epi16)(v, 8), 8), v_odd = OP(srai_epi16)(v, 8);
            u[r][h] = OP(add_epi32)(u[r][h], OP(madd_epi16)(even, v_even));
            u[r][h] = OP(add_epi32)(u[r][h], OP(madd_epi16)(odd, v_odd));
            SIMD_KEEP(u[r][h]);
        }
    }
}

SIMD_INLINE SIMD_TARGET void NAME(dots)(VI u[PLANES_TILE][2], const uint8_t *p, const uint32_t bits,
                                        const int most, const size_t begin, const size_t end,
                                        const struct int_records x, const size_t rows,
                                        const struct int_rows some, const size_t h0, uint8_t *to)
{
    (void)to;
    if (most > 63) {
        NAME(dots_wide)(u, p, begin, end, x, rows, some, h0);
        return;
    }
    VI pairs[PLANES_TILE][2];
    const size_t n = most > 31 ? 2 : most > 15 ? 4 : 8;
    SIMD_UNROLL for (size_t j = begin; j < end; j++)
    {
        VI c0 = NAME(step)(p, bits, j, h0), c1 = NAME(step)(p, bits, j, h0 + 1);
        SIMD_UNROLL for (size_t r = 0; r < rows; r++)
        {
            VI v = NAME(four)(int_row(x, some, r, PLANES_BLOCK) + 4 * j);
            VI m0 = OP(maddubs_epi16)(c0, v), m1 = OP(maddubs_epi16)(c1, v);
            pairs[r][0] = (j - begin) % n ? OP(add_epi16)(pairs[r][0], m0) : m0;
            pairs[r][1] = (j - begin) % n ? OP(add_epi16)(pairs[r][1], m1) : m1;
            SIMD_KEEP(pairs[r][0]);
            SIMD_KEEP(pairs[r][1]);
            if ((j - begin) % n != n - 1 && j + 1 != end)
                continue;
            SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            {
                VI sums = OP(madd_epi16)(pairs[r][h], OP(set1_epi16)(1));
                u[r][h] = OP(add_epi32)(u[r][h], sums);
                SIMD_KEEP(u[r][h]);
            }
        }
    }
}
#endif

/* The first value of a sum: at, made for a zero point of 128, shifted for the one there is. */
SIMD_INLINE SIMD_TARGET VI NAME(start)(const uint8_t *at, const uint32_t shift)
{
    VI v = NAME(four)(at);
    if (SIMD_DOTS)
        return v;
    const VI magic = OP(set1_epi32)(PLANES_MAGIC);
    v = OP(sra_epi32)(OP(sub_epi32)(v, magic), _mm_cvtsi32_si128((int)shift));
    return OP(add_epi32)(v, magic);
}

/* What multiplies row t's sums of a plane: its scale, or sum 1: what its minimum is multiplied by. */
SIMD_INLINE SIMD_TARGET VF NAME(by)(const uint8_t *x, const struct int_rows some, const size_t t,
                                    const size_t sum)
{
    const struct planes_record at = planes_record(some.mt);
    return NAME(one)(x + at.scale + 4 * (sum * some.mt + some.r0 + t));
}

/* A tile's sums f (of rows that are not kept: acc) += a block of W times one or two planes of one of X.
 * Plane after plane, and in each the groups in order, then what the minimum adds. W is copied, decoded,
 * to `copy` (with byte dot products; of one group). */
SIMD_INLINE SIMD_TARGET void
NAME(multiply)(struct int_weights w, struct int_records x, const size_t planes, const uint32_t bits,
               const uint32_t shift, const enum int_scales scales, const int most,
               const struct int_rows some, const size_t h0, const size_t kept, VF f[PLANES_TILE][2],
               float *acc, const struct int_copy copy)
{
    const int decoded = int_is_decoded(scales), has_min = int_has_min(scales);
    const size_t n_groups = int_groups(scales), n_steps = 8 / n_groups, rows = planes * some.n;
    const size_t s_width = int_super_bytes(scales) ? WIDTH / 4 : WIDTH / 2;
    const size_t s_at = int_code_bytes(bits) - (WIDTH - s_width) * h0;
    const struct planes_record at = planes_record(some.mt);
    /* the minimum is added with the sum, where there are registers for both */
    const int at_hand = has_min && SIMD_LANES == 16;
    VI u[2][PLANES_TILE][2];
    SIMD_UNROLL for (size_t plane = 0; plane < planes; plane++)
    {
        const uint8_t *factors = x.by ? x.by : x.at[plane];
        SIMD_UNROLL for (size_t g = 0; g < n_groups; g++)
        {
            const size_t start = n_groups == 2 ? at.halves + g * 4 * some.mt : at.start;
            if (kept < some.n)
                SIMD_FORGET(acc);
            if (plane == 0) {
                SIMD_UNROLL for (size_t r = 0; r < rows; r++) u[g][r][0] = u[g][r][1] =
                    has_min ? OP(set1_epi32)(PLANES_MAGIC)
                            : NAME(start)(int_row(x, some, r, 4) + start, shift);
                NAME(dots)
                (u[g], w.p, bits, most, g * n_steps, (g + 1) * n_steps, x, rows, some, 0,
                 copy.codes);
            }
            SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            {
                if (SIMD_DOTS)
                    SIMD_AFTER(factors, u[g][rows - 1][h]);
                VF scale = decoded ? OP(load_ps)(w.by + INT_FACTOR(scale[g]) + SIMD_LANES * h)
                                   : NAME(scale)(w.super, w.p + s_at, bits, scales, g, h);
                VF base = decoded ? OP(load_ps)(w.by + INT_FACTOR(base[g]) + SIMD_LANES * h)
                                  : NAME(base)(scale);
                VF min = scale;
                if (at_hand)
                    min = decoded ? OP(load_ps)(w.by + INT_FACTOR(min) + SIMD_LANES * h)
                                  : NAME(min)(w.super, w.p + s_at, scales, h);
                if (copy.codes) {
                    OP(store_ps)(copy.by + INT_FACTOR(scale[g]) + SIMD_LANES * h, scale);
                    OP(store_ps)(copy.by + INT_FACTOR(base[g]) + SIMD_LANES * h, base);
                    if (has_min)
                        OP(store_ps)(copy.by + INT_FACTOR(min) + SIMD_LANES * h, min);
                }
                SIMD_UNROLL for (size_t t = 0; t < some.n; t++)
                {
                    VF v = OP(fmadd_ps)(AS_FLOAT(u[g][plane * some.n + t][h]), scale, base);
                    float *to = acc + t * PANEL_ROWS + SIMD_LANES * h;
                    VF sum = t < kept ? f[t][h] : OP(load_ps)(to);
                    sum = OP(fmadd_ps)(v, NAME(by)(factors, some, t, 0), sum);
                    if (at_hand)
                        sum = OP(fmadd_ps)(min, NAME(by)(factors, some, t, 1), sum);
                    if (t < kept)
                        f[t][h] = sum;
                    else
                        OP(store_ps)(to, sum);
                    if (planes == 1 && h && t + 1 == some.n && g + 1 < n_groups) {
                        SIMD_AFTER(w.p, v);
                        SIMD_AFTER(x.at[0], v);
                        SIMD_AFTER(factors, v);
                    }
                }
            }
        }
        if (has_min && !at_hand)
            SIMD_UNROLL for (size_t h = 0; h < 2; h++)
            {
                VF min = decoded ? OP(load_ps)(w.by + INT_FACTOR(min) + SIMD_LANES * h)
                                 : NAME(min)(w.super, w.p + s_at, scales, h);
                SIMD_UNROLL for (size_t t = 0; t < some.n; t++)
                {
                    VF by = NAME(by)(factors, some, t, 1);
                    float *to = acc + t * PANEL_ROWS + SIMD_LANES * h;
                    if (t < kept)
                        f[t][h] = OP(fmadd_ps)(min, by, f[t][h]);
                    else
                        OP(store_ps)(to, OP(fmadd_ps)(min, by, OP(load_ps)(to)));
                }
            }
    }
}

SIMD_INLINE SIMD_TARGET void NAME(fetch)(VF f[PLANES_TILE][2], const size_t n, const float *acc)
{
    SIMD_UNROLL for (size_t t = 0; t < n; t++) SIMD_UNROLL for (size_t h = 0; h < 2; h++) f[t][h] =
        OP(load_ps)(acc + t * PANEL_ROWS + SIMD_LANES * h);
}
SIMD_INLINE SIMD_TARGET void NAME(keep)(VF f[PLANES_TILE][2], const size_t n, float *acc)
{
    SIMD_UNROLL for (size_t t = 0; t < n; t++) SIMD_UNROLL for (size_t h = 0; h < 2; h++)
        OP(store_ps)(acc + t * PANEL_ROWS + SIMD_LANES * h, f[t][h]);
}

/* The low plane alone, after the high one. */
SIMD_INLINE SIMD_TARGET void NAME(multiply_low)(struct int_weights w, struct int_records x,
                                                const uint32_t bits, const uint32_t shift,
                                                const enum int_scales scales, const int most,
                                                const struct int_rows some, const size_t h0,
                                                const size_t kept, VF f[PLANES_TILE][2], float *acc)
{
    const struct int_records low = {{x.at[1], NULL}, x.by};
    SIMD_APART(w.p);
    SIMD_APART(w.super);
    if (int_is_decoded(scales))
        SIMD_APART(w.by);
    SIMD_APART(acc);
    NAME(multiply)
    (w, low, 1, bits, shift, scales, most, some, h0, kept, f, acc, (struct int_copy){NULL, NULL});
}

/* The low plane of most of the rows: of all, but the factors of the others are 0, which adds nothing. */
SIMD_INLINE SIMD_TARGET void NAME(multiply_most)(struct int_weights w, struct int_records x,
                                                 const uint32_t bits, const uint32_t shift,
                                                 const enum int_scales scales, const int most,
                                                 const struct int_rows some, const size_t h0,
                                                 const size_t kept, VF f[PLANES_TILE][2],
                                                 float *acc, uint32_t low)
{
    uint8_t by[PLANES_TILE * PLANES_ROW_BYTES];
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i rows = _mm256_and_si256(_mm256_set1_epi32((int)low), lane);
    const __m256 mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(rows, lane));
    SIMD_UNROLL for (size_t sum = 0; sum < 2; sum++)
    {
        const size_t at = planes_record(some.mt).scale + 4 * (sum * some.mt + some.r0);
        const __m256 v = _mm256_loadu_ps((const float *)(const void *)(x.at[1] + at));
        _mm256_storeu_ps((float *)(void *)(by + at), _mm256_and_ps(v, mask));
    }
    x.by = by;
    NAME(multiply_low)(w, x, bits, shift, scales, most, some, h0, kept, f, acc);
}

/* The low plane of some of the rows, one by one; their sums pass through acc. */
SIMD_INLINE SIMD_TARGET void NAME(multiply_some)(struct int_weights w, struct int_records x,
                                                 const uint32_t bits, const uint32_t shift,
                                                 const enum int_scales scales, const int most,
                                                 const struct int_rows some, const size_t h0,
                                                 const size_t kept, VF f[PLANES_TILE][2],
                                                 float *acc, uint32_t low)
{
    NAME(keep)(f, kept, acc);
    for (; low; low &= low - 1) {
        const size_t t = (size_t)__builtin_ctz(low);
        const struct int_rows one = {some.mt, some.r0 + t, 1};
        NAME(multiply_low)(w, x, bits, shift, scales, most, one, h0, 0, f, acc + t * PANEL_ROWS);
    }
    NAME(fetch)(f, kept, acc);
}

/* Of how many of n rows the sums stay in registers: as many as fit beside those of a block and what
 * unpacking takes; 8 lanes have 16. Of one row or two to fetch and to store them costs nothing. */
SIMD_INLINE size_t NAME(kept)(const size_t n, const uint32_t bits, const size_t n_planes,
                              const int decoded, const uint32_t packed_bits)
{
    if (!SIMD_DOTS || SIMD_LANES == 8)
        return SIMD_DOTS && n < 4 ? n : 0;
    if (decoded && !packed_bits)
        return n < (n_planes == 1 ? 8 : 7) ? n : 5;
    if (n <= 4 || (n <= 6 && (decoded || bits == 8)))
        return n;
    if (n <= 6)
        return bits == 4 && n_planes == 1 ? 5 : 0;
    return 2;
}

/* A tile: n rows from r0 on of mt of X times 2 vectors of rows of W, from vector h0 on; codes up to
 * `most`. The sum of a block becomes a float by its first value (planes.h). Of two planes few rows
 * take both at once, more one after the other; most blocks do not need the second. packed_bits: of
 * decoded blocks that are decoded on the way, or 0: with plain scales they are read as they are and
 * copied as they are read; where scales are products each is decoded while the one before it is
 * computed on, which hides what that takes. */
SIMD_INLINE SIMD_TARGET void NAME(tile)(struct int_product *job, const uint32_t bits,
                                        const uint32_t zero, const enum int_scales scales,
                                        const int most, const size_t n_planes, const size_t mt,
                                        const size_t r0, const size_t n, const size_t h0,
                                        const uint32_t packed_bits,
                                        const enum int_scales packed_scales)
{
    const int decoded = int_is_decoded(scales);
    const int at_once = !packed_bits && n <= (SIMD_LANES == 8           ? 1
                                              : int_groups(scales) == 1 ? 3
                                                                        : 2);
    const size_t n_bytes = planes_record(mt).n_bytes;
    const struct int_rows some = {mt, r0, n};
    struct int_records x = {{job->x, job->low}, NULL};
    const uint8_t *fine = job->fine;
    const uint32_t all = (1U << n) - 1;
    /* from vector h0 on: what lies at it has constant offsets from here */
    const uint8_t *codes = (decoded ? job->decoded->codes : job->w) + WIDTH * h0;
    const float *by =
        decoded ? (const float *)(const void *)job->decoded->factors + SIMD_LANES * h0 : NULL;
    const size_t stride = decoded ? job->decoded->stride : 0;
    const uint32_t shift = int_shift(decoded ? job->decoded->zero : zero);
    const uint8_t *ahead = job->ahead;
    const uint32_t n_ahead = h0 || r0 ? 0 : job->n_ahead;
    const uint8_t *fetch = job->fetch;
    const uint32_t n_fetch = h0 || r0 || mt < INT_FETCH_ROWS ? 0 : job->n_fetch;
    float *acc = job->acc + r0 * PANEL_ROWS + SIMD_LANES * h0;
    const size_t kept = NAME(kept)(n, bits, n_planes, decoded, packed_bits);
    const int copies = packed_bits && int_super_bytes(packed_scales) == 0;
    const uint32_t read_bits = copies ? packed_bits : bits;
    const enum int_scales read_scales = copies ? packed_scales : scales;
    const struct int_copy none = {NULL, NULL};
    struct int_copy copy = none;
    struct int_weights w = {.by = by}, packed = {.by = NULL};
    VF f[PLANES_TILE][2];
    NAME(fetch)(f, kept, acc);
    for (uint32_t i = 0; i < job->n; i++, x.at[0] += n_bytes) {
        const uint32_t b = job->begin + i;
        if (packed_bits && !copies)
            NAME(decode_block)(job->w, packed_bits, packed_scales, b, job->decoded, i);
        w.p = decoded ? codes : codes + int_block_at(bits, scales, b);
        w.super = codes + int_super_at(bits, scales, b) - WIDTH / 2 * h0;
        if (decoded || n_ahead)
            for (uint32_t line = 0; line < n_ahead; line++, ahead += 64)
                __builtin_prefetch(ahead, 0, 2);
        else if (!h0 && !r0)
            SIMD_UNROLL for (uint32_t line = 0; line < int_block_bytes(bits, scales); line += 64)
                __builtin_prefetch(w.p + INT_AHEAD + line);
        if (copies) {
            packed.super = job->w + int_super_at(packed_bits, packed_scales, b);
            packed.p = job->w + int_block_at(packed_bits, packed_scales, b);
            copy.codes = job->decoded->buffer[i][0][0];
            copy.by = (float *)(void *)&job->decoded->factors[i];
        }
        for (uint32_t line = 0; line < n_fetch; line++, fetch += 64)
            __builtin_prefetch(fetch, 0, 2);
        const uint32_t low = n_planes < 2 ? 0 : fine ? fine[i] >> r0 & all : all;
        SIMD_APART(w.p);
        SIMD_APART(x.at[0]);
        if (at_once && low == all) {
            NAME(multiply)(w, x, 2, bits, shift, scales, most, some, h0, kept, f, acc, none);
        } else {
            NAME(multiply)
            (copies ? packed : w, x, 1, read_bits, shift, read_scales, most, some, h0, kept, f, acc,
             copy);
            SIMD_APART(fine);
            if (!at_once && 2 * (size_t)__builtin_popcount(low) >= n)
                NAME(multiply_most)(w, x, bits, shift, scales, most, some, h0, kept, f, acc, low);
            else if (n > 1 && low)
                NAME(multiply_some)(w, x, bits, shift, scales, most, some, h0, kept, f, acc, low);
        }
        x.at[1] += n_bytes;
        if (decoded) {
            codes += stride;
            w.by += sizeof(struct int_factors) / sizeof(*by);
        }
    }
    NAME(keep)(f, kept, acc);
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
