/* Text to ids and back: both kinds of BPE on tiny vocabularies and against a naive merging, marks,
 * broken files, hostile texts. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/text.h"
#include "tests/lib/text_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct text *bpe(const char *pre)
{
    struct gguf g = {0};
    struct error err = {0};
    fixture_bpe(&g, pre);
    struct text *t = fixture_open(&g, &err);
    if (!t)
        fail_msg("%s", err.text);
    return t;
}

static struct text *spm(void)
{
    struct gguf g = {0};
    struct error err = {0};
    fixture_spm(&g);
    struct text *t = fixture_open(&g, &err);
    if (!t)
        fail_msg("%s", err.text);
    return t;
}

static void expect_ids(const struct text *t, const char *s, size_t n, bool special,
                       const uint32_t *want, uint32_t n_want)
{
    struct ids ids = {0};
    struct error err = {0};
    if (text_encode(t, s, n, special, &ids, &err) < 0)
        fail_msg("%s", err.text);
    bool same = ids.n == n_want;
    for (uint32_t i = 0; i < ids.n; i++) {
        same = same && ids.id[i] == want[i];
        if (!same)
            fail_msg("\"%s\": id %u is %u", s, i, ids.id[i]);
    }
    assert_int_equal(ids.n, n_want);
    ids_free(&ids);
}
#define WANT(t, s, special, ...)                                                                   \
    expect_ids(t, s, strlen(s), special, (uint32_t[]){__VA_ARGS__},                                \
               sizeof((uint32_t[]){__VA_ARGS__}) / 4)

static void expect_text(const struct text *t, bool first, bool special, const char *want,
                        const uint32_t *ids, uint32_t n)
{
    struct str out = {0};
    for (uint32_t i = 0; i < n; i++)
        text_token_bytes(t, ids[i], first && i == 0, special, &out);
    assert_string_equal(str_text(&out), want);
    str_free(&out);
}
#define TEXT(t, first, special, want, ...)                                                         \
    expect_text(t, first, special, want, (uint32_t[]){__VA_ARGS__},                                \
                sizeof((uint32_t[]){__VA_ARGS__}) / 4)

/* ---- byte-level BPE ---- */

static void test_bpe_merges_by_rank(void **state)
{
    (void)state;
    struct text *t = bpe("gpt-2");
    assert_string_equal(text_tokenizer_name(t), "byte-level BPE (gpt-2)");
    assert_int_equal(text_n_vocab(t), BPE_VOCAB);
    WANT(t, "the", true, BPE_THE);
    WANT(t, "he", true, BPE_HE);
    WANT(t, " the", true, BPE__THE);
    WANT(t, "the the", true, BPE_THE, BPE__THE);
    WANT(t, "thhe", true, BPE_TH, BPE_HE);
    WANT(t, "aaa", true, BPE_AA, 'a'); /* the first of equal pairs */
    WANT(t, "aaaaa", true, BPE_AAAA, 'a');
    WANT(t, "12", true, BPE_12);
    WANT(t, "zyx", true, 'z', 'y', 'x');
    WANT(t, "\xE2\x82\xAC", true, 0xE2, 0x82, 0xAC);
    expect_ids(t, "a\0b", 3, true, (uint32_t[]){'a', 0, 'b'}, 3);
    expect_ids(t, "", 0, true, NULL, 0);
    text_close(t);
}

