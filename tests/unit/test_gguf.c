/* GGUF files through checkpoint_open: what is right is read, what is wrong is an error that names
 * the key or tensor and both values, and no bytes whatever crash (trial B8). */
#include "core/base/mem.h"
#include "core/load/checkpoint.h"
#include "tests/lib/gguf_writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Opens bytes as a file (in memory, by its name below /proc). */
static struct checkpoint *open_bytes(const char *bytes, size_t n, struct error *err)
{
    char path[64];
    int fd = memfd_create("test.gguf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct checkpoint *c = checkpoint_open(path, err);
    close(fd);
    return c;
}

static struct checkpoint *open_gguf(const struct gguf *g, struct error *err)
{
    struct str file = {0};
    gguf_finish(g, &file);
    struct checkpoint *c = open_bytes(str_text(&file), file.n, err);
    str_free(&file);
    return c;
}

/* The file must be refused in words that contain all of the parts. Frees g. */
static void refuse(struct gguf *g, enum error_code code, const char *const *parts)
{
    struct error err = {0};
    struct checkpoint *c = open_gguf(g, &err);
    assert_null(c);
    assert_int_equal(err.code, code);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("\"%s\" lacks \"%s\"", err.text, *parts);
    gguf_free(g);
}
#define REFUSED(g, code, ...) refuse(g, code, (const char *const[]){__VA_ARGS__, NULL})

/* A small file with something of everything. */
static struct gguf small_file(void)
{
    static const char *const tokens[] = {"<s>", "", "a\xFF", "\xE6\x88\x91"};
    static const float scores[] = {0, -1.5f, 2, 3};
    static const int32_t kinds[] = {3, 1, -6, 1};
    static const float w[] = {1, 2, 3, 4, 5, 6};
    uint8_t q8[2][34] = {{0x00, 0x3C, 1, 2, 3}, {0x00, 0x40, 0xFF}};
    struct gguf g = {0};
    gguf_str(&g, "general.architecture", "gpt2");
    gguf_u8(&g, "a.u8", 200);
    gguf_raw(&g, "a.i8", 1, "\xFE", 1);
    gguf_raw(&g, "a.u16", 2, "\x34\x12", 2);
    gguf_raw(&g, "a.i16", 3, "\xFF\xFF", 2);
    gguf_u32(&g, "a.u32", 4000000000u);
    gguf_i32(&g, "a.i32", -7);
    gguf_u64(&g, "a.u64", UINT64_MAX);
    gguf_raw(&g, "a.i64", 11, "\x05\0\0\0\0\0\0\0", 8);
    gguf_f32(&g, "a.f32", 0.5f);
    gguf_raw(&g, "a.f64", 12, "\0\0\0\0\0\0\xF8\x3F", 8);
    gguf_bool(&g, "a.bool", true);
    gguf_strs(&g, "t.tokens", tokens, 4);
    gguf_f32s(&g, "t.scores", scores, 4);
    gguf_i32s(&g, "t.kinds", kinds, 4);
    gguf_strs(&g, "t.none", NULL, 0);
    gguf_f32_matrix(&g, "w.weight", 3, 2, w);
    gguf_f32_vector(&g, "w.bias", 3, w);
    gguf_tensor(&g, "q.weight", QUANT_q8_0, 2, (const uint64_t[]){2, 32}, q8, sizeof(q8));
    return g;
}

static void check_keys(const struct checkpoint *c)
{
    struct error err = {0};
    uint64_t u;
    double f;
    bool b;
    const char *s;
    size_t n;
    assert_true(meta_str(c, "general.architecture", &s, &n));
    assert_int_equal(n, 4);
    assert_memory_equal(s, "gpt2", 4);
    assert_false(meta_str(c, "a.u8", &s, &n));
    assert_int_equal(meta_uint(c, "a.u8", 0, 255, &u, &err), 0);
    assert_int_equal(u, 200);
    assert_int_equal(meta_uint(c, "a.u16", 0, 1 << 20, &u, &err), 0);
    assert_int_equal(u, 0x1234);
    assert_int_equal(meta_uint(c, "a.u32", 0, UINT32_MAX, &u, &err), 0);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(meta_uint(c, "a.i64", 5, 5, &u, &err), 0);
    assert_int_equal(u, 5);
    assert_int_equal(meta_uint_or(c, "a.u64", 0, UINT64_MAX, 1, &u, &err), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(meta_uint_or(c, "absent", 0, 1, 77, &u, &err), 0);
    assert_int_equal(u, 77);
    assert_int_equal(meta_find(c, "a.i8")->i, -2);
    assert_int_equal(meta_find(c, "a.i16")->i, -1);
    assert_int_equal(meta_float_or(c, "a.f32", 9, &f, &err), 0);
    assert_true(f == 0.5);
    assert_int_equal(meta_float_or(c, "a.f64", 9, &f, &err), 0);
    assert_true(f == 1.5);
    assert_int_equal(meta_float_or(c, "a.i32", 9, &f, &err), 0);
    assert_true(f == -7);
    assert_int_equal(meta_bool_or(c, "a.bool", false, &b, &err), 0);
    assert_true(b);
    assert_int_equal(meta_bool_or(c, "absent", true, &b, &err), 0);
    assert_true(b);
}

static void check_arrays(const struct checkpoint *c)
{
    const struct meta *m = meta_find(c, "t.tokens");
    const char *s;
    size_t n;
    assert_int_equal(m->type, META_ARRAY);
    assert_int_equal(m->of, META_STRING);
    assert_int_equal(m->n_items, 4);
    meta_item_str(m, 1, &s, &n);
    assert_int_equal(n, 0);
    meta_item_str(m, 2, &s, &n); /* tokens are bytes, UTF-8 or not */
    assert_int_equal(n, 2);
    assert_memory_equal(s, "a\xFF", 2);
    m = meta_find(c, "t.scores");
    assert_true(meta_item_float(m, 1) == -1.5);
    assert_int_equal(meta_item_int(m, 1), -1);
    m = meta_find(c, "t.kinds");
    assert_int_equal(m->of, META_INT);
    assert_int_equal(meta_item_int(m, 2), -6);
    assert_int_equal(meta_find(c, "t.none")->n_items, 0);
}

static void test_reads_what_was_written(void **state)
{
    (void)state;
    struct error err = {0};
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf g = small_file();
        g.version = version;
        struct checkpoint *c = open_gguf(&g, &err);
        if (!c)
            fail_msg("%s", err.text);
        assert_string_equal(checkpoint_format(c), version == 2 ? "GGUF v2" : "GGUF v3");
        assert_int_equal(checkpoint_n_meta(c), 16);
        assert_string_equal(checkpoint_meta(c, 1)->key, "a.u8"); /* the file's order */
        check_keys(c);
        check_arrays(c);
        assert_int_equal(checkpoint_n_tensors(c), 3);
        const struct tensor *t = tensor_find(c, "w.weight");
        float x[6];
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->dims[0], 3); /* outermost first */
        assert_int_equal(t->dims[1], 2);
        assert_int_equal(t->n_bytes, 24);
        memcpy(x, t->data, sizeof(x));
        assert_true(x[5] == 6);
        t = tensor_find(c, "q.weight");
        assert_int_equal(t->type, QUANT_q8_0);
        assert_int_equal(t->n_bytes, 68);
        checkpoint_done(c, t->data, t->n_bytes);
        assert_null(tensor_find(c, "w"));
        assert_null(meta_find(c, "zzz"));
        checkpoint_close(c);
        gguf_free(&g);
    }
}

