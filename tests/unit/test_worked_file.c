/* tests/golden/worked.gguf is what tests/lib/worked.c writes, byte for byte.
 * `test_worked_file --write` makes the file anew. */
#include "core/base/file.h"
#include "core/load/checkpoint.h"
#include "tests/lib/worked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char path[] = "tests/golden/worked.gguf";

static void test_is_what_its_writer_writes(void **state)
{
    (void)state;
    struct error err = {0};
    struct str file = {0};
    size_t n = 0;
    struct gguf g = worked_gguf();
    gguf_finish(&g, &file);
    char *have = file_read(path, 1 << 20, &n, &err);
    if (!have)
        fail_msg("%s", err.text);
    assert_int_equal(n, file.n);
    assert_memory_equal(have, file.s, n);
    free(have);
    str_free(&file);
    gguf_free(&g);
}

static void expect_token(const struct meta *tokens, uint64_t id, const char *written)
{
    const char *s;
    size_t n;
    meta_item_str(tokens, id, &s, &n);
    assert_int_equal(n, strlen(written));
    assert_memory_equal(s, written, n);
}

static void test_holds_the_example(void **state)
{
    (void)state;
    struct error err = {0};
    struct checkpoint *c = checkpoint_open(path, &err);
    if (!c)
        fail_msg("%s", err.text);
    const struct meta *tokens = meta_find(c, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->n_items, WORKED_VOCAB);
    expect_token(tokens, WORKED_END, "<|endoftext|>");
    expect_token(tokens, WORKED_SHI,
                 "\xC3\xA6\xC4\xBA\xC2\xAF"); /* bytes E6 98 AF as GPT-2 has them */
    const struct tensor *t = tensor_find(c, "token_embd.weight");
    float row[4];
    assert_int_equal(t->dims[0], WORKED_VOCAB);
    assert_int_equal(t->dims[1], 4);
    memcpy(row, t->data + sizeof(row) * WORKED_MINGZI, sizeof(row));
    assert_memory_equal(row, ((const float[]){0, 2, 0, 1}), sizeof(row));
    t = tensor_find(c, "blk.0.attn_qkv.weight"); /* rows: Q 0-1, K 2-3, V 4-5 */
    assert_int_equal(t->dims[0], 6);
    memcpy(row, t->data + sizeof(row) * 4, sizeof(row));
    assert_memory_equal(row, ((const float[]){1, 1, 0, 0}), sizeof(row)); /* V's first column */
    checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_what_its_writer_writes),
        cmocka_unit_test(test_holds_the_example),
    };
    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        struct gguf g = worked_gguf();
        int rc = gguf_save(&g, path);
        gguf_free(&g);
        return rc ? 1 : 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