static void test_bpe_words(void **state)
{
    (void)state;
    struct text *gpt2 = bpe("gpt-2"), *smollm = bpe("smollm"), *llama3 = bpe("llama-bpe");
    /* the last of several spaces belongs to the word behind it, unless a digit is cut out */
    WANT(gpt2, "x   1", true, 'x', BPE_SPACES, ' ', '1');
    WANT(smollm, "x  1", true, 'x', BPE_SPACES, '1');
    WANT(gpt2, "x  1", true, 'x', ' ', ' ', '1');
    WANT(smollm, "x  y", true, 'x', ' ', ' ', 'y');
    WANT(smollm, "12", true, '1', '2');
    WANT(smollm, "x  ", true, 'x', BPE_SPACES);
    /* a word that is a token is not merged */
    WANT(llama3, "zyx", true, BPE_WHOLE);
    WANT(llama3, "zyxz", true, 'z', 'y', 'x', 'z');
    WANT(llama3, "12", true, BPE_12);
    /* U+180E is no space, U+0085 is one */
    WANT(gpt2, "  \xE1\xA0\x8E", true, ' ', ' ', 0xE1, 0xA0, 0x8E);
    WANT(gpt2, "  \xC2\x85", true, BPE_SPACES, 0xC2, 0x85);
    assert_false(text_add_bos(gpt2));
    assert_true(text_add_bos(llama3));
    text_close(gpt2);
    text_close(smollm);
    text_close(llama3);
}