static void test_typed_reads_say_what_is_wrong(void **state)
{
    (void)state;
    struct gguf g = small_file();
    struct error err = {0};
    uint64_t u;
    double f;
    bool b;
    gguf_f32(&g, "a.nan", NAN);
    struct checkpoint *c = open_gguf(&g, &err);
    assert_non_null(c);
    assert_int_equal(meta_uint(c, "absent", 0, 1, &u, &err), -1);
    assert_int_equal(err.code, ERR_FORMAT);
    assert_non_null(strstr(err.text, "key absent is missing"));
    assert_int_equal(meta_uint(c, "a.u8", 1, 100, &u, &err), -1);
    assert_non_null(strstr(err.text, "key a.u8 is 200, allowed are 1 to 100"));
    assert_int_equal(meta_uint(c, "a.i32", 1, 100, &u, &err), -1);
    assert_non_null(strstr(err.text, "key a.i32 is -7, allowed are 1 to 100"));
    assert_int_equal(meta_uint_or(c, "a.f32", 1, 100, 1, &u, &err), -1);
    assert_non_null(strstr(err.text, "key a.f32 is a float, wanted is an integer"));
    assert_int_equal(meta_float_or(c, "a.bool", 1, &f, &err), -1);
    assert_non_null(strstr(err.text, "key a.bool is a boolean, wanted is a number"));
    assert_int_equal(meta_float_or(c, "a.nan", 1, &f, &err), -1);
    assert_non_null(strstr(err.text, "a.nan"));
    assert_int_equal(meta_bool_or(c, "t.tokens", true, &b, &err), -1);
    assert_non_null(strstr(err.text, "key t.tokens is an array, wanted is a boolean"));
    checkpoint_close(c);
    gguf_free(&g);
}

