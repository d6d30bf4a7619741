/* Streaming text: whatever the split into tokens, what leaves is the whole text cut at the first
 * stop, always valid UTF-8, and nothing is held back that cannot become a stop (U1, U3, U4). */
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/detok.h"
#include "tests/lib/text_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct text *bpe, *spm;

static int open_both(void **state)
{
    struct gguf a = {0}, b = {0};
    (void)state;
    fixture_bpe(&a, "gpt-2");
    fixture_spm(&b);
    bpe = fixture_open(&a, NULL);
    spm = fixture_open(&b, NULL);
    return bpe && spm ? 0 : -1;
}

static int close_both(void **state)
{
    (void)state;
    text_close(bpe);
    text_close(spm);
    return 0;
}

enum { STOPS_MAX = 4 };

struct want {
    const char *stops[STOPS_MAX]; /* NULL ends them */
    const char *bytes;            /* pushed as byte tokens */
    const char *text;             /* what leaves */
    int stop;
};

static struct detok *open_with(const struct text *t, const char *const *stops, bool first)
{
    struct detok_stop s[STOPS_MAX];
    uint32_t n = 0;
    for (; n < STOPS_MAX && stops[n]; n++)
        s[n] = (struct detok_stop){stops[n], strlen(stops[n])};
    struct error err = {0};
    struct detok *d = detok_open(t, s, n, first, &err);
    if (!d)
        fail_msg("%s", err.text);
    return d;
}

static void run(const struct want *w)
{
    struct str out = {0};
    struct detok *d = open_with(bpe, w->stops, false);
    int stop = -1;
    for (const char *b = w->bytes; *b && stop < 0; b++)
        stop = detok_push(d, (unsigned char)*b, &out);
    detok_finish(d, &out);
    assert_string_equal(str_text(&out), w->text);
    assert_int_equal(stop, w->stop);
    str_free(&out);
    detok_close(d);
}

#define FFFD "\xEF\xBF\xBD"

