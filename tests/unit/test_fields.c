/* [02 api] bodies into structs: the machinery of fields.c, and the table of generate requests. */
#include "server/generate_fields.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct engine_model model = {
    .n_vocab = 512,
    .defaults = {.temperature = 0.7, .top_k = 11, .top_p = 0.9, .min_p = 0.01},
};
static const struct config config = {.max_tokens = 99, .deadline_ms = 7};
static const struct config strict = {.max_tokens = 99, .strict = true};

static struct error err;

static int read_with(struct generate *g, const struct config *c, const char *body)
{
    memset(g, 0, sizeof(*g));
    memset(&err, 0, sizeof(err));
    return generate_read(g, body, strlen(body), &model, c, &err);
}

/* Must be refused, by this field, with these words. */
static void refused(const char *body, const char *param, const char *words)
{
    struct generate g;
    if (read_with(&g, &config, body) == 0)
        fail_msg("%s was taken", body);
    if (strcmp(err.param, param) != 0)
        fail_msg("%s names %s, not %s: %s", body, err.param, param, err.text);
    if (!strstr(err.text, words))
        fail_msg("%s: \"%s\" is not in \"%s\"", body, words, err.text);
    generate_free(&g);
}

static void test_defaults(void **state)
{
    struct generate g;
    (void)state;
    assert_int_equal(read_with(&g, &config, "{\"prompt\":\"a\\u0000b\"}"), 0);
    assert_int_equal(g.kind, PROMPT_TEXT);
    assert_int_equal(g.n_prompt, 3);
    assert_memory_equal(g.prompt, "a\0b", 3);
    assert_true(g.stream);
    assert_true(g.special);
    assert_int_equal(g.add_bos, ASKED_NOT);
    assert_int_equal(g.params.max_tokens, 99);
    assert_int_equal(g.params.deadline_ms, 7);
    assert_int_equal(g.params.mode, TIMELINE_APPEND);
    assert_true(g.params.cache);
    assert_int_equal(g.params.sampling.top_k, 11);
    assert_int_equal(g.params.sampling.n_logprobs, -1);
    assert_int_equal(g.params.sampling.repeat_last_n, 64);
    assert_true(g.params.sampling.seed < (1ULL << 53));
    assert_int_equal(g.seen.n_warnings, 0);
    generate_free(&g);
}