static void test_refuses_other_files(void **state)
{
    (void)state;
    struct error err = {0};
    struct gguf g = {.version = 1};
    REFUSED(&g, ERR_UNSUPPORTED, "GGUF v1", "v2 and v3");
    g.version = 4;
    REFUSED(&g, ERR_UNSUPPORTED, "GGUF v4");
    g.version = 0x03000000;
    REFUSED(&g, ERR_UNSUPPORTED, "big-endian GGUF (v3)");
    assert_null(open_bytes("", 0, &err));
    assert_non_null(strstr(err.text, "not a GGUF file"));
    assert_null(open_bytes("PK\3\4 and so on", 14, &err));
    assert_non_null(strstr(err.text, "it begins with \"PK\\x03\\x04\", wanted is \"GGUF\""));
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n";
    assert_null(open_bytes(lfs, sizeof(lfs) - 1, &err));
    assert_non_null(strstr(err.text, "git-lfs pointer"));
    assert_null(checkpoint_open("/nonexistent/x.gguf", &err));
    assert_non_null(strstr(err.text, "cannot open /nonexistent/x.gguf"));
    gguf_u32(&g, "split.count", 3);
    gguf_u32(&g, "split.no", 1);
    REFUSED(&g, ERR_UNSUPPORTED, "part 2 ", "3 files", "split.count");
}