static void test_marks(void **state)
{
    (void)state;
    struct text *t = bpe("gpt-2");
    WANT(t, "<|endoftext|>", true, BPE_END);
    WANT(t, "a<|im_end|>the", true, 'a', BPE_IM_END, BPE_THE);
    /* U5: not special, then it is text */
    WANT(t, "<|im_end|>", false, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    WANT(t, "<|im_end", true, '<', '|', 'i', 'm', '_', 'e', 'n', 'd');
    /* user-defined ones always, the longest first, as early as possible */
    WANT(t, "a<tool>b", false, 'a', BPE_TOOL, 'b');
    WANT(t, "<tool>s", true, BPE_TOOLS);
    WANT(t, "<tool>ss", false, BPE_TOOLS, 's');
    WANT(t, "<<tool><tool", true, '<', BPE_TOOL, '<', 't', 'o', 'o', 'l');
    TEXT(t, true, true, "a<|im_end|><tool>", 'a', BPE_IM_END, BPE_TOOL);
    TEXT(t, true, false, "a<tool>", 'a', BPE_IM_END, BPE_TOOL);
    TEXT(t, true, true, "", BPE_VOCAB, UINT32_MAX); /* ids that the vocabulary does not have */
    assert_true(text_is_control(t, BPE_END));
    assert_false(text_is_control(t, BPE_TOOL));
    assert_false(text_is_control(t, BPE_VOCAB));
    text_close(t);
}

static void test_every_byte_comes_back(void **state)
{
    (void)state;
    struct text *t = bpe("gpt-2");
    struct ids ids = {0};
    struct str all = {0}, back = {0};
    char c[4];
    for (uint32_t cp = 0; cp < 0x3000; cp++)
        str_add(&all, c, (size_t)utf8_encode(cp, c));
    str_adds(&all, "\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF");
    assert_int_equal(text_encode(t, all.s, all.n, true, &ids, NULL), 0);
    for (uint32_t i = 0; i < ids.n; i++)
        text_token_bytes(t, ids.id[i], i == 0, true, &back);
    assert_int_equal(back.n, all.n);
    assert_memory_equal(back.s, all.s, all.n);
    ids_free(&ids);
    str_free(&all);
    str_free(&back);
    text_close(t);
}

/* ---- SentencePiece ---- */

static void test_spm(void **state)
{
    (void)state;
    struct text *t = spm();
    assert_string_equal(text_tokenizer_name(t), "SentencePiece BPE");
    WANT(t, "a", true, SPM__A);
    WANT(t, "b", true, SPM_SPACE, SPM_B);
    WANT(t, " a", true, SPM_SPACE, SPM__A);
    WANT(t, "babc", true, SPM_SPACE, SPM_B, SPM_ABC);
    WANT(t, "abc", true, SPM__A, SPM_BC); /* U+2581 a is better than ab */
    WANT(t, "b a", true, SPM_SPACE, SPM_B, SPM__A);
    WANT(t, "\xE2\x82\xAC\xC3\xA9\n", true, SPM_SPACE, SPM_EUR, SPM_BYTE0 + 0xC3, SPM_BYTE0 + 0xA9,
         SPM_BYTE0 + '\n');
    /* a space in front of each text between marks, none where there is no text */
    WANT(t, "<s>b</s></s>", true, SPM_BOS, SPM_SPACE, SPM_B, SPM_EOS, SPM_EOS);
    WANT(t, "[x]a", false, SPM_USER, SPM__A);
    WANT(t, "<0x41>", true, SPM_SPACE, SPM_BYTE0 + '<', SPM_BYTE0 + '0', SPM_BYTE0 + 'x',
         SPM_BYTE0 + '4', SPM_BYTE0 + '1', SPM_BYTE0 + '>');
    WANT(t, "<s>", false, SPM_SPACE, SPM_BYTE0 + '<', SPM_BYTE0 + 's', SPM_BYTE0 + '>');
    expect_ids(t, "", 0, true, NULL, 0);
    TEXT(t, true, true, "a a", SPM__A, SPM__A);
    TEXT(t, false, true, " a a", SPM__A, SPM__A);
    TEXT(t, true, true, "<s> a[x]", SPM_BOS, SPM__A, SPM_USER);
    TEXT(t, true, false, "\xC3\xA9", SPM_BYTE0 + 0xC3, SPM_BYTE0 + 0xA9);
    assert_true(text_add_bos(t));
    text_close(t);
}

static void test_spm_without_prefix(void **state)
{
    (void)state;
    struct gguf g = {0};
    fixture_spm(&g);
    gguf_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    gguf_bool(&g, "tokenizer.ggml.add_bos_token", false);
    struct text *t = fixture_open(&g, NULL);
    WANT(t, "abc", true, SPM_ABC);
    WANT(t, " a", true, SPM__A);
    TEXT(t, true, true, " a", SPM__A);
    assert_false(text_add_bos(t));
    text_close(t);
}

/* ---- vocabularies made on the spot ---- */

struct made {
    const char *text;
    int32_t type;
    float score;
};

static void make_tokens(struct gguf *g, const char *model, const struct made *m, uint32_t n)
{
    const char *texts[32];
    float scores[32];
    int32_t types[32];
    for (uint32_t i = 0; i < n; i++) {
        texts[i] = m[i].text;
        types[i] = m[i].type;
        scores[i] = m[i].score;
    }
    gguf_str(g, "tokenizer.ggml.model", model);
    gguf_strs(g, "tokenizer.ggml.tokens", texts, n);
    gguf_i32s(g, "tokenizer.ggml.token_type", types, n);
    gguf_f32s(g, "tokenizer.ggml.scores", scores, n);
    gguf_bool(g, "tokenizer.ggml.add_space_prefix", false);
}

/* Merging never ends in a control token, and of equal texts the lowest id counts. */
static void test_merges_reach_no_control_token(void **state)
{
    static const struct made tokens[] = {{"<s>", 3, 9}, {"<", 1, 0},  {"s", 1, 0},
                                         {">", 1, 0},   {"<s", 1, 5}, {"s>", 1, 4},
                                         {"<s", 1, 8},  {"<s", 4, 9}, {"u", 5, 9}};
    struct gguf g = {0};
    struct error err = {0};
    (void)state;
    make_tokens(&g, "llama", tokens, 7);
    struct text *t = fixture_open(&g, NULL);
    WANT(t, "<s>", true, 0);
    WANT(t, "<s>", false, 4, 3);
    text_close(t);
    make_tokens(&g, "llama", tokens, 9);
    t = fixture_open(&g, NULL);
    WANT(t, "<s>", false, 7, 3); /* now <s is a mark too */
    struct ids ids = {0};
    assert_int_equal(text_encode(t, "su", 2, false, &ids, &err), -1); /* unused, no bytes, no unk */
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.text, "0x75"));
    ids_free(&ids);
    text_close(t);
}

