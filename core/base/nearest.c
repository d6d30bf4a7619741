/* [base] nearest known word, by edit distance with transpositions. */
#include "core/base/nearest.h"

#include <ctype.h>
#include <string.h>

enum { WORD_MAX = 64 };

static int fold(char c)
{
    if (c == '_' || c == '.')
        return '-';
    return tolower((unsigned char)c);
}

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Optimal string alignment; both at most WORD_MAX bytes. Three rows of the table are alive. */
static uint32_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    uint32_t rows[3][WORD_MAX + 1];
    uint32_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n_b; j++)
        last[j] = before[j] = (uint32_t)j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = (uint32_t)i;
        for (size_t j = 1; j <= n_b; j++) {
            uint32_t change = fold(a[i - 1]) != fold(b[j - 1]);
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + change);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
        uint32_t *old = before;
        before = last;
        last = now;
        now = old;
    }
    return last[n_b];
}

const char *nearest_word(const char *s, size_t n, const char *const *words, uint32_t n_words)
{
    const char *best = NULL;
    uint32_t least = UINT32_MAX;
    if (n == 0 || n > WORD_MAX)
        return NULL;
    for (uint32_t i = 0; i < n_words; i++) {
        size_t n_word = strlen(words[i]);
        if (n_word > WORD_MAX)
            continue;
        uint32_t d = distance(s, n, words[i], n_word);
        if (d < least && d <= (n + 2) / 3) {
            least = d;
            best = words[i];
        }
    }
    return best;
}
