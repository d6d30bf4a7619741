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
                       struct int_block *out)
{
    for (uint32_t b = begin; b < begin + n; b++, out++) {
        const uint8_t *block = w + int_block_at(f->bits, f->scales, b);
        for (uint32_t row = 0; row < PANEL_ROWS; row++) {
            float scale[2];
            out->min[row] = get_scales(f, w, row, b, scale);
            out->scale[0][row] = scale[0];
            out->scale[1][row] = scale[1];
        }
        for (uint32_t k = 0; k < PLANES_BLOCK; k++)
            for (uint32_t row = 0; row < PANEL_ROWS; row++)
                out->codes[k / 4][row][k % 4] = (uint8_t)get_code(f, block, row, k);
    }
}

static void floats_scalar(const struct int_format *f, const struct int_block *w, uint32_t n,
                          float *out)
{
    const bool has_min = int_has_min(f->scales);
    const uint32_t run = PLANES_BLOCK / int_groups(f->scales);
    for (uint32_t b = 0; b < n; b++, w++)
        for (uint32_t k = 0; k < PLANES_BLOCK; k++, out += PANEL_ROWS)
            for (uint32_t row = 0; row < PANEL_ROWS; row++) {
                int32_t code = (int32_t)w->codes[k / 4][row][k % 4] - (int32_t)f->zero;
                float value = (float)code * w->scale[k / run][row];
                out[row] = has_min ? value + w->min[row] : value;
            }
}

#if defined(__x86_64__)
TARGET_AVX2 static void floats_avx2(const struct int_format *f, const struct int_block *w,
                                    uint32_t n, float *out)
{
    const bool has_min = int_has_min(f->scales);
    const uint32_t run = PLANES_BLOCK / int_groups(f->scales);
    const __m256i zero = _mm256_set1_epi32((int32_t)f->zero), byte = _mm256_set1_epi32(255);
    for (uint32_t b = 0; b < n; b++, w++)
        for (uint32_t k = 0; k < PLANES_BLOCK; k++, out += PANEL_ROWS)
            for (uint32_t row = 0; row < PANEL_ROWS; row += 8) {
                __m256i c = _mm256_load_si256((const __m256i *)(const void *)w->codes[k / 4][row]);
                c = _mm256_srl_epi32(c, _mm_cvtsi32_si128((int)(8 * (k % 4))));
                __m256 v = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(c, byte), zero));
                v = _mm256_mul_ps(v, _mm256_load_ps(w->scale[k / run] + row));
                if (has_min)
                    v = _mm256_add_ps(v, _mm256_load_ps(w->min + row));
                _mm256_store_ps(out + row, v);
            }
}
#endif

void int_floats(enum cpu_level level, const struct int_format *f, const struct int_block *w,
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

/* Steps [step, end) of a block: sum[o] = sum of (code - zero) * q. */
static void dot_scalar(const struct int_format *f, const struct int_block *w, uint32_t step,
                       uint32_t end, const int32_t *q, int32_t *sum)
{
    memset(sum, 0, PANEL_ROWS * sizeof(*sum));
    for (; step < end; step++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t o = 0; o < PANEL_ROWS; o++)
                sum[o] += (w->codes[step][o][i] - (int32_t)f->zero) * q[4 * step + i];
}

/* One row. */
static void multiply_scalar(const struct int_format *f, const struct int_product *job, uint32_t r)
{
    const struct int_block *w = (const struct int_block *)(const void *)job->w;
    const struct planes *x = job->x;
    const uint32_t n_groups = int_groups(f->scales), row = job->row + r;
    float *acc = job->acc + (size_t)r * PANEL_ROWS;
    for (uint32_t b = job->begin; b < job->begin + job->n; b++, w++) {
        int32_t q[PLANES_BLOCK], sum[PANEL_ROWS];
        for (uint32_t k = 0; k < PLANES_BLOCK; k++) {
            q[k] = (int32_t)planes_codes(x, row, 0)[b * PLANES_BLOCK + k];
            if (x->n_planes == 2)
                q[k] = 256 * q[k] + planes_codes(x, row, 1)[b * PLANES_BLOCK + k];
        }
        float s = planes_scales(x, row)[b], s_sum = planes_sums(x, row)[b];
        for (uint32_t g = 0; g < n_groups; g++) {
            dot_scalar(f, w, 8 / n_groups * g, 8 / n_groups * (g + 1), q, sum);
            for (uint32_t o = 0; o < PANEL_ROWS; o++)
                acc[o] = acc[o] + w->scale[g][o] * s * (float)sum[o];
        }
        for (uint32_t o = 0; o < PANEL_ROWS && int_has_min(f->scales); o++)
            acc[o] = acc[o] + w->min[o] * s_sum;
    }
}

#if defined(__x86_64__)
INT_TILES(plain, 8, SCALES_FLOAT, 0)
INT_TILES(wide, 8, SCALES_FLOAT, 1)
INT_TILES(min, 8, SCALES_FLOAT_MIN, 0)
INT_TILES(halves, 8, SCALES_FLOAT_HALVES, 0)

static const struct int_tiles *tiles_of(const struct int_format *f)
{
    if (int_groups(f->scales) == 2)
        return &halves_tiles;
    if (int_has_min(f->scales))
        return &min_tiles;
    return f->bits == 8 ? &wide_tiles : &plain_tiles;
}
#endif

void int_multiply(enum cpu_level level, const struct int_format *f, const struct int_product *job)
{
#if defined(__x86_64__)
    if (level != CPU_SCALAR) {
        int_run_tiles(tiles_of(f), level, *job);
        return;
    }
#endif
    (void)level;
    for (uint32_t r = 0; r < job->n_rows; r++)
        multiply_scalar(f, job, r);
}
