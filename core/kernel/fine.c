/* [kernel] fine blocks: which they are, and their records. */
#include "core/kernel/fine.h"

#include "core/kernel/cpu.h"
#include "core/kernel/simd.h"

#include <string.h>

/* The blocks of a tile. */
struct blocks {
    uint32_t n, mt;
    const float *least;        /* [mt] */
    const uint8_t *high, *low; /* their records */
};

static const float *scales_of(const struct blocks *b, uint32_t i)
{
    const struct planes_record at = planes_record(b->mt);
    return (const float *)(const void *)(b->high + i * at.n_bytes + at.scale);
}

/* fine[i]: one of the rows reads the low plane of block i. */
static void choose_scalar(const struct blocks *b, bool *fine)
{
    for (uint32_t i = 0; i < b->n; i++) {
        fine[i] = false;
        for (uint32_t t = 0; t < b->mt; t++)
            fine[i] |= !(scales_of(b, i)[t] < b->least[t]);
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void choose_avx2(const struct blocks *b, bool *fine)
{
    const __m256i lanes = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)b->mt),
                                             _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256 least = _mm256_maskload_ps(b->least, lanes);
    const int all = (1 << b->mt) - 1;
    for (uint32_t i = 0; i < b->n; i++) {
        const __m256 high = _mm256_maskload_ps(scales_of(b, i), lanes);
        fine[i] = (_mm256_movemask_ps(_mm256_cmp_ps(high, least, _CMP_LT_OQ)) & all) != all;
    }
}
#endif

static void choose(const struct blocks *b, bool *fine)
{
#if defined(__x86_64__)
    if (cpu_level() != CPU_SCALAR) {
        choose_avx2(b, fine);
        return;
    }
#endif
    choose_scalar(b, fine);
}

/* Block i's low record, without the factors of rows that do not read it. */
static void copy_low(const struct blocks *b, uint32_t i, uint8_t *to)
{
    const struct planes_record at = planes_record(b->mt);
    memcpy(to, b->low + i * at.n_bytes, at.n_bytes);
    for (uint32_t t = 0; t < b->mt; t++)
        if (scales_of(b, i)[t] < b->least[t]) {
            memset(to + at.scale + (size_t)4 * t, 0, sizeof(float));
            memset(to + at.sum + (size_t)4 * t, 0, sizeof(float));
        }
}

struct room {
    uint32_t *starts;
    bool *blocks;
    uint8_t *records;
};

static size_t room_layout(const struct planes *x, uint8_t *base, struct room *r)
{
    const size_t starts = (size_t)x->n_tiles * planes_chunks(x->n_blocks) * sizeof(*r->starts);
    const size_t blocks = (starts + (size_t)x->n_tiles * x->n_blocks + 63) / 64 * 64;
    if (base) {
        r->starts = (uint32_t *)(void *)base;
        r->blocks = (bool *)(base + starts);
        r->records = base + blocks;
    }
    return blocks + planes_bytes(x) / x->n_planes;
}

size_t fine_bytes(uint32_t n_rows, uint32_t n_in)
{
    const struct planes x = planes_layout(n_rows, n_in, 2, NULL);
    struct room none;
    return (room_layout(&x, NULL, &none) + 63) / 64 * 64;
}

/* One tile: `blocks` of it, its starts and where its records go. */
static void choose_tile(const struct blocks *b, const struct room *r)
{
    const size_t n_bytes = planes_record(b->mt).n_bytes;
    uint32_t n = 0, chunk = 0;
    choose(b, r->blocks);
    for (uint32_t i = 0; i < b->n; i++) {
        if (i == planes_chunk(b->n, chunk))
            r->starts[chunk++] = n;
        if (r->blocks[i])
            copy_low(b, i, r->records + n++ * n_bytes);
    }
}

struct fine fine_choose(const struct planes *x, const float *least, void *room)
{
    struct room r = {.blocks = room};
    if (!x || x->n_planes < 2)
        return (struct fine){.blocks = r.blocks};
    room_layout(x, room, &r);
    const struct fine fine = {r.blocks, r.starts, r.records};
    for (uint32_t tile = 0; tile < x->n_tiles; tile++) {
        const uint32_t row = planes_tile(x, tile);
        struct blocks b = {.n = x->n_blocks, .mt = planes_tile(x, tile + 1) - row};
        const size_t n_bytes = b.n * planes_record(b.mt).n_bytes;
        b.least = least + row;
        b.high = planes_at(x, tile);
        b.low = b.high + n_bytes;
        choose_tile(&b, &r);
        r.blocks += b.n;
        r.starts += planes_chunks(b.n);
        r.records += n_bytes;
    }
    return fine;
}
