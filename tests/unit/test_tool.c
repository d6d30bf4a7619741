/* What subcommands ask of the engine's parts, with the worked example's model. */
#include "core/base/log.h"
#include "core/tool.h"
#include "tests/lib/worked.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char model[] = "tests/golden/worked.gguf",
                  vocabulary[] = "tests/golden/tokenizer/gpt-2.gguf";
static const uint32_t prompt[] = {WORKED_WODE, WORKED_MINGZI, WORKED_SHI, 268, 266};
enum { N = sizeof(prompt) / sizeof(*prompt) };

/* The logits that a job writes, malloc'd [n_ids, WORKED_VOCAB]. */
static float *logits_of(struct tool_logits *job)
{
    struct error err = {0};
    char *bytes = NULL;
    size_t n = 0;
    job->out = open_memstream(&bytes, &n);
    if (tool_logits(job, &err))
        fail_msg("%s", err.text);
    fclose(job->out);
    assert_int_equal(n, sizeof(float) * job->n_ids * WORKED_VOCAB);
    return (float *)(void *)bytes;
}

static void test_logits_in_any_steps(void **state)
{
    (void)state;
    struct tool_logits job = {.model = model, .ids = prompt, .n_ids = N};
    float *want = logits_of(&job);
    for (uint32_t chunk = 1; chunk <= N + 1; chunk++) {
        job.engine.prefill_chunk = chunk;
        job.engine.threads = 1 + chunk % 2;
        job.decode = chunk > N;
        float *got = logits_of(&job);
        assert_memory_equal(got, want, sizeof(float) * N * WORKED_VOCAB);
        free(got);
    }
    const float *last = want + (size_t)2 * WORKED_VOCAB;
    uint32_t best = 0;
    for (uint32_t i = 1; i < WORKED_VOCAB; i++)
        best = last[i] > last[best] ? i : best;
    assert_int_equal(best, 268); /* 小 */
    free(want);
}

static void refused(const struct tool_logits *job, enum error_code code, const char *words)
{
    struct error err = {0};
    assert_int_equal(tool_logits(job, &err), -1);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void test_logits_refused(void **state)
{
    (void)state;
    static const uint32_t outside[] = {1, WORKED_VOCAB}, many[WORKED_CONTEXT + 1];
    struct tool_logits job = {.model = model, .ids = outside, .n_ids = 2};
    refused(&job, ERR_INVALID, "token 928 (number 2) is not in the vocabulary of 928");
    job.n_ids = 0;
    refused(&job, ERR_INVALID, "no tokens");
    job = (struct tool_logits){.model = model, .ids = many, .n_ids = WORKED_CONTEXT + 1};
    refused(&job, ERR_CONTEXT, "maximum context length is 64 tokens, the prompt has 65");
    job.n_ids = 17;
    job.engine.context = 16;
    refused(&job, ERR_CONTEXT, "maximum context length is 16 tokens, the prompt has 17");
    job.engine.context = 65;
    refused(&job, ERR_INVALID, "context is 65 tokens, the model was trained for 64");
    job.engine.context = 0;
    job.engine.page_tokens = 24;
    refused(&job, ERR_USAGE, "page_tokens is 24");
    job.engine.page_tokens = 16;
    job.engine.activations = "int4";
    refused(&job, ERR_USAGE, "activations is \"int4\", allowed are int8, int16, float");
    job.model = vocabulary;
    job.engine.activations = NULL;
    refused(&job, ERR_FORMAT, "token_embd.weight");
    job.model = "/nonexistent.gguf";
    refused(&job, ERR_IO, "/nonexistent.gguf");
}

/* A disk that is full is an error, not a short file. */
static void test_logits_that_cannot_be_written(void **state)
{
    (void)state;
    struct tool_logits job = {
        .model = model, .ids = prompt, .n_ids = N, .out = fopen("/dev/full", "wb")};
    assert_non_null(job.out);
    refused(&job, ERR_IO, "cannot write logits: No space left on device");
    fclose(job.out);
}

static void test_describes(void **state)
{
    (void)state;
    struct error err = {0};
    struct tool_model m;
    assert_int_equal(tool_model_open(model, &m, &err), 0);
    assert_true(m.known);
    assert_string_equal(m.arch, "gpt2");
    assert_string_equal(m.types, "16 F32");
    assert_int_equal(m.n_layers, 1);
    assert_int_equal(m.dim, 4);
    assert_int_equal(m.head_dim, 2);
    assert_int_equal(m.ff_dim, 8);
    assert_int_equal(m.n_vocab, WORKED_VOCAB);
    assert_int_equal(m.n_ctx, WORKED_CONTEXT);
    tool_model_close(&m);
    assert_int_equal(tool_model_open(vocabulary, &m, &err), 0); /* no tensors: still described */
    assert_false(m.known);
    assert_string_equal(m.arch, "gpt2");
    assert_non_null(strstr(m.why_unknown.text, "token_embd.weight"));
    tool_model_close(&m);
    assert_int_equal(tool_model_open("/nonexistent.gguf", &m, &err), -1);
    tool_model_close(&m);
}

static void test_text_of_a_vocabulary(void **state)
{
    (void)state;
    struct error err = {0};
    struct ids ids = {0};
    struct text *t = tool_text(vocabulary, &err);
    assert_non_null(t);
    assert_int_equal(text_encode(t, "Hello world", 11, false, &ids, &err), 0);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 15496);
    assert_int_equal(ids.id[1], 995);
    ids_free(&ids);
    text_close(t);
}

static void count_row(const struct tool_bench *job, const struct tool_bench_row *row)
{
    assert_true(row->tok_s > 0 && isfinite(row->tok_s));
    assert_true(row->limit_tok_s == 0);
    assert_true(job->load_ms > 0 && job->weight_bytes > 0);
    ++*(int *)job->arg;
}

static void test_bench_measures(void **state)
{
    (void)state;
    struct error err = {0};
    int n_rows = 0;
    uint32_t batches[] = {1, 3};
    struct tool_bench job = {.model = model,
                             .prefill = 20,
                             .decode = 5,
                             .prompt = 4,
                             .batches = batches,
                             .n_batches = 2,
                             .long_context = 30,
                             .repeats = 2,
                             .say = count_row,
                             .arg = &n_rows};
    job.engine.prefill_chunk = 7;
    if (tool_bench(&job, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n_rows, 4);
    job.decode = 0;
    assert_int_equal(tool_bench(&job, &err), 0);
    assert_int_equal(n_rows, 5);
    batches[1] = 0;
    assert_int_equal(tool_bench(&job, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    batches[1] = 1;
    job.prefill = 1000;
    assert_int_equal(tool_bench(&job, &err), -1);
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_int_equal(n_rows, 5);
}

static void test_tables(void **state)
{
    (void)state;
    struct str architectures = {0}, types = {0};
    tool_tables(&architectures, &types);
    assert_non_null(strstr(str_text(&architectures), "gpt2"));
    assert_non_null(strstr(str_text(&architectures), "llama"));
    assert_non_null(strstr(str_text(&types), "Q4_K"));
    str_free(&architectures);
    str_free(&types);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_in_any_steps),
        cmocka_unit_test(test_logits_refused),
        cmocka_unit_test(test_logits_that_cannot_be_written),
        cmocka_unit_test(test_describes),
        cmocka_unit_test(test_text_of_a_vocabulary),
        cmocka_unit_test(test_bench_measures),
        cmocka_unit_test(test_tables),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