static void test_refuses_huge_counts(void **state)
{
    (void)state;
    struct gguf g = small_file();
    g.n_keys = UINT64_MAX;
    REFUSED(&g, ERR_FORMAT, "18446744073709551615 keys", "room for");
    g = small_file();
    g.n_tensors = (uint64_t)1 << 40;
    REFUSED(&g, ERR_FORMAT, "1099511627776 tensors", "room for");
    g = (struct gguf){0};
    gguf_raw(&g, "k", 9, "\x08\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 12);
    REFUSED(&g, ERR_FORMAT, "key k claims 9223372036854775807 strings", "room for 0");
    gguf_raw(&g, "k", 9, "\x0A\0\0\0\0\0\0\0\0\0\0\x20\1\2\3", 15);
    REFUSED(&g, ERR_FORMAT, "key k claims 2305843009213693952 items of 8 bytes", "has 3 left");
    gguf_raw(&g, "k", 8, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
    REFUSED(&g, ERR_FORMAT, "key k is cut off: it needs 18446744073709551615 bytes");
}

static void test_refuses_bad_keys(void **state)
{
    (void)state;
    struct gguf g = {0};
    gguf_u8(&g, "twice", 1);
    gguf_u8(&g, "once", 1);
    gguf_u8(&g, "twice", 1);
    REFUSED(&g, ERR_FORMAT, "key twice is there twice");
    gguf_u8(&g, "", 1);
    REFUSED(&g, ERR_FORMAT, "key 1 of 1", "name of 0 bytes");
    gguf_u8(&g, "a\xFFz", 1);
    REFUSED(&g, ERR_FORMAT, "key 1 of 1", "not UTF-8");
    gguf_u8(&g, "line\nbreak", 1);
    REFUSED(&g, ERR_FORMAT, "key 1 of 1", "control characters");
    g.n_keys = 1;
    str_add(&g.keys, "\x03\0\0\0\0\0\0\0a\0b\0\0\0\0\1", 16);
    REFUSED(&g, ERR_FORMAT, "key 1 of 1", "control characters");
    gguf_raw(&g, "k", 13, "\0", 1);
    REFUSED(&g, ERR_FORMAT, "key k has type 13, known are 0 to 12");
    gguf_raw(&g, "k", 9, "\x09\0\0\0\1\0\0\0\0\0\0\0", 12);
    REFUSED(&g, ERR_FORMAT, "key k is an array of arrays");
    gguf_raw(&g, "k", 9, "\x63\0\0\0\1\0\0\0\0\0\0\0", 12);
    REFUSED(&g, ERR_FORMAT, "key k has items of type 99");
    gguf_raw(&g, "k", 7, "\2", 1);
    REFUSED(&g, ERR_FORMAT, "key k has a boolean of value 2");
    gguf_raw(&g, "k", 9, "\x07\0\0\0\2\0\0\0\0\0\0\0\1\7", 14);
    REFUSED(&g, ERR_FORMAT, "key k has a boolean of value 7");
    gguf_str(&g, "k", "\xC0\x80");
    REFUSED(&g, ERR_FORMAT, "key k is a string that is not UTF-8");
    char name[300] = "";
    memset(name, 'n', 256);
    gguf_u8(&g, name, 1);
    REFUSED(&g, ERR_FORMAT, "name of 256 bytes, allowed are 1 to 255");
}

static void test_checks_the_alignment(void **state)
{
    (void)state;
    static const float v[] = {1, 2, 3};
    static const uint32_t wrong[] = {0, 4, 48, UINT32_MAX};
    struct error err = {0};
    for (size_t i = 0; i < 4; i++) {
        struct gguf g = {0};
        char number[32];
        snprintf(number, sizeof(number), "is %u", wrong[i]);
        gguf_u32(&g, "general.alignment", wrong[i]);
        gguf_f32_vector(&g, "x", 3, v);
        REFUSED(&g, ERR_FORMAT, "key general.alignment", number);
    }
    struct gguf g = {.alignment = 128};
    gguf_f32_vector(&g, "x", 3, v);
    gguf_f32_vector(&g, "y", 3, v);
    struct checkpoint *c = open_gguf(&g, &err);
    assert_non_null(c);
    assert_int_equal(tensor_find(c, "y")->data - tensor_find(c, "x")->data, 128);
    checkpoint_close(c);
    gguf_free(&g);
    gguf_f32_vector(&g, "x", 3, v);
    gguf_describe(&g, "y", 1, (const uint64_t[]){1}, 0, 4);
    REFUSED(&g, ERR_FORMAT, "tensor y begins at offset 4", "multiple of 32");
}

static void test_refuses_bad_tensors(void **state)
{
    (void)state;
    static const float v[16] = {1, 2, 3};
    struct gguf g = {0};
    gguf_f32_vector(&g, "x", 3, v);
    gguf_f32_vector(&g, "x", 3, v);
    REFUSED(&g, ERR_FORMAT, "tensor x is there twice");
    gguf_f32_vector(&g, "x", 16, v);
    gguf_describe(&g, "y", 1, (const uint64_t[]){2}, 0, 32);
    REFUSED(&g, ERR_FORMAT, "overlap", "x ends at byte", "y begins at byte");
    gguf_describe(&g, "x", 0, NULL, 0, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has 0 dimensions, allowed are 1 to 4");
    gguf_describe(&g, "x", 5, (const uint64_t[]){1, 1, 1, 1, 1}, 0, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has 5 dimensions");
    gguf_describe(&g, "x", 2, (const uint64_t[]){3, 0}, 0, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has dimension 0 of 0");
    gguf_describe(&g, "x", 3, (const uint64_t[]){1u << 31, 1u << 31, 1u << 31}, 0, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has more values than can be counted");
    gguf_describe(&g, "x", 1, (const uint64_t[]){(uint64_t)1 << 62}, 0, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has more bytes than can be counted");
    gguf_describe(&g, "x", 1, (const uint64_t[]){4}, 0, UINT64_MAX - 31);
    REFUSED(&g, ERR_FORMAT, "tensor x begins at offset 18446744073709551584", "the file has");
    gguf_describe(&g, "x", 2, (const uint64_t[]){2, 48}, 2, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has rows of 48 values", "Q4_0", "whole blocks of 32");
    gguf_describe(&g, "x", 1, (const uint64_t[]){256}, 17, 0);
    REFUSED(&g, ERR_UNSUPPORTED, "tensor x has type IQ2_XS, which is not supported yet",
            "supported are F32, F16, BF16, Q4_0");
    gguf_describe(&g, "x", 1, (const uint64_t[]){256}, 999, 0);
    REFUSED(&g, ERR_FORMAT, "tensor x has type number 999", "supported are F32");
    gguf_f32_vector(&g, "x", 3, v);
    gguf_describe(&g, "y", 1, (const uint64_t[]){100}, 0, 32);
    REFUSED(&g, ERR_FORMAT, "tensor y ends at byte", "the file has");
}

/* Reads whatever an opened file offers, so that a bad pointer shows. */
static double read_all(const struct checkpoint *c)
{
    double sum = 0;
    for (uint32_t i = 0; i < checkpoint_n_meta(c); i++) {
        const struct meta *m = checkpoint_meta(c, i);
        sum += (double)strlen(m->key);
        for (uint64_t k = 0; m->type == META_ARRAY && k < m->n_items; k++) {
            const char *s = "";
            size_t n = 0;
            if (m->of == META_STRING)
                meta_item_str(m, k, &s, &n);
            else
                sum += meta_item_float(m, k) + (double)meta_item_int(m, k);
            for (size_t j = 0; j < n; j++)
                sum += s[j];
        }
        for (size_t j = 0; m->type == META_STRING && j < m->str.n; j++)
            sum += m->str.s[j];
    }
    for (uint32_t i = 0; i < checkpoint_n_tensors(c); i++) {
        const struct tensor *t = checkpoint_tensor(c, i);
        for (size_t j = 0; j < t->n_bytes; j++)
            sum += t->data[j];
    }
    return sum;
}

static void test_truncated_at_every_offset(void **state)
{
    (void)state;
    struct gguf g = small_file();
    struct str file = {0};
    gguf_finish(&g, &file);
    for (size_t n = 0; n < file.n; n++) {
        struct error err = {0};
        struct checkpoint *c = open_bytes(file.s, n, &err);
        assert_null(c); /* the last tensor ends with the file */
        assert_int_not_equal(err.code, ERR_NONE);
        assert_true(strlen(err.text) > 10);
    }
    str_free(&file);
    gguf_free(&g);
}

static void test_flipped_bytes(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xFF};
    struct gguf g = small_file();
    struct str file = {0};
    double sum = 0;
    uint32_t n_refused = 0;
    gguf_finish(&g, &file);
    for (size_t i = 0; i < file.n; i++) {
        for (size_t k = 0; k < sizeof(flips); k++) {
            struct error err = {0};
            file.s[i] = (char)((uint8_t)file.s[i] ^ flips[k]);
            struct checkpoint *c = open_bytes(file.s, file.n, &err);
            file.s[i] = (char)((uint8_t)file.s[i] ^ flips[k]);
            if (c)
                sum += read_all(c);
            else
                assert_true(err.code != ERR_NONE && strlen(err.text) > 10);
            n_refused += !c;
            checkpoint_close(c);
        }
    }
    assert_true(n_refused > file.n); /* most of this file is structure */
    assert_false(sum == 1);          /* reads are not optimised away */
    str_free(&file);
    gguf_free(&g);
}

static void make_file(const char *folder, const char *name, const struct gguf *g)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(gguf_save(g, path), 0);
}

static void test_folders(void **state)
{
    (void)state;
    char folder[] = "/tmp/attend-test-XXXXXX", path[256];
    struct error err = {0};
    struct gguf g = small_file();
    assert_non_null(mkdtemp(folder));
    assert_null(checkpoint_open(folder, &err));
    assert_non_null(strstr(err.text, "has no *.gguf file"));
    make_file(folder, "b.gguf", &g);
    make_file(folder, "other.txt", &g);
    struct checkpoint *c = checkpoint_open(folder, &err);
    assert_non_null(c);
    snprintf(path, sizeof(path), "%s/b.gguf", folder);
    assert_string_equal(checkpoint_path(c), path);
    checkpoint_close(c);
    make_file(folder, "a.gguf", &g);
    assert_null(checkpoint_open(folder, &err));
    assert_non_null(strstr(err.text, "2 *.gguf files, wanted is exactly one: a.gguf, b.gguf"));
    static const char *const names[] = {"a.gguf", "b.gguf", "other.txt"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    gguf_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_was_written),
        cmocka_unit_test(test_typed_reads_say_what_is_wrong),
        cmocka_unit_test(test_refuses_other_files),
        cmocka_unit_test(test_refuses_huge_counts),
        cmocka_unit_test(test_refuses_bad_keys),
        cmocka_unit_test(test_checks_the_alignment),
        cmocka_unit_test(test_refuses_bad_tensors),
        cmocka_unit_test(test_truncated_at_every_offset),
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