static void test_unknown_characters(void **state)
{
    static const struct made tokens[] = {{"<unk>", 2, 0}, {"a", 1, 0}};
    struct gguf g = {0};
    (void)state;
    make_tokens(&g, "llama", tokens, 2);
    gguf_u32(&g, "tokenizer.ggml.unknown_token_id", 0);
    struct text *t = fixture_open(&g, NULL);
    WANT(t, "xyazz", true, 0, 1, 0); /* one for a run */
    WANT(t, "<unk>", true, 0);
    WANT(t, "<unk>a", false, 0, 1);
    TEXT(t, true, false, "a", 0, 1);
    text_close(t);
}

static void test_a_word_of_three_tokens(void **state)
{
    static const struct made tokens[] = {{"\xE6\x88\x91\xE7\x9A\x84", 1, 0},
                                         {"\xE5\x90\x8D\xE5\xAD\x97", 1, 0},
                                         {"\xE6\x98\xAF", 1, 0}};
    struct gguf g = {0};
    (void)state;
    make_tokens(&g, "llama", tokens, 3);
    struct text *t = fixture_open(&g, NULL);
    WANT(t, "\xE6\x88\x91\xE7\x9A\x84\xE5\x90\x8D\xE5\xAD\x97\xE6\x98\xAF", false, 0, 1, 2);
    text_close(t);
}

/* ---- against the definition: always the best pair of all, the leftmost of the best ---- */

enum { NAIVE_MAX = 64 };

static uint32_t naive_bpe(const char *s, uint32_t n, uint32_t *ids)
{
    static const uint32_t merges[][3] = {{'t', 'h', BPE_TH},         {'h', 'e', BPE_HE},
                                         {BPE_TH, 'e', BPE_THE},     {' ', BPE_THE, BPE__THE},
                                         {' ', ' ', BPE_SPACES},     {'a', 'a', BPE_AA},
                                         {BPE_AA, BPE_AA, BPE_AAAA}, {'1', '2', BPE_12}};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (unsigned char)s[i];
    for (uint32_t m = 0; m < 8;) {
        uint32_t at = 0;
        while (at + 1 < n && (ids[at] != merges[m][0] || ids[at + 1] != merges[m][1]))
            at++;
        if (at + 1 >= n) {
            m++;
            continue;
        }
        ids[at] = merges[m][2];
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof(*ids));
        m = 0;
    }
    return n;
}

static void test_bpe_equals_the_definition(void **state)
{
    static const char letters[] = "thea"; /* one word by the pattern */
    uint32_t want[NAIVE_MAX], seed = 1;
    char s[NAIVE_MAX + 1];
    (void)state;
    struct text *t = bpe("gpt-2");
    for (int round = 0; round < 2000; round++) {
        uint32_t n = 1 + (seed = seed * 1664525u + 1013904223u, seed >> 16) % (NAIVE_MAX - 1);
        for (uint32_t i = 0; i < n; i++)
            s[i] = letters[(seed = seed * 1664525u + 1013904223u, seed >> 16) % 4];
        if (round & 1)
            s[0] = ' ';
        s[n] = '\0';
        expect_ids(t, s, n, true, want, naive_bpe(s, n, want));
    }
    text_close(t);
}

static uint32_t naive_spm(const char *s, uint32_t n, uint32_t *ids)
{
    static const struct {
        const char *text;
        uint32_t id;
        float score;
    } tokens[] = {{"a", SPM_A, -11},  {"b", SPM_B, -12},  {"c", SPM_C, -13},
                  {"ab", SPM_AB, -1}, {"bc", SPM_BC, -2}, {"abc", SPM_ABC, -3}};
    uint32_t from[NAIVE_MAX + 1], count = n;
    for (uint32_t i = 0; i <= n; i++)
        from[i] = i;
    for (;;) {
        int best = -1;
        uint32_t at = 0;
        for (uint32_t i = 0; i + 1 < count; i++)
            for (int k = 0; k < 6; k++) {
                uint32_t len = from[i + 2] - from[i];
                if (strlen(tokens[k].text) == len && !memcmp(tokens[k].text, s + from[i], len) &&
                    (best < 0 || tokens[k].score > tokens[best].score)) {
                    best = k;
                    at = i;
                }
            }
        if (best < 0)
            break;
        memmove(from + at + 1, from + at + 2, (count - at - 1) * sizeof(*from));
        count--;
    }
    for (uint32_t i = 0; i < count; i++)
        for (int k = 0; k < 6; k++)
            if (strlen(tokens[k].text) == from[i + 1] - from[i] &&
                !memcmp(tokens[k].text, s + from[i], from[i + 1] - from[i]))
                ids[i] = tokens[k].id;
    return count;
}

