/* [kernel] panel Q4_K: 4 bits; per 32 values the 6-bit parts of a scale and a minimum, widened to a byte
 * (2.8 % more than the file); per 256 the half-precision factors of both. */
#include "core/kernel/panel_int.h"

static const struct int_format format = {.bits = 4, .zero = 0, .scales = SCALES_K_MIN};

static size_t n_bytes(uint32_t n_in) { return int_panel_bytes(&format, n_in); }

static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)
{
    int_unpack(&format, w, row, n_in, out);
}

static void decode_scalar(const uint8_t *w, uint32_t begin, uint32_t n, struct int_block *out)
{
    int_decode_scalar(&format, w, begin, n, out);
}

const struct panel panel_q4k = {
    .name = "q4k",
    .n_bytes = n_bytes,
    .unpack = unpack,
    .format = &format,
    .decode = {[CPU_SCALAR] = decode_scalar},
};