static void test_characters(void **state)
{
    static const struct want rows[] = {
        {{NULL}, "plain", "plain", -1},
        {{NULL}, "\xE6\x88\x91\xF0\x9F\x98\x80", "\xE6\x88\x91\xF0\x9F\x98\x80", -1},
        /* the standard's example of one U+FFFD for each maximal subpart */
        {{NULL},
         "a\xF1\x80\x80\xE1\x80\xC2"
         "b\x80"
         "c\x80\xBF"
         "d",
         "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d",
         -1},
        {{NULL},
         "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
         FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A",
         -1},
        {{NULL}, "\xED\xA0\x80\xF4\x91\x92\x93\xFF", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD, -1},
        {{NULL}, "x\xF0\x9F\x98", "x" FFFD, -1}, /* cut off at the end */
        {{NULL}, "x\xE6", "x" FFFD, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        run(&rows[i]);
}

static void test_u3_stops(void **state)
{
    static const struct want rows[] = {
        {{"END"}, "it is the END of it", "it is the ", 0},
        {{"END"}, "EN and no more EN", "EN and no more EN", -1},
        {{"END"}, "EENEND", "EEN", 0},
        {{"abab"}, "ababab", "", 0},
        {{"aab"}, "aaab", "a", 0},          /* the automaton falls back */
        {{"abcd", "bc"}, "xabcd", "xa", 1}, /* bc ends first */
        {{"bc", "abc"}, "xabcd", "x", 1},   /* both end here: the longest */
        {{"ab", "abc"}, "xabc", "x", 0},    /* a prefix ends first */
        {{"b", "xyz", "yz"}, "wxyz", "w", 1},
        {{"abcx", "bcy"}, "abcy", "a", 1},
        {{"\n\n"}, "a\n\nb", "a", 0},
        {{"\xF0\x9F\x98\x80"}, "a\xF0\x9F\x98\x80", "a", 0},
        {{"\xF0\x9F\x98\x80"},
         "a\xF0\x9F\x98\x81",
         "a\xF0\x9F\x98\x81",
         -1},                      /* three bytes alike */
        {{FFFD}, "a\x80", "a", 0}, /* the text has it */
        {{"x" FFFD}, "ax\xE6", "a", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        run(&rows[i]);
}

static void test_nothing_comes_after_a_stop(void **state)
{
    (void)state;
    struct str out = {0};
    struct detok *d = open_with(bpe, (const char *const[]){"the", NULL}, false);
    assert_int_equal(detok_push(d, 'x', &out), -1);
    assert_int_equal(detok_push(d, BPE__THE, &out), 0);
    assert_int_equal(detok_push(d, BPE_THE, &out), -1);
    detok_finish(d, &out);
    assert_string_equal(str_text(&out), "x ");
    str_free(&out);
    detok_close(d);
}

static void test_stops_must_be_text(void **state)
{
    (void)state;
    static const struct detok_stop bad[] = {{"", 0}, {"\x9F\x98", 2}, {"a\xF0", 2}};
    for (int i = 0; i < 3; i++) {
        struct error err = {0};
        assert_null(detok_open(bpe, &bad[i], 1, false, &err));
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.param, "stop");
    }
    struct str out = {0}; /* a stop may contain a NUL */
    struct detok *d = detok_open(bpe, &(struct detok_stop){"\0a", 2}, 1, false, NULL);
    assert_int_equal(detok_push(d, 0, &out), -1);
    assert_int_equal(out.n, 0);
    assert_int_equal(detok_push(d, 'a', &out), 0);
    detok_close(d);
    detok_close(NULL);
    str_free(&out);
}

static void test_the_space_in_front(void **state)
{
    static const uint32_t ids[] = {SPM_BOS, SPM__A, SPM__A};
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct str out = {0};
        struct detok *d = open_with(spm, (const char *const[]){NULL}, first);
        for (int i = 0; i < 3; i++)
            detok_push(d, ids[i], &out);
        detok_finish(d, &out);
        assert_string_equal(str_text(&out), first ? "a a" : " a a");
        str_free(&out);
        detok_close(d);
    }
}

/* ---- random tokens ---- */

static uint32_t rnd(uint32_t n)
{
    static uint32_t seed = 7;
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* The text of bytes, by the definition. */
static void sanitise(const struct str *in, struct str *out)
{
    uint32_t cp;
    for (size_t i = 0; i < in->n;) {
        int len = utf8_decode(in->s + i, in->n - i, &cp);
        size_t skip = 1;
        for (size_t k = 2; len <= 0 && k <= 3 && i + k <= in->n; k++)
            if (utf8_decode(in->s + i, k, &cp) == 0)
                skip = k;
        if (len > 0)
            str_add(out, in->s + i, (size_t)len);
        else
            str_adds(out, FFFD);
        i += len > 0 ? (size_t)len : skip;
    }
}

/* Where the first stop to end begins, and which it is. */
static int first_stop(const struct str *s, const char *const *stops, size_t *cut)
{
    for (size_t end = 1; end <= s->n; end++) {
        int best = -1;
        for (int k = 0; stops[k]; k++) {
            size_t n = strlen(stops[k]);
            if (n <= end && memcmp(s->s + end - n, stops[k], n) == 0 &&
                (best < 0 || n > strlen(stops[best])))
                best = k;
        }
        if (best >= 0) {
            *cut = end - strlen(stops[best]);
            return best;
        }
    }
    *cut = s->n;
    return -1;
}

/* How many bytes at the end of s may be the beginning of a stop. */
static size_t may_become(const struct str *s, const char *const *stops)
{
    size_t most = 0;
    for (int k = 0; stops[k]; k++)
        for (size_t n = 1; n < strlen(stops[k]) && n <= s->n; n++)
            if (n > most && memcmp(s->s + s->n - n, stops[k], n) == 0)
                most = n;
    return most;
}

static void test_random_tokens_equal_the_whole(void **state)
{
    static const char *const sets[][STOPS_MAX] = {{NULL},
                                                  {"the", NULL},
                                                  {"aaa", "ab", NULL},
                                                  {"a the", "th", NULL},
                                                  {"\xE6\x88\x91", "het", NULL},
                                                  {FFFD FFFD, "xx", "hx", NULL}};
    static const char bytes[] = "ahetx \xE6\x88\x91\xF0\x9F\x98\x80";
    (void)state;
    for (int round = 0; round < 3000; round++) {
        const char *const *stops = sets[rnd(6)];
        struct str raw = {0}, whole = {0}, out = {0}, now = {0};
        struct detok *d = open_with(bpe, stops, false);
        int stop = -1;
        for (uint32_t i = 0, n = rnd(40); i < n && stop < 0; i++) {
            uint32_t id = rnd(3) ? (unsigned char)bytes[rnd(sizeof(bytes) - 1)]
                                 : BPE_TH + rnd(BPE_VOCAB - BPE_TH);
            text_token_bytes(bpe, id, false, false, &raw);
            stop = detok_push(d, id, &out);
            assert_true(utf8_valid(str_text(&out), out.n));
            if (stop >= 0)
                break;
            struct str sure = {.s = raw.s, .n = utf8_whole(str_text(&raw), raw.n)};
            str_clear(&now);
            sanitise(&sure, &now);
            assert_int_equal(out.n, now.n - may_become(&now, stops)); /* nothing held in vain */
        }
        detok_finish(d, &out);
        size_t cut;
        sanitise(&raw, &whole);
        int found = first_stop(&whole, stops, &cut);
        assert_int_equal(out.n, cut);
        assert_memory_equal(str_text(&out), str_text(&whole), cut);
        if (stop >= 0)
            assert_int_equal(stop, found);
        detok_close(d);
        str_free(&raw);
        str_free(&whole);
        str_free(&out);
        str_free(&now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_u3_stops),
        cmocka_unit_test(test_nothing_comes_after_a_stop),
        cmocka_unit_test(test_stops_must_be_text),
        cmocka_unit_test(test_the_space_in_front),
        cmocka_unit_test(test_random_tokens_equal_the_whole),
    };
    return cmocka_run_group_tests_name("detok", tests, open_both, close_both);
}
