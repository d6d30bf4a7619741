/* [kernel] panel Q6_K: 6 bits less 32; per 16 values a signed 8-bit part of a scale; per 256 the factor in
 * half precision. */
#include "core/kernel/panel_int.h"

static const struct int_format format = {.bits = 6, .zero = 32, .scales = SCALES_K_HALVES};

static size_t n_bytes(uint32_t n_in) { return int_panel_bytes(&format, n_in); }

static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)
{
    int_unpack(&format, w, row, n_in, out);
}

static void decode_scalar(const uint8_t *w, uint32_t begin, uint32_t n, struct int_block *out)
{
    int_decode_scalar(&format, w, begin, n, out);
}

const struct panel panel_q6k = {
    .name = "q6k",
    .n_bytes = n_bytes,
    .unpack = unpack,
    .format = &format,
    .decode = {[CPU_SCALAR] = decode_scalar},
};