static void test_values(void **state)
{
    struct generate g;
    const char *body =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]}],"
        "\"n_predict\":5,\"max_tokens\":5.0,\"temperature\":0,\"seed\":9007199254740991,"
        "\"stop\":[\"x\",\"y\\u0000\"],\"logit_bias\":{\"3\":false,\"4\":-1.5},"
        "\"logprobs\":20,\"session\":\"s-1\",\"stream\":false,\"add_bos\":false}";
    (void)state;
    assert_int_equal(read_with(&g, &config, body), 0);
    assert_int_equal(g.kind, PROMPT_CHAT);
    assert_int_equal(g.n_turns, 2);
    assert_memory_equal(g.turns[0].content, "hi", 2);
    assert_int_equal(g.turns[1].n_content, 2);
    assert_memory_equal(g.turns[1].content, "ab", 2);
    assert_int_equal(g.params.mode, TIMELINE_COMPARE);
    assert_int_equal(g.params.max_tokens, 5);
    assert_true(g.has_seed);
    assert_true(g.params.sampling.seed == 9007199254740991ULL);
    assert_int_equal(g.params.n_stops, 2);
    assert_int_equal(g.params.n_stop[1], 2);
    assert_int_equal(g.params.sampling.n_biases, 2);
    assert_true(isinf(g.params.sampling.biases[0].bias));
    assert_int_equal(g.params.sampling.biases[1].id, 4);
    assert_string_equal(g.params.session, "s-1");
    assert_false(g.stream);
    assert_int_equal(g.add_bos, ASKED_NO);
    generate_free(&g);

    assert_int_equal(read_with(&g, &config, "{\"prompt\":[0,511,7]}"), 0);
    assert_int_equal(g.kind, PROMPT_IDS);
    assert_int_equal(g.ids.n, 3);
    assert_int_equal(g.ids.id[1], 511);
    generate_free(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("{\"prompt\":\"x\",\"temperature\":999999}", "temperature",
            "temperature must be a number from 0 to 100, got 999999");
    refused("{\"prompt\":\"x\",\"top_p\":-1}", "top_p", "got -1");
    refused("{\"prompt\":\"x\",\"repeat_penalty\":0}", "repeat_penalty", "above 0");
    refused("{\"prompt\":\"x\",\"max_tokens\":2147483648}", "max_tokens", "2147483647");
    refused("{\"prompt\":\"x\",\"seed\":99999999999999999999}", "seed", "got 1e20");
    refused("{\"prompt\":[512]}", "prompt[0]", "from 0 to 511, got 512");
    refused("{\"prompt\":\"x\",\"max_tokens\":1,\"n_predict\":2}", "n_predict",
            "max_tokens is 1 and n_predict is 2");
    refused("{\"prompt\":\"x\",\"num_predict\":1,\"n_predict\":2}", "n_predict",
            "num_predict is 1");
    refused("{\"prompt\":\"x\",\"typical_p\":0.5}", "typical_p", "not supported");
    refused("{\"prompt\":\"x\",\"inputs\":\"y\"}", "inputs", "Text Generation Inference");
    refused("{\"prompt\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "messages",
            "both");
    refused("{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", "missing");
    refused("{\"messages\":[{\"role\":\"us er\",\"content\":\"\"}]}", "messages[0].role", "role");
    refused("{\"prompt\":null}", "prompt", "needs one of prompt, messages");
    refused("{\"promt\":\"x\"}", "prompt", "did you mean \"prompt\"?");
    refused("{\"prompt\":\"x\",\"logit_bias\":[[1,1],[1,2]]}", "logit_bias", "twice");
    refused("", "", "empty");
    refused("[1]", "", "array");
    refused("{\"prompt\":NaN}", "", "line 1 column 13");
    refused("{\"prompt\":\"x\",\"top_p\":1e400}", "", "overflow");
    refused("{\"a\":1,\"a\":2}", "", "duplicate");
}

/* A long value is cut, at a whole character, and never shown whole. */
static void test_shown_value(void **state)
{
    struct generate g;
    char body[4096] = "{\"prompt\":\"x\",\"temperature\":\"";
    (void)state;
    for (int i = 0; i < 400; i++)
        strcat(body, "猫");
    strcat(body, "\"}");
    assert_int_equal(read_with(&g, &config, body), -1);
    assert_non_null(strstr(err.text, "..."));
    assert_true(strlen(err.text) < 200);
    generate_free(&g);
}

static void test_unknown(void **state)
{
    struct generate g;
    (void)state;
    assert_int_equal(
        read_with(&g, &config, "{\"prompt\":\"x\",\"foo\":1,\"b\\\"\\n\":2,\"messages\":null}"), 0);
    assert_int_equal(g.seen.n_warnings, 2);
    assert_string_equal(g.seen.warnings.s,
                        "\"unknown field \\\"foo\\\"\",\"unknown field \\\"b\\\"\\n\\\"\"");
    assert_string_equal(g.seen.header.s, "unknown field \"foo\"; unknown field \"b\"?\"");
    generate_free(&g);

    assert_int_equal(read_with(&g, &strict, "{\"prompt\":\"x\",\"foo\":1}"), -1);
    assert_string_equal(err.param, "foo");
    generate_free(&g);
    assert_int_equal(
        read_with(&g, &strict, "{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"foo\":1}]}"),
        -1);
    assert_string_equal(err.param, "messages[0].foo");
    generate_free(&g);
}