static void test_spm_equals_the_definition(void **state)
{
    uint32_t want[NAIVE_MAX], seed = 2;
    char s[NAIVE_MAX + 1];
    struct gguf g = {0};
    (void)state;
    fixture_spm(&g);
    gguf_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    struct text *t = fixture_open(&g, NULL);
    for (int round = 0; round < 2000; round++) {
        uint32_t n = 1 + (seed = seed * 1664525u + 1013904223u, seed >> 16) % (NAIVE_MAX - 1);
        for (uint32_t i = 0; i < n; i++)
            s[i] = "abc"[(seed = seed * 1664525u + 1013904223u, seed >> 16) % 3];
        s[n] = '\0';
        expect_ids(t, s, n, true, want, naive_spm(s, n, want));
    }
    text_close(t);
}

/* ---- what must be refused ---- */

static void test_invalid_utf8_names_the_byte(void **state)
{
    static const struct {
        const char *s;
        size_t n;
        const char *at;
    } bad[] = {{"\x80", 1, "byte 0"},          {"ab\xFF", 3, "byte 2"},
               {"a\xE4\xBD", 3, "byte 1"},     {"\xC0\x80", 2, "byte 0"},
               {"x\xED\xA0\x80", 4, "byte 1"}, {"\xF4\x90\x80\x80", 4, "byte 0"}};
    (void)state;
    struct text *kinds[] = {bpe("gpt-2"), spm()};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            struct ids ids = {0};
            struct error err = {0};
            assert_int_equal(text_encode(kinds[k], bad[i].s, bad[i].n, true, &ids, &err), -1);
            assert_int_equal(err.code, ERR_INVALID);
            assert_non_null(strstr(err.text, bad[i].at));
            assert_int_equal(ids.n, 0);
        }
        text_close(kinds[k]);
    }
}

/* Opening must fail in words that contain all of the parts. */
static void refuse(struct gguf *g, enum error_code code, const char *const *parts)
{
    struct error err = {0};
    assert_null(fixture_open(g, &err));
    assert_int_equal(err.code, code);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("\"%s\" lacks \"%s\"", err.text, *parts);
}
#define REFUSED(g, code, ...) refuse(g, code, (const char *const[]){__VA_ARGS__, NULL})

