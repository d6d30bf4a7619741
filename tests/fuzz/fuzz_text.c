/* [base] fuzzing: any bytes as text, through both kinds of tokenizer and back, and as the ids of an answer.
 * The first byte cuts the input: what is before the cut is a stop string. */
#include "core/base/utf8.h"
#include "core/text/detok.h"
#include "tests/lib/text_fixture.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n); // NOLINT(readability-identifier-naming)

static void require(bool true_of_every_input)
{
    if (!true_of_every_input)
        abort();
}

static struct text *vocabulary(void (*fill)(struct gguf *g))
{
    struct gguf g = {0};
    fill(&g);
    struct text *t = fixture_open(&g, NULL);
    require(t != NULL);
    return t;
}

static void fill_bpe(struct gguf *g) { fixture_bpe(g, "smollm"); }

/* What is encoded without control tokens comes back byte for byte; what is not UTF-8 is refused. */
static void there_and_back(const struct text *t, const char *s, size_t n, bool exact)
{
    struct ids ids = {0};
    struct str out = {0};
    struct error err;
    int rc = text_encode(t, s, n, false, &ids, &err);
    require((rc == 0) == utf8_valid(s, n));
    for (uint32_t i = 0; i < ids.n; i++) {
        require(ids.id[i] < text_n_vocab(t));
        text_token_bytes(t, ids.id[i], i == 0, false, &out);
    }
    if (rc == 0 && exact)
        require(out.n == n && memcmp(str_text(&out), s, n) == 0);
    str_free(&out);
    ids_free(&ids);
}

static bool contains(const char *s, size_t n, const char *part, size_t n_part)
{
    return memmem(s, n, part, n_part) != NULL;
}

/* Each byte is a token: what leaves is UTF-8 at every moment and never has the stop string. */
static void answer(const struct text *t, const uint8_t *bytes, size_t n, const char *stop,
                   size_t n_stop)
{
    struct str out = {0};
    struct detok_stop stops[1] = {{stop, n_stop}};
    bool has_stop = n_stop > 0 && utf8_valid(stop, n_stop);
    struct detok *d = detok_open(t, stops, has_stop, true, NULL);
    require(d != NULL);
    int hit = -1;
    for (size_t i = 0; i < n && hit < 0; i++) {
        hit = detok_push(d, bytes[i], &out);
        require(utf8_valid(str_text(&out), out.n));
    }
    if (hit < 0)
        detok_finish(d, &out);
    require(utf8_valid(str_text(&out), out.n));
    require(!has_stop || !contains(str_text(&out), out.n, stop, n_stop));
    detok_close(d);
    str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) // NOLINT(readability-identifier-naming)
{
    static struct text *bpe, *spm;
    if (!bpe) {
        bpe = vocabulary(fill_bpe);
        spm = vocabulary(fixture_spm);
    }
    const char *s = (const char *)bytes;
    there_and_back(bpe, s, n, true);
    there_and_back(spm, s, n, false);
    size_t cut = n > 0 ? 1 + bytes[0] % 8 : 0;
    if (cut > n)
        cut = n;
    answer(bpe, bytes + cut, n - cut, s + (cut > 0), cut > 0 ? cut - 1 : 0);
    return 0;
}
