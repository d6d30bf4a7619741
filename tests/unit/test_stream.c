/* [16 stream] the encoder: pieces, final object, framing. And the JSON that it is written with. */
#include "server/json.h"
#include "server/stream.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void token_bytes(const void *arg, uint32_t id, struct str *out)
{
    (void)arg;
    if (id == 9)
        str_add(out, "\xE7", 1);
    else
        str_addf(out, " t%u", id);
}

static struct stream make(enum stream_format format, bool logprobs)
{
    return (struct stream){.format = format, .logprobs = logprobs, .token_bytes = token_bytes};
}

static void push(struct stream *st, uint32_t id, const char *text)
{
    struct sample_choice choice = {.id = id, .logprob = -0.25F, .n_top = 2};
    choice.top[0] = (struct logprob){id, -0.25F};
    choice.top[1] = (struct logprob){id + 1, -(float)INFINITY};
    stream_token(st, &choice, text, strlen(text));
}

static const struct request_result result = {
    .finish = FINISH_STOP,
    .stop = STOP_WORD,
    .prompt_tokens = 4,
    .cached_tokens = 3,
    .completion_tokens = 3,
    .prefilled_tokens = 1,
    .prefill_ms = 2,
    .decode_ms = 6,
};

static void finish(struct stream *st, const char *text)
{
    const struct stream_end end = {
        .id = "id-1",
        .model = "a \"model\"",
        .stop_word = "e\0d",
        .n_stop_word = 3,
        .seed = 9007199254740991ULL,
        .session = "",
        .warnings = "\"w\"",
        .result = &result,
    };
    stream_finish(st, text, strlen(text), &end);
}

/* Takes all there is. */
static const char *take(struct stream *st)
{
    static char all[65536];
    size_t n = 0, got;
    while ((got = stream_take(st, all + n, 7)))
        n += got;
    all[n] = '\0';
    return all;
}

static void test_text(void **state)
{
    struct stream st = make(FORMAT_TEXT, false);
    (void)state;
    push(&st, 5, "a\"\n");
    assert_string_equal(take(&st), "a\"\n");
    push(&st, 6, "");
    assert_false(stream_has(&st));
    stream_progress(&st, 1, 2);
    assert_false(stream_has(&st));
    finish(&st, "z");
    assert_string_equal(take(&st), "z");
    assert_true(st.ended);
    assert_false(st.broken);
    stream_free(&st);
}

static void test_ndjson_pieces(void **state)
{
    struct stream st = make(FORMAT_NDJSON, false);
    (void)state;
    push(&st, 5, " Paris");
    assert_string_equal(take(&st), "{\"text\":\" Paris\",\"tokens\":[5]}\n");
    push(&st, 6, ""); /* held back: told with the next text */
    assert_string_equal(take(&st), "");
    push(&st, 7, "\xE7\x8C\xAB\x01");
    assert_string_equal(take(&st), "{\"text\":\"\xE7\x8C\xAB\\u0001\",\"tokens\":[6,7]}\n");
    stream_progress(&st, 3, 9);
    assert_string_equal(take(&st), "{\"progress\":{\"prefilled\":3,\"prompt_tokens\":9}}\n");
    push(&st, 8, "");
    finish(&st, ""); /* a token that never gave text is told all the same */
    const char *rest = take(&st);
    assert_memory_equal(rest, "{\"text\":\"\",\"tokens\":[8]}\n", 25);
    json_t *final = json_loads(rest + 25, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);
    assert_non_null(final);
    assert_string_equal(json_string_value(json_object_get(final, "text")),
                        " Paris\xE7\x8C\xAB\x01");
    assert_int_equal(json_array_size(json_object_get(final, "tokens")), 4);
    json_decref(final);
    stream_free(&st);
}

static void test_sse(void **state)
{
    struct stream st = make(FORMAT_SSE, false);
    struct error err;
    (void)state;
    push(&st, 5, "a\n\n");
    assert_string_equal(take(&st), "data: {\"text\":\"a\\n\\n\",\"tokens\":[5]}\n\n");
    stream_progress(&st, 3, 9);
    assert_string_equal(take(&st), ": prefill 3/9\n\n");
    error_set(&err, ERR_INTERNAL, "broken \"here\"");
    stream_fail(&st, &err);
    assert_string_equal(take(&st),
                        "data: {\"error\":{\"code\":\"internal_error\",\"type\":\"server_error\","
                        "\"message\":\"broken \\\"here\\\"\",\"param\":null}}\n\n");
    assert_true(st.ended);
    assert_false(st.broken);
    stream_free(&st);
}

