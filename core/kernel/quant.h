/* [kernel] File types: how a weight is stored in a model file. A type knows how to dequantise
 * (scalar, the definition of its values) and how to pack into a panel format, which is what is
 * computed on (panel.h). Pure functions of pointers and sizes: ANY_THREAD. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum quant_id {
#define QUANT(id, gguf, elems, bytes, panel) QUANT_##id,
#include "core/kernel/quant.def"
#undef QUANT
    QUANT_COUNT
};

struct quant {
    const char *name;
    uint32_t gguf_id;     /* the number of the type in a GGUF file */
    uint32_t block_elems; /* a row is a whole number of blocks */
    uint32_t block_bytes;
    uint32_t panel; /* enum panel_id */
    void (*dequant)(float *out, const uint8_t *blocks, size_t n_elems);
    /* Writes one row [n_in] to place `row` (0 .. PANEL_ROWS-1) of a panel, exactly. */
    void (*pack)(uint8_t *panel, uint32_t row, const uint8_t *blocks, uint32_t n_in);
};

extern const struct quant quant_table[QUANT_COUNT];

/* NULL where no row has this GGUF number. */
const struct quant *quant_by_gguf(uint32_t gguf_id);

/* Name of any GGUF tensor type known to exist ("IQ2_XS"), for errors about types we lack; or NULL. */
const char *quant_gguf_name(uint32_t gguf_id);

/* IEEE half and bfloat16 to float, exact (subnormals, infinities, NaN kept). */
float quant_half_to_float(uint16_t h);
uint16_t quant_float_to_half(float f); /* round to nearest even */

/* Little-endian 16 bits at any address. */
static inline uint16_t quant_read16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline float quant_bf16_to_float(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}
