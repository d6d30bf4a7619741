/* What fits into memory: defaults shrink, explicit values are refused with the sum. */
#include "core/open.h"

#include "core/base/log.h"
#include "tests/lib/worked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* Pages of 1 MiB for 64 tokens; a model of 8192 positions: 128 pages a request. */
static struct open_fit ask(uint64_t available_mib)
{
    return (struct open_fit){.available = available_mib * MIB,
                             .weights = 100 * MIB,
                             .activations = 20 * MIB,
                             .page_bytes = MIB,
                             .page_tokens = 64,
                             .n_ctx = 8192,
                             .max_running = 4};
}

static void refused(struct open_fit f, enum error_code code, const char *param, const char *words)
{
    struct error err = {0};
    assert_int_equal(open_fit(&f, &err), -1);
    assert_int_equal(err.code, code);
    assert_string_equal(err.param, param);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void test_plenty(void **state)
{
    (void)state;
    struct open_fit f = ask(10000);
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.context, 8192);
    assert_int_equal(f.n_pages, 4 * 128); /* all running requests at full length, no more */
    f = ask(10000);
    f.asked_context = 1000; /* 16 pages */
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.context, 1000);
    assert_int_equal(f.n_pages, 4 * 16);
}

static void test_defaults_shrink(void **state)
{
    (void)state;
    struct open_fit f = ask(600); /* 480 left, an eighth and 64 MiB of it for others: 356 */
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.context, 8192);
    assert_int_equal(f.n_pages, 356);
    f = ask(200); /* 80 left: 70 less a quarter */
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.n_pages, 52);
    assert_int_equal(f.context, 52 * 64); /* one request can have all of it */
    f = ask(121);                         /* room for one page */
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.n_pages, 1);
    assert_int_equal(f.context, 64);
}

static void test_explicit_values_are_kept_or_refused(void **state)
{
    (void)state;
    struct open_fit f = ask(200);
    f.asked_context = 80 * 64; /* all that is left: allowed, since asked for */
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.context, 80 * 64);
    assert_int_equal(f.n_pages, 80);
    f.asked_context++;
    refused(
        f, ERR_NO_MEMORY, "context",
        "weights 100.0 + activations 20.0 + KV cache of the context asked for 81.0 = 201.0 MiB > "
        "available 200.0 MiB");
    f = ask(200);
    f.asked_kv = 80 * MIB;
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.n_pages, 80);
    assert_int_equal(f.context, 80 * 64);
    f.asked_kv = 81 * MIB;
    refused(f, ERR_NO_MEMORY, "kv_memory", "KV cache of kv_memory 81.0 = 201.0 MiB > available");
    f = ask(10000);
    f.asked_kv = 10 * MIB;
    f.asked_context = 641;
    refused(f, ERR_INVALID, "context", "context is 641 tokens, which take 11534336 bytes");
    f.asked_context = 640;
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_int_equal(f.n_pages, 10);
    f.asked_kv = MIB - 1;
    refused(f, ERR_INVALID, "kv_memory", "kv_memory is 1048575 bytes, one page of 64 tokens takes");
}

static void test_what_never_fits(void **state)
{
    (void)state;
    struct open_fit f = ask(120);
    refused(f, ERR_NO_MEMORY, "model",
            "KV cache of one page 1.0 = 121.0 MiB > available 120.0 MiB");
    refused(ask(50), ERR_NO_MEMORY, "model", "weights 100.0");
    f = ask(1000);
    f.asked_context = 8193;
    refused(f, ERR_INVALID, "context", "context is 8193 tokens, the model was trained for 8192");
}

static void test_huge_pools_stay_countable(void **state)
{
    (void)state;
    struct open_fit f = ask((uint64_t)1 << 40);
    f.page_bytes = 1024;
    f.n_ctx = 16777216;
    f.max_running = 4096;
    assert_int_equal(open_fit(&f, NULL), 0);
    assert_true((uint64_t)f.n_pages * f.page_tokens <= INT32_MAX);
    assert_int_equal(f.context, 16777216);
}

static void test_words(void **state)
{
    (void)state;
    struct error err = {0};
    enum kv_type kv;
    enum activations a;
    enum blas_mode blas;
    assert_int_equal(open_kv_type("f32", &kv, &err), 0);
    assert_int_equal(kv, KV_F32);
    assert_int_equal(open_kv_type("q8", &kv, &err), 0);
    assert_int_equal(kv, KV_Q8);
    assert_int_equal(open_kv_type(NULL, &kv, &err), 0);
    assert_int_equal(kv, KV_F16);
    assert_int_equal(open_activations("float", &a, &err), 0);
    assert_int_equal(a, ACTIVATIONS_FLOAT);
    assert_int_equal(open_blas("off", &blas, &err), 0);
    assert_int_equal(blas, BLAS_OFF);
    assert_int_equal(open_kv_type("q4", &kv, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    assert_string_equal(err.text, "kv_type is \"q4\", allowed are f16, f32, q8");
    assert_string_equal(err.param, "kv_type");
}

struct change {
    const char *was, *now; /* [n] */
    size_t n;
};
#define CHANGE(was, now) ((struct change){was, now, sizeof(was) - 1})

/* The worked example's file with some of its bytes written over. */
static void refuse_file(const struct change *changes, uint32_t n_changes, const char *words)
{
    char path[] = "/tmp/attend-open-XXXXXX";
    int fd = mkstemp(path);
    struct gguf g = worked_gguf();
    struct str file = {0};
    struct error err = {0};
    struct opened o;
    gguf_finish(&g, &file);
    gguf_free(&g);
    for (uint32_t i = 0; i < n_changes; i++) {
        char *at = memmem(file.s, file.n, changes[i].was, changes[i].n);
        assert_non_null(at);
        memcpy(at, changes[i].now, changes[i].n);
    }
    assert_int_equal(write(fd, file.s, file.n), file.n);
    close(fd);
    str_free(&file);
    struct engine_options e = {.model = path, .threads = 1, .max_running = 1};
    struct open_options options = {.engine = &e, .max_rows = 4, .max_logits = 1, .text = true};
    int rc = open_model(&o, &options, &err);
    unlink(path);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, ERR_FORMAT);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

/* A token without a row in the embedding matrix: the file is refused, not the engine stopped by it. */
static void test_tokens_beyond_the_matrix(void **state)
{
    (void)state;
#define ROWS(n) "token_embd.weight\2\0\0\0\4\0\0\0\0\0\0\0" n "\3\0\0\0\0\0"
#define BOS(id) "bos_token_id\4\0\0\0" id "\0\0"
    refuse_file(&CHANGE(ROWS("\xA0"), ROWS("\x9F")), 1,
                "tokenizer.ggml.tokens has 928 tokens, token_embd.weight 927 rows");
    /* without a tokenizer, BOS may be any id: it is put before prompts of ids, too */
    const struct change bos[] = {CHANGE("tokenizer.ggml.model", "tokenizer.ggml.nodel"),
                                 CHANGE(BOS("\0\0"), BOS("\xA0\3"))};
    refuse_file(bos, 2, "tokenizer.ggml.bos_token_id is 928, token_embd.weight has 928 rows");
#undef ROWS
#undef BOS
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plenty),
        cmocka_unit_test(test_defaults_shrink),
        cmocka_unit_test(test_explicit_values_are_kept_or_refused),
        cmocka_unit_test(test_what_never_fits),
        cmocka_unit_test(test_huge_pools_stay_countable),
        cmocka_unit_test(test_tokens_beyond_the_matrix),
        cmocka_unit_test(test_words),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
