/* [kernel] integer panels: layout, definition, and the scalar variant. */
#include "core/kernel/panel_int.h"

#include "core/base/mem.h"
#include "core/kernel/panel_int_variants.h"
#include "core/kernel/quant.h"

#include <stdbool.h>
#include <string.h>

size_t int_panel_bytes(const struct int_format *f, uint32_t n_in)
{
    return int_block_at(f->bits, f->scales, n_in / PLANES_BLOCK);
}

static float get_half(const uint8_t *at, size_t row)
{
    return quant_half_to_float(quant_read16(at + 2 * row));
}

static uint32_t get_code(const struct int_format *f, const uint8_t *block, uint32_t row, uint32_t k)
{
    const uint8_t *at = block + (size_t)row * 4 + k % 4;
    size_t step = k / 4;
    if (f->bits == 8)
        return at[128 * step];
    uint32_t code = step < 4 ? at[128 * step] & 15 : at[128 * (step - 4)] >> 4;
    if (f->bits == 5)
        code |= (at[512] >> step & 1U) << 4;
    if (f->bits == 6)
        code |= (at[512 + 128 * (step / 4)] >> 2 * (step % 4) & 3U) << 4;
    return code;
}

/* scale[0], scale[1] of the two halves of block b, and its minimum. */
static float get_scales(const struct int_format *f, const uint8_t *w, uint32_t row, uint32_t b,
                        float scale[2])
{
    const uint8_t *super = w + int_super_at(f->bits, f->scales, b);
    const uint8_t *at = w + int_block_at(f->bits, f->scales, b) + int_code_bytes(f->bits);
    float min = 0;
    switch (f->scales) {
    case SCALES_HALF_MIN:
        min = get_half(at + 64, row); /* fall through */
    case SCALES_HALF:
        scale[0] = scale[1] = get_half(at, row);
        break;
    case SCALES_K_MIN: /* products of 11 and 6 bits: exact */
        scale[0] = scale[1] = get_half(super, row) * (float)at[row];
        min = -(get_half(super + 64, row) * (float)at[PANEL_ROWS + row]);
        break;
    case SCALES_K_HALVES:
        scale[0] = get_half(super, row) * (float)(int8_t)at[row];
        scale[1] = get_half(super, row) * (float)(int8_t)at[PANEL_ROWS + row];
        break;
    default:
        ASSERT(!"unpacking decoded blocks");
    }
    return min;
}

void int_unpack(const struct int_format *f, const uint8_t *w, uint32_t row, uint32_t n_in,
                float *out)
{
    for (uint32_t b = 0; b < n_in / PLANES_BLOCK; b++) {
        const uint8_t *block = w + int_block_at(f->bits, f->scales, b);
        float scale[2], min = get_scales(f, w, row, b, scale);
        for (uint32_t k = 0; k < PLANES_BLOCK; k++) {
            int32_t code = (int32_t)get_code(f, block, row, k) - (int32_t)f->zero;
            float value = (float)code * scale[k / 16];
            *out++ = int_has_min(f->scales) ? value + min : value;
        }
    }
}

void int_decode_scalar(const struct int_format *f, const uint8_t *w, uint32_t begin, uint32_t n,
                       struct int_decoded *out)
{
    out->codes = out->buffer[0][0][0];
    out->stride = sizeof(out->buffer[0]);
    out->zero = f->zero;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *block = w + int_block_at(f->bits, f->scales, begin + i);
        struct int_factors *to = &out->factors[i];
        for (uint32_t row = 0; row < PANEL_ROWS; row++) {
            float scale[2];
            to->min[row] = get_scales(f, w, row, begin + i, scale);
            to->scale[0][row] = scale[0];
            to->scale[1][row] = scale[1];
        }
        for (uint32_t k = 0; k < PLANES_BLOCK; k++)
            for (uint32_t row = 0; row < PANEL_ROWS; row++)
                out->buffer[i][k / 4][row][k % 4] = (uint8_t)get_code(f, block, row, k);
    }
}

static void floats_scalar(const struct int_format *f, const struct int_decoded *w, uint32_t n,
                          float *out)
{
    const bool has_min = int_has_min(f->scales);
    const uint32_t run = PLANES_BLOCK / int_groups(f->scales);
    for (uint32_t b = 0; b < n; b++)
        for (uint32_t k = 0; k < PLANES_BLOCK; k++, out += PANEL_ROWS)
            for (uint32_t row = 0; row < PANEL_ROWS; row++) {
                const uint8_t *at = w->codes + b * w->stride + (size_t)(k / 4 * 128 + row * 4);
                float value = (float)((int32_t)at[k % 4] - (int32_t)w->zero) *
                              w->factors[b].scale[k / run][row];
                out[row] = has_min ? value + w->factors[b].min[row] : value;
            }
}

