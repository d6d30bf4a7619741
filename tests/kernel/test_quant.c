/* [kernel] file types: values against their description, packing exact, half precision, names. */
#include "core/kernel/matmul.h"
#include "core/kernel/panel.h"
#include "tests/lib/matrix.h"

#include "weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static void assert_floats(enum quant_id type, enum data d, const float *got, const float *want,
                          uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (bits_of(got[i]) != bits_of(want[i]))
            fail_msg("%s %s [%u]: %a, wanted %a", quant_table[type].name, data_names[d], i, got[i],
                     want[i]);
}

static void test_dequant(void **state)
{
    (void)state;
    float got[512], want[512];
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int d = 0; d < DATAS; d++) {
            uint8_t *w = data_weights(type, d, 1, 512);
            for (uint32_t i = 0; i < 512; i++)
                want[i] = ref_float(type, w, i);
            quant_table[type].dequant(got, w, 512);
            assert_floats(type, d, got, want, 512);
            free(w);
        }
}

/* Literal blocks and values, worked out by hand. */
static void test_literals(void **state)
{
    (void)state;
    float out[256];
    uint8_t q4_1[20] = {0x00, 0x38, 0x00, 0xbc, 0xf3}; /* d = 0.5, m = -1 */
    quant_table[QUANT_q4_1].dequant(out, q4_1, 32);
    assert_true(out[0] == 0.5F && out[16] == 6.5F && out[1] == -1.0F);
    uint8_t q5_0[22] = {0x00, 0x40, 0x01, 0x00, 0x00, 0x80, 0x21}; /* d = 2, bits 0 and 31 */
    quant_table[QUANT_q5_0].dequant(out, q5_0, 32);
    assert_true(out[0] == 2.0F && out[16] == -28.0F && out[31] == 0.0F && out[1] == -32.0F);
    uint8_t q8_0[34] = {0x00, 0x3c, 0x80, 0x7f};
    quant_table[QUANT_q8_0].dequant(out, q8_0, 32);
    assert_true(out[0] == -128.0F && out[1] == 127.0F && out[2] == 0.0F);
    uint8_t q4_k[144] = {0x00, 0x3c, 0x00, 0x3c, 0x43, 0, 0, 0, 0x85, 0, 0, 0, 0x21};
    q4_k[16] = 0x9c;      /* values 0 and 32 */
    q4_k[16 + 64] = 0x0f; /* value 128, of part 4: scale 1 + 16, min 2 + 32 */
    quant_table[QUANT_q4_k].dequant(out, q4_k, 256);
    assert_true(out[0] == 12.0F * 3 - 5 && out[32] == 0.0F && out[128] == 15.0F * 17 - 34);
    uint8_t q6_k[210] = {0x21};
    q6_k[128] = 0xe4; /* upper bits of values 0, 32, 64, 96: 0, 1, 2, 3 */
    q6_k[192] = 0xff; /* part -1 */
    q6_k[192 + 2] = 2, q6_k[192 + 4] = 3, q6_k[192 + 6] = 4;
    q6_k[209] = 0x3c;
    quant_table[QUANT_q6_k].dequant(out, q6_k, 256);
    assert_true(out[0] == 31.0F && out[32] == -32.0F && out[64] == 6.0F && out[96] == 64.0F);
}

/* Every row of a packed matrix comes back bit for bit, and is at most 10 % larger than in its file. */
static void test_pack(void **state)
{
    (void)state;
    const uint32_t n_out[] = {1, 5, 32, 33, 96}, n_in = 512;
    float got[512], want[512];
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int d = 0; d < DATAS; d++) {
            uint32_t n = n_out[(type + d) % 5];
            size_t row_bytes = data_row_bytes(type, n_in);
            uint8_t *data = data_weights(type, d, n, n_in);
            struct matrix w;
            assert_int_equal(matrix_open(&w, type, n, n_in, NULL), 0);
            for (uint32_t o = 0; o < n; o += 32)
                matrix_pack(&w, type, data + o * row_bytes, o, n - o < 32 ? n - o : 32);
            for (uint32_t o = 0; o < n; o++) {
                quant_table[type].dequant(want, data + o * row_bytes, n_in);
                matrix_row(&w, o, got);
                assert_floats(type, d, got, want, n_in);
            }
            assert_true(w.panel_bytes * 10 <= row_bytes * PANEL_ROWS * 11);
            assert_int_equal(w.panel_bytes % 64, 0);
            matrix_close(&w);
            free(data);
        }
}