static void test_refuses_broken_files(void **state)
{
    static const struct made three[] = {{"a", 1, 0}, {"b", 1, 0}, {"ab", 1, 0}};
    static const struct made bad_type[] = {{"a", 7, 0}}, bad_byte[] = {{"<0xZZ>", 6, 0}};
    static const char *const texts[] = {"a", "b", "ab"}, *const cut[] = {"ab"},
                             *const no_token[] = {"a b", "b a"};
    static const float no_number[] = {0, 0, NAN};
    struct gguf g = {0};
    (void)state;
    gguf_str(&g, "tokenizer.ggml.model", "bert");
    REFUSED(&g, ERR_UNSUPPORTED, "bert", "gpt2", "llama");
    gguf_str(&g, "tokenizer.ggml.model", "llama");
    REFUSED(&g, ERR_FORMAT, "tokenizer.ggml.tokens", "missing");
    gguf_str(&g, "tokenizer.ggml.model", "llama");
    gguf_strs(&g, "tokenizer.ggml.tokens", texts, 3);
    REFUSED(&g, ERR_FORMAT, "tokenizer.ggml.scores", "missing");
    gguf_str(&g, "tokenizer.ggml.model", "llama");
    gguf_strs(&g, "tokenizer.ggml.tokens", texts, 3);
    gguf_f32s(&g, "tokenizer.ggml.scores", no_number, 2);
    REFUSED(&g, ERR_FORMAT, "tokenizer.ggml.scores", "2 items", "has 3");
    gguf_str(&g, "tokenizer.ggml.model", "llama");
    gguf_strs(&g, "tokenizer.ggml.tokens", texts, 3);
    gguf_f32s(&g, "tokenizer.ggml.scores", no_number, 3);
    REFUSED(&g, ERR_FORMAT, "tokenizer.ggml.scores", "token 2");
    gguf_str(&g, "tokenizer.ggml.model", "gpt2");
    gguf_strs(&g, "tokenizer.ggml.tokens", texts, 3);
    gguf_i32s(&g, "tokenizer.ggml.token_type", (int32_t[]){1}, 1);
    REFUSED(&g, ERR_FORMAT, "tokenizer.ggml.token_type", "1 items", "has 3");
    make_tokens(&g, "llama", bad_type, 1);
    REFUSED(&g, ERR_FORMAT, "token 0", "type 7");
    make_tokens(&g, "llama", bad_byte, 1);
    REFUSED(&g, ERR_FORMAT, "token 0", "<0xNN>");
    make_tokens(&g, "llama", three, 3);
    gguf_u32(&g, "tokenizer.ggml.eos_token_id", 3);
    REFUSED(&g, ERR_FORMAT, "eos_token_id is 3", "3 tokens");
    make_tokens(&g, "llama", three, 3);
    gguf_u32(&g, "tokenizer.ggml.unknown_token_id", 99);
    REFUSED(&g, ERR_FORMAT, "unknown_token_id is 99", "3 tokens");
    make_tokens(&g, "gpt2", three, 3);
    gguf_str(&g, "tokenizer.ggml.pre", "nobody");
    REFUSED(&g, ERR_UNSUPPORTED, "\"nobody\"", "smollm");
    make_tokens(&g, "gpt2", three, 3);
    gguf_str(&g, "tokenizer.ggml.pre", "gpt-2");
    REFUSED(&g, ERR_FORMAT, "tokenizer.ggml.merges", "missing");
    make_tokens(&g, "gpt2", three, 3);
    gguf_str(&g, "tokenizer.ggml.pre", "gpt-2");
    gguf_strs(&g, "tokenizer.ggml.merges", cut, 1);
    REFUSED(&g, ERR_FORMAT, "line 0", "\"ab\"");
    make_tokens(&g, "gpt2", three, 3);
    gguf_str(&g, "tokenizer.ggml.pre", "gpt-2");
    gguf_strs(&g, "tokenizer.ggml.merges", no_token, 2);
    REFUSED(&g, ERR_FORMAT, "line 1", "\"b a\"", "what they merge to");
}

/* Files with flipped bytes: opened or refused, and if opened, usable. */
static void test_flipped_bytes(void **state)
{
    static const char sample[] = "the <|im_end|> [x]abc \xE2\x82\xAC 12\n";
    uint32_t seed = 3, opened = 0;
    (void)state;
    log_set_level(LOG_ERROR);
    for (int round = 0; round < 600; round++) {
        struct gguf g = {0};
        struct str file = {0}, back = {0};
        struct ids ids = {0};
        struct error err = {0};
        if (round & 1)
            fixture_bpe(&g, "smollm");
        else
            fixture_spm(&g);
        gguf_finish(&g, &file);
        gguf_free(&g);
        for (int k = 0; k < 1 + round % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            unsigned char *byte = (unsigned char *)&file.s[(seed >> 4) % file.n];
            *byte ^= (unsigned char)(1u << (seed & 7));
        }
        struct text *t = fixture_open_bytes(file.s, file.n, &err);
        assert_true(t || err.text[0]);
        if (t && text_encode(t, sample, sizeof(sample) - 1, round & 2, &ids, &err) == 0)
            for (uint32_t i = 0; i < ids.n; i++)
                text_token_bytes(t, ids.id[i], i == 0, round & 4, &back);
        opened += t != NULL;
        text_close(t);
        ids_free(&ids);
        str_free(&file);
        str_free(&back);
    }
    log_set_level(LOG_INFO);
    assert_in_range(opened, 30, 500); /* both happen */
}

