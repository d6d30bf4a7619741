/* [kernel] the table of file types, names of the types we lack, and half precision in integers. */
#include "core/kernel/quant.h"

#include "core/kernel/panel.h"
#include "core/kernel/quant_types.h"

#include <string.h>

const struct quant quant_table[QUANT_COUNT] = {
#define QUANT(id, gguf, elems, bytes, panel)                                                       \
    {#id, gguf, elems, bytes, PANEL_##panel, quant_dequant_##id, quant_pack_##id},
#include "core/kernel/quant.def"
#undef QUANT
};

static const char *const gguf_names[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",
};

const struct quant *quant_by_gguf(uint32_t gguf_id)
{
    for (uint32_t i = 0; i < QUANT_COUNT; i++)
        if (quant_table[i].gguf_id == gguf_id)
            return &quant_table[i];
    return NULL;
}

const char *quant_gguf_name(uint32_t gguf_id)
{
    return gguf_id < sizeof(gguf_names) / sizeof(*gguf_names) ? gguf_names[gguf_id] : NULL;
}

/* 1 sign, 5 exponent (bias 15), 10 fraction bits; every half is a float. */
float quant_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    uint32_t bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000 | fraction << 13;
    } else if (exponent) {
        bits = sign | (exponent + 127 - 15) << 23 | fraction << 13;
    } else { /* fraction * 2^-24: exact, and so is the sign */
        float f = (float)fraction * 0x1p-24f;
        memcpy(&bits, &f, sizeof(bits));
        bits |= sign;
    }
    float out;
    memcpy(&out, &bits, sizeof(out));
    return out;
}

uint16_t quant_float_to_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000) /* NaN: quiet, upper fraction bits kept */
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x1ff));
    if (size >= 0x477ff000) /* 65520 and up round to infinity */
        return sign | 0x7c00;
    if (size < 0x38800000) { /* below 2^-14: a multiple of 2^-24 */
        float small;
        memcpy(&small, &size, sizeof(small));
        float rounded = small * 0x1p24f + 0x1p23f; /* the fraction's last bit is now 1 */
        memcpy(&size, &rounded, sizeof(size));
        return (uint16_t)(sign | (size - 0x4b000000));
    }
    uint32_t odd = size >> 13 & 1;
    return (uint16_t)(sign | ((size - 0x38000000 + 0xfff + odd) >> 13));
}