/* Bytes as they come, NaN and infinite scales among them: nothing is lost but a NaN's bits. */
static void test_pack_hostile(void **state)
{
    (void)state;
    float got[512], want[512];
    for (int type = 0; type < QUANT_COUNT; type++) {
        size_t n_bytes = data_row_bytes(type, 512);
        uint8_t *data = malloc(n_bytes * 32);
        struct matrix w;
        for (size_t i = 0; i < n_bytes * 32; i++)
            data[i] = (uint8_t)random_bits();
        assert_int_equal(matrix_open(&w, type, 32, 512, NULL), 0);
        matrix_pack(&w, type, data, 0, 32);
        for (uint32_t o = 0; o < 32; o++) {
            quant_table[type].dequant(want, data + o * n_bytes, 512);
            matrix_row(&w, o, got);
            for (uint32_t i = 0; i < 512; i++)
                if (isnan(want[i]) ? !isnan(got[i]) : bits_of(got[i]) != bits_of(want[i]))
                    fail_msg("%s row %u [%u]: %a, wanted %a", quant_table[type].name, o, i, got[i],
                             want[i]);
        }
        matrix_close(&w);
        free(data);
    }
}

static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint8_t bytes[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
        float f = quant_half_to_float((uint16_t)h);
        if ((h & 0x7c00) == 0x7c00) {
            assert_true(h & 0x3ff ? isnan(f) : isinf(f) && (f < 0) == (h >> 15 != 0));
            if (h & 0x3ff)
                assert_true(isnan(quant_half_to_float(quant_float_to_half(f))));
            continue;
        }
        float want = ref_half(bytes);
        assert_memory_equal(&f, &want, sizeof(f));
        assert_int_equal(quant_float_to_half(f), h);
        if ((h & 0x7fff) < 0x7bff) { /* the middle of two neighbours goes to the even one */
            float next = quant_half_to_float((uint16_t)(h + 1)), middle = f + (next - f) / 2;
            assert_int_equal(quant_float_to_half(middle), h + (h & 1));
            assert_int_equal(quant_float_to_half(nextafterf(middle, next)), h + 1);
            assert_int_equal(quant_float_to_half(nextafterf(middle, f)), h);
        }
    }
    assert_int_equal(quant_float_to_half(65519.996F), 0x7bff);
    assert_int_equal(quant_float_to_half(65520.0F), 0x7c00);
    assert_int_equal(quant_float_to_half(-1e30F), 0xfc00);
    assert_int_equal(quant_float_to_half(1e-30F), 0);
}

static void test_names(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        assert_non_null(quant_gguf_name(i));
    assert_null(quant_gguf_name(40));
    assert_null(quant_gguf_name(UINT32_MAX));
    assert_string_equal(quant_gguf_name(17), "IQ2_XS");
    assert_string_equal(quant_gguf_name(39), "MXFP4");
    assert_null(quant_by_gguf(17));
    for (int i = 0; i < QUANT_COUNT; i++) { /* "q4_k" is "Q4_K" */
        const struct quant *q = &quant_table[i];
        assert_ptr_equal(quant_by_gguf(q->gguf_id), q);
        assert_int_equal(strcasecmp(quant_gguf_name(q->gguf_id), q->name), 0);
    }
}

static void test_open_errors(void **state)
{
    (void)state;
    struct matrix w;
    struct error err;
    assert_int_equal(matrix_shape(&w, QUANT_q4_0, 4, 48, &err), -1);
    assert_non_null(strstr(err.text, "48"));
    assert_null(w.panels);
    assert_int_equal(matrix_shape(&w, QUANT_q4_k, 4, 224, &err), -1);
    assert_int_equal(matrix_shape(&w, QUANT_f32, 0, 224, &err), -1);
    assert_int_equal(matrix_shape(&w, QUANT_f32, UINT32_MAX, UINT32_MAX, &err), -1);
    matrix_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequant),     cmocka_unit_test(test_literals),
        cmocka_unit_test(test_pack),        cmocka_unit_test(test_pack_hostile),
        cmocka_unit_test(test_half),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_open_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
