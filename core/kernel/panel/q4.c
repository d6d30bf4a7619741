/* [kernel] panel Q4_0: 4 bits less 8, a half-precision scale per 32 values. 576 bytes a block. */
#include "core/kernel/panel_int.h"

static const struct int_format format = {.bits = 4, .zero = 8, .scales = SCALES_HALF};

static size_t n_bytes(uint32_t n_in) { return int_panel_bytes(&format, n_in); }

static void unpack(const uint8_t *w, uint32_t row, uint32_t n_in, float *out)
{
    int_unpack(&format, w, row, n_in, out);
}

static void decode_scalar(const uint8_t *w, uint32_t begin, uint32_t n, struct int_block *out)
{
    int_decode_scalar(&format, w, begin, n, out);
}

const struct panel panel_q4 = {
    .name = "q4",
    .n_bytes = n_bytes,
    .unpack = unpack,
    .format = &format,
    .decode = {[CPU_SCALAR] = decode_scalar},
};
