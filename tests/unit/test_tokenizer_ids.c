/* Token ids and texts that other software made of 361 nasty strings, and of four texts with the
 * default model's vocabulary. What is absent is skipped by name. */
#include "core/base/mem.h"
#include "core/text/text.h"
#include "tests/lib/text_fixture.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t base64(const char *in, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n_bits = 0;
    size_t n = 0;
    for (; *in && *in != '='; in++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *in) - digits);
        n_bits += 6;
        if (n_bits >= 8)
            out[n++] = (char)(bits >> (n_bits -= 8));
    }
    return n;
}

static bool same_ids(const struct text *t, const char *s, size_t n, bool special,
                     const json_t *want)
{
    struct ids ids = {0};
    bool same = text_encode(t, s, n, special, &ids, NULL) == 0 && ids.n == json_array_size(want);
    for (uint32_t i = 0; same && i < ids.n; i++)
        same = (json_int_t)ids.id[i] == json_integer_value(json_array_get(want, i));
    ids_free(&ids);
    return same;
}

static bool same_text(const struct text *t, const json_t *ids, const char *want, size_t n)
{
    struct str out = {0};
    for (size_t i = 0; i < json_array_size(ids); i++)
        text_token_bytes(t, (uint32_t)json_integer_value(json_array_get(ids, i)), i == 0, true,
                         &out);
    bool same = out.n == n && memcmp(str_text(&out), want, n) == 0;
    str_free(&out);
    return same;
}

struct suite {
    const char *vocabulary, *rows;
    /* rows in which the reference has a fault that is not copied; 0 ends the list */
    int other_ids[8], other_noparse[8], other_text[8];
};

static bool listed(const int *list, int id)
{
    for (; *list; list++)
        if (*list == id)
            return true;
    return false;
}

static bool row_passes(const struct text *t, const struct suite *suite, const json_t *row)
{
    const char *encoded = json_string_value(json_object_get(row, "text_base64"));
    const char *decoded = json_string_value(json_object_get(row, "decoded_base64"));
    const json_t *ids = json_object_get(row, "ids"), *noparse = json_object_get(row, "ids_noparse");
    int id = (int)json_integer_value(json_object_get(row, "id"));
    char *s = mem_new(strlen(encoded) + 1, 1), *d = mem_new(strlen(decoded) + 1, 1);
    size_t n = base64(encoded, s), n_decoded = base64(decoded, d);
    bool a = same_ids(t, s, n, true, ids) != listed(suite->other_ids, id);
    bool b = !noparse || same_ids(t, s, n, false, noparse) != listed(suite->other_noparse, id);
    bool c = same_text(t, ids, d, n_decoded) != listed(suite->other_text, id);
    if (!a || !b || !c)
        print_message("%s: row %d:%s%s%s\n", suite->rows, id, a ? "" : " ids",
                      b ? "" : " ids_noparse", c ? "" : " decoded");
    free(s);
    free(d);
    return a && b && c;
}

static void run_suite(const struct suite *suite)
{
    char *line = NULL;
    size_t cap = 0;
    uint32_t n_rows = 0, n_bad = 0;
    const char *path = fixture_conformance(suite->vocabulary);
    struct checkpoint *c = path ? checkpoint_open(path, NULL) : NULL;
    path = fixture_conformance(suite->rows);
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!c || !f) {
        print_message("%s is absent\n", c ? suite->rows : suite->vocabulary);
        checkpoint_close(c);
        skip();
    }
    struct text *t = text_open(c, NULL);
    checkpoint_close(c);
    assert_non_null(t);
    while (getline(&line, &cap, f) > 0) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *utf8 = json_object_get(row, "utf8");
        assert_non_null(row);
        if (!utf8 || json_is_true(utf8)) {
            n_rows++;
            n_bad += !row_passes(t, suite, row);
        }
        json_decref(row);
    }
    free(line);
    fclose(f);
    text_close(t);
    assert_int_equal(n_rows, 361);
    assert_int_equal(n_bad, 0);
}

#define GGUF "tokenizer/gguf/ggml-vocab-"

static void test_conformance_gpt_2(void **state)
{
    (void)state;
    run_suite(&(struct suite){.vocabulary = GGUF "gpt-2.gguf",
                              .rows = "tokenizer/gpt-2.llama.cpp.jsonl",
                              .other_text = {262, 264}});
}

static void test_conformance_gpt2_hf(void **state)
{
    (void)state;
    run_suite(
        &(struct suite){.vocabulary = GGUF "gpt-2.gguf", .rows = "tokenizer/gpt2.hf-rust.jsonl"});
}

static void test_conformance_stories260k(void **state)
{
    (void)state;
    run_suite(&(struct suite){.vocabulary = "stories260K/model-f32.gguf",
                              .rows = "tokenizer/stories260K.llama.cpp.jsonl"});
}

static void test_conformance_llama_spm(void **state)
{
    (void)state;
    run_suite(&(struct suite){.vocabulary = GGUF "llama-spm.gguf",
                              .rows = "tokenizer/llama-spm.llama.cpp.jsonl"});
}

static void test_conformance_starcoder(void **state)
{
    (void)state;
    run_suite(&(struct suite){.vocabulary = GGUF "starcoder.gguf",
                              .rows = "tokenizer/starcoder.llama.cpp.jsonl",
                              .other_text = {262, 264}});
}

/* The reference takes the model's name for the reason to swallow text behind <|end|>, and its </s>,
 * user-defined in the file, for a control token. */
static void test_conformance_phi_3(void **state)
{
    (void)state;
    run_suite(&(struct suite){.vocabulary = GGUF "phi-3.gguf",
                              .rows = "tokenizer/phi-3.llama.cpp.jsonl",
                              .other_ids = {554},
                              .other_noparse = {504, 506, 550}});
}

static void test_conformance_smollm2(void **state)
{
    const char *model = "models/SmolLM2-135M-Instruct.Q4_1.gguf", *path, *key;
    json_t *root, *one;
    uint32_t n_ends, n = 0;
    (void)state;
    path = fixture_conformance("smollm2/ref.json");
    struct checkpoint *c = checkpoint_open(model, NULL);
    if (!path || !c) {
        print_message("%s is absent\n", c ? "smollm2/ref.json" : model);
        checkpoint_close(c);
        skip();
    }
    struct text *t = text_open(c, NULL);
    checkpoint_close(c);
    root = json_load_file(path, 0, NULL);
    json_object_foreach(root, key, one)
    {
        const char *s = json_string_value(json_object_get(one, "text"));
        const char *greedy = json_string_value(json_object_get(one, "greedy_text"));
        assert_true(same_ids(t, s, strlen(s), true, json_object_get(one, "ids")));
        assert_true(same_text(t, json_object_get(one, "greedy"), greedy, strlen(greedy)));
        n++;
    }
    json_decref(root);
    assert_int_equal(n, 4);
    assert_true(text_has_chat(t));
    const uint32_t *ends = text_ends(t, &n_ends);
    assert_int_equal(n_ends, 1);
    assert_int_equal(ends[0], 2);
    assert_false(text_add_bos(t));
    text_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conformance_gpt_2),
        cmocka_unit_test(test_conformance_gpt2_hf),
        cmocka_unit_test(test_conformance_stories260k),
        cmocka_unit_test(test_conformance_llama_spm),
        cmocka_unit_test(test_conformance_starcoder),
        cmocka_unit_test(test_conformance_phi_3),
        cmocka_unit_test(test_conformance_smollm2),
    };
    return cmocka_run_group_tests_name("tokenizer_ids", tests, NULL, NULL);
}