/* eos is user-defined by its type: it is a control token all the same (U5). */
static void test_end_tokens_are_control_tokens(void **state)
{
    static const struct made tokens[] = {{"a", 1, 0}, {"</s>", 4, 0}, {"<", 1, 0},
                                         {"/", 1, 0}, {"s", 1, 0},    {">", 1, 0}};
    struct gguf g = {0};
    (void)state;
    make_tokens(&g, "llama", tokens, 6);
    gguf_u32(&g, "tokenizer.ggml.eos_token_id", 1);
    struct text *t = fixture_open(&g, NULL);
    WANT(t, "a</s>", true, 0, 1);
    WANT(t, "a</s>", false, 0, 2, 3, 4, 5);
    assert_true(text_is_control(t, 1));
    text_close(t);
    make_tokens(&g, "llama", tokens, 6); /* an ordinary one stays what it is */
    gguf_u32(&g, "tokenizer.ggml.eos_token_id", 0);
    t = fixture_open(&g, NULL);
    WANT(t, "a", false, 0);
    assert_true(text_is_end(t, 0));
    text_close(t);
}

static void test_without_a_tokenizer(void **state)
{
    static const char *const models[] = {"no_vocab", "none", NULL};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct gguf g = {0};
        struct ids ids = {0};
        struct error err = {0};
        uint32_t id;
        if (models[i])
            gguf_str(&g, "tokenizer.ggml.model", models[i]);
        gguf_u32(&g, "tokenizer.ggml.eos_token_id", 77);
        struct text *t = fixture_open(&g, &err);
        assert_non_null(t);
        assert_false(text_has_tokenizer(t));
        assert_int_equal(text_n_vocab(t), 0);
        assert_true(text_is_end(t, 77));
        assert_false(text_bos(t, &id));
        assert_false(text_has_chat(t));
        TEXT(t, true, true, "", 0, 77);
        assert_int_equal(text_encode(t, "a", 1, true, &ids, &err), -1);
        assert_int_equal(err.code, ERR_UNSUPPORTED);
        text_close(t);
    }
}

/* ---- end tokens, and pre absent ---- */

static void expect_ends(struct gguf *g, const uint32_t *want, uint32_t n)
{
    uint32_t got;
    struct text *t = fixture_open(g, NULL);
    const uint32_t *ends = text_ends(t, &got);
    assert_int_equal(got, n);
    assert_memory_equal(ends, want, n * sizeof(*want));
    assert_true(text_is_end(t, want[0]));
    assert_false(text_is_end(t, 'a'));
    text_close(t);
}

static void test_ends(void **state)
{
    struct gguf g = {0};
    (void)state;
    fixture_bpe(&g, "gpt-2"); /* names no eot: the known name counts */
    expect_ends(&g, (uint32_t[]){BPE_END, BPE_IM_END}, 2);
    fixture_bpe(&g, NULL);
    gguf_u32(&g, "tokenizer.ggml.eot_token_id", BPE_IM_START);
    gguf_u32(&g, "tokenizer.ggml.eom_token_id", BPE_WHOLE);
    expect_ends(&g, (uint32_t[]){BPE_WHOLE, BPE_END, BPE_IM_START}, 3);
    fixture_bpe(&g, "gpt-2"); /* eot is another one, but the chat form ends turns with im_end */
    gguf_u32(&g, "tokenizer.ggml.eot_token_id", BPE_END);
    gguf_str(&g, "tokenizer.chat_template", "{{'<|im_start|>' + x + '<|im_end|>'}}");
    expect_ends(&g, (uint32_t[]){BPE_END, BPE_IM_END}, 2);
    fixture_bpe(&g, "gpt-2");
    gguf_u32(&g, "tokenizer.ggml.eom_token_id", UINT32_MAX); /* "none" */
    expect_ends(&g, (uint32_t[]){BPE_END, BPE_IM_END}, 2);
}

