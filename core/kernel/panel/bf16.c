/* [kernel] panel BF16: the upper halves of floats [n_in, 32]. CPU_AVX512BF16 takes two values of k at
 * once and rounds rows of X to BF16 too, where activations are int8: half a bit in 256 of each value,
 * which costs less than int8's half a step in 127 of the greatest of 32. */
#include "core/kernel/panel_float_variants.h"

extern const struct panel panel_bf16;

#if defined(__x86_64__)

/* Values of k whose rows of X are rounded at a time; bytes of W from those at hand to what is
 * fetched. */
enum { DOTS_K = 256, DOTS_AHEAD = 4096 };

/* In assembly as in panel_int_variants.h. */
SIMD_INLINE TARGET_AVX512 __m512 dot(__m512 sum, __m512i w, uint32_t x)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(_mm512_set1_epi32((int)x)));
    return sum;
}

/* n values of a row to pairs of BF16 [n rounded up to 16, / 2], zeros behind the last. */
SIMD_INLINE TARGET_AVX512 void round_row(const float *x, uint32_t n, uint32_t *pairs)
{
    for (uint32_t k = 0; k < n; k += 16, pairs += 8) {
        uint32_t left = n - k < 16 ? n - k : 16;
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1U << left) - 1), x + k);
        __m256i rounded;
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(v));
        _mm256_storeu_si256((__m256i *)(void *)pairs, rounded);
    }
}

/* sum += two values of k, the second row of W at w1, or 0. */
SIMD_INLINE TARGET_AVX512 void pair(__m512 f[FLOAT_TILE][2], const uint8_t *w, __m512i w1,
                                    uint32_t q[FLOAT_TILE][DOTS_K / 2], uint32_t j, const size_t mt)
{
    const __m512i w0 = _mm512_load_si512(w);
    const __m512i low = _mm512_unpacklo_epi16(w0, w1), high = _mm512_unpackhi_epi16(w0, w1);
    SIMD_UNROLL for (size_t t = 0; t < mt; t++)
    {
        f[t][0] = dot(f[t][0], low, q[t][j]);
        f[t][1] = dot(f[t][1], high, q[t][j]);
    }
}

/* A tile of mt rows of X. Interleaving two rows of W pairs their values within each 128 bits: sums of
 * rows 0-3, 8-11, 16-19, 24-27 lie in one vector, the others in another. */
SIMD_INLINE TARGET_AVX512 void dots_tile(const struct float_product *job, const size_t mt)
{
    _Alignas(64) uint32_t q[FLOAT_TILE][DOTS_K / 2];
    const uint8_t *w = job->w;
    float *acc = job->acc;
    __m512 f[FLOAT_TILE][2];
    SIMD_UNROLL for (size_t t = 0; t < mt; t++)
    {
        __m512 a = _mm512_load_ps(acc + t * PANEL_ROWS),
               b = _mm512_load_ps(acc + t * PANEL_ROWS + 16);
        f[t][0] = _mm512_shuffle_f32x4(a, b, 0x88);
        f[t][1] = _mm512_shuffle_f32x4(a, b, 0xdd);
    }
    for (uint32_t k = 0; k < job->n_in; k += DOTS_K) {
        const uint32_t n = job->n_in - k < DOTS_K ? job->n_in - k : DOTS_K;
        for (size_t t = 0; t < mt; t++)
            round_row(job->x + t * job->x_stride + k, n, q[t]);
        for (uint32_t j = 0; j < n / 2; j++, w += 128) {
            __builtin_prefetch(w + DOTS_AHEAD);
            __builtin_prefetch(w + DOTS_AHEAD + 64);
            pair(f, w, _mm512_load_si512(w + 64), q, j, mt);
        }
        if (n % 2)
            pair(f, w, _mm512_setzero_si512(), q, n / 2, mt);
    }
    SIMD_UNROLL for (size_t t = 0; t < mt; t++)
    {
        __m512 a = _mm512_shuffle_f32x4(f[t][0], f[t][1], 0x44);
        __m512 b = _mm512_shuffle_f32x4(f[t][0], f[t][1], 0xee);
        _mm512_store_ps(acc + t * PANEL_ROWS, _mm512_shuffle_f32x4(a, a, 0xd8));
        _mm512_store_ps(acc + t * PANEL_ROWS + 16, _mm512_shuffle_f32x4(b, b, 0xd8));
    }
}

#define DOTS(mt)                                                                                   \
    TARGET_AVX512 static void dots_##mt(const struct float_product *job) { dots_tile(job, mt); }
DOTS(1)
DOTS(2)
DOTS(3)
DOTS(4)
DOTS(5)
DOTS(6)

static void dots(const uint8_t *w, uint32_t n_in, const float *x, size_t x_stride, uint32_t n_rows,
                 float *acc)
{
    static float_tile_fn *const tile[FLOAT_TILE] = {dots_1, dots_2, dots_3, dots_4, dots_5, dots_6};
    float_run_tiles(tile, (struct float_product){w, n_in, x, x_stride, acc}, n_rows);
}
#endif

FLOAT_PANEL(bf16, FLOAT_BRAIN, dots)