static void test_failed_text_is_left_open(void **state)
{
    struct stream st = make(FORMAT_TEXT, false);
    struct error err;
    (void)state;
    error_set(&err, ERR_INTERNAL, NULL);
    stream_fail(&st, &err);
    assert_true(st.ended && st.broken);
    assert_false(stream_has(&st));
    stream_free(&st);
}

static void test_document(void **state)
{
    struct stream st = make(FORMAT_DOCUMENT, true);
    (void)state;
    push(&st, 5, "a");
    push(&st, 9, "");
    push(&st, 6, "b");
    assert_false(stream_has(&st));
    finish(&st, "c");
    json_t *all = json_loads(take(&st), JSON_ALLOW_NUL, NULL);
    assert_non_null(all);
    assert_string_equal(json_string_value(json_object_get(all, "text")), "abc");
    assert_string_equal(json_string_value(json_object_get(all, "model")), "a \"model\"");
    assert_true(json_integer_value(json_object_get(all, "seed")) == 9007199254740991LL);
    assert_true(json_is_null(json_object_get(all, "session")));
    assert_true(json_is_true(json_object_get(all, "done")));
    json_t *timings = json_object_get(all, "timings");
    assert_true(json_real_value(json_object_get(timings, "prefill_tok_s")) == 500.0);
    assert_true(json_real_value(json_object_get(timings, "decode_tok_s")) == 500.0);

    json_t *list = json_object_get(all, "logprobs");
    assert_int_equal(json_array_size(list), 3);
    json_t *second = json_array_get(list, 1); /* a token of half a character */
    assert_string_equal(json_string_value(json_object_get(second, "token")), "\xEF\xBF\xBD");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(second, "bytes"), 0)), 0xE7);
    json_t *top = json_object_get(second, "top");
    assert_true(json_number_value(json_object_get(json_array_get(top, 0), "logprob")) == -0.25);
    assert_true(json_number_value(json_object_get(json_array_get(top, 1), "logprob")) == -9999);
    json_decref(all);
    stream_free(&st);
}

/* logprobs of the pieces, one after the other, are those of the final object. */
static void test_logprobs_in_pieces(void **state)
{
    struct stream st = make(FORMAT_NDJSON, true);
    json_t *seen = json_array();
    (void)state;
    push(&st, 5, "a");
    push(&st, 6, "");
    push(&st, 7, "b");
    push(&st, 8, "");
    finish(&st, "");
    const char *p = take(&st);
    json_t *last = NULL;
    while (*p) {
        const char *end = strchr(p, '\n');
        json_decref(last);
        last = json_loadb(p, (size_t)(end - p), JSON_ALLOW_NUL, NULL);
        assert_non_null(last);
        if (!json_object_get(last, "done"))
            json_array_extend(seen, json_object_get(last, "logprobs"));
        p = end + 1;
    }
    assert_int_equal(json_array_size(seen), 4);
    assert_true(json_equal(seen, json_object_get(last, "logprobs")));
    json_decref(last);
    json_decref(seen);
    stream_free(&st);
}

static void test_json_strings(void **state)
{
    struct str out = {0};
    static const struct {
        const char *in;
        size_t n;
        const char *want;
    } rows[] = {
        {"", 0, "\"\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"\"\\/\b\f\n\r\t\x7F", 9, "\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u007f\""},
        {"\xC3\xA9\xF0\x9F\x99\x82", 6, "\"\xC3\xA9\xF0\x9F\x99\x82\""},
        {"\xC3", 1, "\"\xEF\xBF\xBD\""},
        {"\xED\xA0\x80x", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx\""},
        {"\xFF\xC0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        str_clear(&out);
        json_add_str(&out, rows[i].in, rows[i].n);
        assert_string_equal(out.s, rows[i].want);
    }
    str_clear(&out);
    json_add_num(&out, NAN, 2);
    json_add_num(&out, INFINITY, 1);
    assert_string_equal(out.s, "0.000.0");
    str_clear(&out);
    json_add_ids(&out, (const uint32_t[]){0, 10, 49151, UINT32_MAX}, 4);
    json_add_ids(&out, NULL, 0);
    assert_string_equal(out.s, "[0,10,49151,4294967295][]");
    str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_ndjson_pieces),
        cmocka_unit_test(test_sse),          cmocka_unit_test(test_failed_text_is_left_open),
        cmocka_unit_test(test_document),     cmocka_unit_test(test_logprobs_in_pieces),
        cmocka_unit_test(test_json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