#if defined(__x86_64__)
TARGET_AVX2 static void floats_avx2(const struct int_format *f, const struct int_decoded *w,
                                    uint32_t n, float *out)
{
    const bool has_min = int_has_min(f->scales);
    const uint32_t run = PLANES_BLOCK / int_groups(f->scales);
    const __m256i zero = _mm256_set1_epi32((int32_t)w->zero), byte = _mm256_set1_epi32(255);
    for (uint32_t b = 0; b < n; b++)
        for (uint32_t k = 0; k < PLANES_BLOCK; k++, out += PANEL_ROWS)
            for (uint32_t row = 0; row < PANEL_ROWS; row += 8) {
                const uint8_t *at = w->codes + b * w->stride + (size_t)(k / 4 * 128 + row * 4);
                const struct int_factors *by = &w->factors[b];
                __m256i c = _mm256_load_si256((const __m256i *)(const void *)at);
                c = _mm256_srl_epi32(c, _mm_cvtsi32_si128((int)(8 * (k % 4))));
                __m256 v = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(c, byte), zero));
                v = _mm256_mul_ps(v, _mm256_load_ps(by->scale[k / run] + row));
                if (has_min)
                    v = _mm256_add_ps(v, _mm256_load_ps(by->min + row));
                _mm256_store_ps(out + row, v);
            }
}
#endif

void int_floats(enum cpu_level level, const struct int_format *f, const struct int_decoded *w,
                uint32_t n, float *out)
{
#if defined(__x86_64__)
    if (level != CPU_SCALAR) {
        floats_avx2(f, w, n, out);
        return;
    }
#endif
    (void)level;
    floats_scalar(f, w, n, out);
}

static float float_at(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* Block i of the job, row t of its tile, record x of a plane. */
static void multiply_scalar(const struct int_format *f, uint32_t mt, uint32_t t,
                            const struct int_product *job, uint32_t i, const uint8_t *x)
{
    const struct planes_record at = planes_record(mt);
    const int8_t *codes = (const int8_t *)x + (size_t)t * PLANES_BLOCK;
    const uint8_t *w = job->decoded->codes + i * job->decoded->stride;
    const struct int_factors *by = &job->decoded->factors[i];
    const uint32_t n_groups = int_groups(f->scales), run = PLANES_BLOCK / n_groups;
    const float s = float_at(x + at.scale + 4UL * t), s_sum = float_at(x + at.sum + 4UL * t);
    for (uint32_t g = 0; g < n_groups; g++) {
        int32_t sum[PANEL_ROWS] = {0};
        for (uint32_t k = g * run; k < (g + 1) * run; k++)
            for (uint32_t o = 0; o < PANEL_ROWS; o++)
                sum[o] +=
                    (w[128 * (k / 4) + 4 * o + k % 4] - (int32_t)job->decoded->zero) * codes[k];
        for (uint32_t o = 0; o < PANEL_ROWS; o++)
            job->acc[t * PANEL_ROWS + o] += by->scale[g][o] * (float)sum[o] * s;
    }
    for (uint32_t o = 0; o < PANEL_ROWS && int_has_min(f->scales); o++)
        job->acc[t * PANEL_ROWS + o] += by->min[o] * s_sum;
}

void int_multiply_scalar(const struct int_format *f, uint32_t n_planes, uint32_t mt,
                         const struct int_product *job)
{
    const size_t n_bytes = planes_record(mt).n_bytes;
    const uint8_t *x = job->x, *low = job->low;
    for (uint32_t i = 0; i < job->n; i++, x += n_bytes, low += n_bytes)
        for (uint32_t t = 0; t < mt; t++) {
            multiply_scalar(f, mt, t, job, i, x);
            if (n_planes == 2 && (!job->fine || job->fine[i] >> t & 1))
                multiply_scalar(f, mt, t, job, i, low);
        }
}

#if defined(__x86_64__)
INT_TILES(plain, SCALES_FLOAT, 31)
INT_TILES(min, SCALES_FLOAT_MIN, 31)
INT_TILES(halves, SCALES_FLOAT_HALVES, 63)
INT_TILES(wide, SCALES_FLOAT, 255)

static const struct int_tiles *tiles_of(const struct int_format *f)
{
    if (int_groups(f->scales) == 2)
        return &halves_tiles;
    if (int_has_min(f->scales))
        return &min_tiles;
    return f->bits == 8 ? &wide_tiles : &plain_tiles;
}
#endif

int_tile_fn *int_tile(enum cpu_level level, const struct int_format *f, uint32_t n_planes,
                      uint32_t mt)
{
#if defined(__x86_64__)
    if (level != CPU_SCALAR)
        return tiles_of(f)->tile[level][n_planes - 1][mt - 1];
#endif
    (void)level, (void)f, (void)n_planes, (void)mt;
    return NULL;
}