static void test_types_absent(void **state)
{
    static const char *const texts[] = {"a", "b", "<s>"};
    static const float scores[] = {0, 0, 0};
    struct gguf g = {0};
    (void)state;
    gguf_str(&g, "tokenizer.ggml.model", "llama");
    gguf_strs(&g, "tokenizer.ggml.tokens", texts, 3);
    gguf_f32s(&g, "tokenizer.ggml.scores", scores, 3);
    gguf_u32(&g, "tokenizer.ggml.bos_token_id", 2);
    gguf_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    struct text *t = fixture_open(&g, NULL);
    uint32_t bos;
    assert_true(text_is_control(t, 2));
    assert_true(text_bos(t, &bos) && bos == 2 && text_add_bos(t));
    WANT(t, "<s>ab", true, 2, 0, 1);
    TEXT(t, true, false, "ab", 2, 0, 1);
    text_close(t);
}

/* ---- long texts that nobody writes ---- */

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Encodes n bytes, sees that they come back, and returns how long encoding took. */
static double encode_long(const struct text *t, const char *s, size_t n)
{
    struct ids ids = {0};
    struct str back = {0};
    double began = cpu_ms();
    assert_int_equal(text_encode(t, s, n, true, &ids, NULL), 0);
    double took = cpu_ms() - began;
    for (uint32_t i = 0; i < ids.n; i++)
        text_token_bytes(t, ids.id[i], i == 0, true, &back);
    assert_int_equal(back.n, n);
    assert_memory_equal(back.s, s, n);
    ids_free(&ids);
    str_free(&back);
    return took;
}

/* Eight times the text takes some ten times as long, not sixty-four. */
static void test_long_texts_are_not_quadratic(void **state)
{
    static const char *const units[] = {"a", "the", " ", "\n ", "<|im_", "1", "x\xE2\x82\xAC", "'"};
    enum { SHORT = 1 << 13, LONG = 8 * SHORT };
    (void)state;
    struct text *kinds[] = {bpe("gpt-2"), bpe("smollm"), bpe("llama-bpe"), spm()};
    char *s = mem_new(LONG, 1);
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        size_t len = strlen(units[u]), n_short = SHORT / len * len, n_long = LONG / len * len;
        for (size_t n = 0; n < n_long; n += len)
            memcpy(s + n, units[u], len);
        for (int k = 0; k < 4; k++) {
            double once = encode_long(kinds[k], s, n_short);
            double eight = encode_long(kinds[k], s, n_long);
            assert_true(eight < 25 * once + 10);
        }
    }
    free(s);
    for (int k = 0; k < 4; k++)
        text_close(kinds[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_merges_by_rank),
        cmocka_unit_test(test_bpe_words),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_every_byte_comes_back),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_spm_without_prefix),
        cmocka_unit_test(test_merges_reach_no_control_token),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_a_word_of_three_tokens),
        cmocka_unit_test(test_bpe_equals_the_definition),
        cmocka_unit_test(test_spm_equals_the_definition),
        cmocka_unit_test(test_invalid_utf8_names_the_byte),
        cmocka_unit_test(test_refuses_broken_files),
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_end_tokens_are_control_tokens),
        cmocka_unit_test(test_without_a_tokenizer),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_types_absent),
        cmocka_unit_test(test_long_texts_are_not_quadratic),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
