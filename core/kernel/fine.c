/* [kernel] fine blocks: which they are. */
#include "core/kernel/fine.h"

#include "core/kernel/cpu.h"
#include "core/kernel/simd.h"

/* The blocks of a tile. */
struct blocks {
    uint32_t n, mt;
    const float *least;  /* [mt] */
    const uint8_t *high; /* their records */
};

static const float *scales_of(const struct blocks *b, uint32_t i)
{
    const struct planes_record at = planes_record(b->mt);
    return (const float *)(const void *)(b->high + i * at.n_bytes + at.scale);
}

static void choose_scalar(const struct blocks *b, uint8_t *fine)
{
    for (uint32_t i = 0; i < b->n; i++) {
        fine[i] = 0;
        for (uint32_t t = 0; t < b->mt; t++)
            fine[i] |= (uint8_t)(!(scales_of(b, i)[t] < b->least[t]) << t);
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void choose_avx2(const struct blocks *b, uint8_t *fine)
{
    const __m256i lanes = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)b->mt),
                                             _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256 least = _mm256_maskload_ps(b->least, lanes);
    const int all = (1 << b->mt) - 1;
    for (uint32_t i = 0; i < b->n; i++) {
        const __m256 high = _mm256_maskload_ps(scales_of(b, i), lanes);
        fine[i] = (uint8_t)(all & ~_mm256_movemask_ps(_mm256_cmp_ps(high, least, _CMP_LT_OQ)));
    }
}
#endif

static void choose(const struct blocks *b, uint8_t *fine)
{
#if defined(__x86_64__)
    if (cpu_level() != CPU_SCALAR) {
        choose_avx2(b, fine);
        return;
    }
#endif
    choose_scalar(b, fine);
}

size_t fine_bytes(uint32_t n_rows, uint32_t n_in)
{
    const struct planes x = planes_layout(n_rows, n_in, 2, NULL);
    return (size_t)x.n_tiles * x.n_blocks;
}

void fine_choose(const struct planes *x, const float *least, uint8_t *fine)
{
    for (uint32_t tile = 0; tile < x->n_tiles; tile++, fine += x->n_blocks) {
        const uint32_t row = planes_tile(x, tile);
        const struct blocks b = {.n = x->n_blocks,
                                 .mt = planes_tile(x, tile + 1) - row,
                                 .least = least + row,
                                 .high = planes_at(x, tile)};
        choose(&b, fine);
    }
}