static void test_many_warnings(void **state)
{
    struct generate g;
    char body[8192] = "{\"prompt\":\"x\"";
    (void)state;
    for (int i = 0; i < 100; i++)
        sprintf(body + strlen(body), ",\"zzzzzzzz%d\":1", i);
    strcat(body, "}");
    assert_int_equal(read_with(&g, &config, body), 0);
    assert_non_null(strstr(g.seen.warnings.s, "more warnings than"));
    assert_true(g.seen.header.n <= 1024);
    generate_free(&g);
}

/* Those that are not shown cost no search for a name that is like theirs. */
static void test_a_million_warnings(void **state)
{
    enum { N = 100000 };
    struct generate g;
    char *body = malloc((size_t)N * 40), *end = body;
    (void)state;
    assert_non_null(body);
    end += sprintf(end, "{\"prompt\":\"x\"");
    for (int i = 0; i < N; i++)
        end += sprintf(end, ",\"a field like no other %d\":1", i);
    strcpy(end, "}");
    clock_t begin = clock();
    assert_int_equal(read_with(&g, &config, body), 0);
    double took_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(g.seen.n_warnings, N);
    generate_free(&g);
    free(body);
    if (took_s > 2)
        fail_msg("%d unknown fields took %.1f s", N, took_s);
}

static void test_parts(void **state)
{
    struct generate g;
    const char *body = "{\"messages\":[{\"role\":\"user\",\"foo\":1,\"content\":["
                       "{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}},"
                       "{\"type\":\"text\",\"text\":\"b\",\"txet\":\"c\"}]}]}";
    (void)state;
    assert_int_equal(read_with(&g, &config, body), 0);
    assert_string_equal(g.turns[0].content, "ab");
    assert_string_equal(str_text(&g.seen.warnings),
                        "\"unknown field \\\"messages[0].foo\\\"\","
                        "\"unknown field \\\"messages[0].content[0].cache_control\\\"\","
                        "\"unknown field \\\"messages[0].content[1].txet\\\"\"");
    generate_free(&g);
    assert_int_equal(read_with(&g, &strict, body), -1);
    generate_free(&g);
}

static void test_too_many_values(void **state)
{
    enum { N = 200000 };
    char *body = malloc(2 * N + 64), *end = body;
    (void)state;
    assert_non_null(body);
    end += sprintf(end, "{\"prompt\":[1");
    for (int i = 0; i < N; i++)
        end += sprintf(end, ",1");
    strcpy(end, "]}");
    refused(body, "", "the body has 200003 values, at most 131072 are taken");
    free(body);
    struct generate g;
    char quoted[512] = "{\"prompt\":\"\\\",[{,,,\"}"; /* what is quoted is no value */
    assert_int_equal(read_with(&g, &config, quoted), 0);
    generate_free(&g);
}

static void test_header(void **state)
{
    struct generate g = {.format = FORMAT_SSE, .header_session = "s"};
    const char *body = "{\"prompt\":\"x\",\"stream\":false}";
    (void)state;
    assert_int_equal(generate_read(&g, body, strlen(body), &model, &config, &err), 0);
    assert_int_equal(g.format, FORMAT_DOCUMENT);
    assert_string_equal(g.params.session, "s");
    generate_drop_body(&g);
    assert_null(g.body);
    assert_string_equal(g.params.session, "s");
    generate_free(&g);

    g.format = FORMAT_SSE;
    strcpy(g.header_session, "s");
    body = "{\"prompt\":\"x\",\"session\":\"t\"}";
    assert_int_equal(generate_read(&g, body, strlen(body), &model, &config, &err), -1);
    assert_string_equal(err.param, "session");
    assert_int_equal(g.format, FORMAT_SSE);
    generate_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_shown_value),
        cmocka_unit_test(test_unknown),         cmocka_unit_test(test_many_warnings),
        cmocka_unit_test(test_header),          cmocka_unit_test(test_a_million_warnings),
        cmocka_unit_test(test_too_many_values), cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
