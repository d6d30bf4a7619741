/* [base] "did you mean": the known word nearest to one that is unknown. ANY_THREAD: pure
 * functions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of the words [n_words] the one with the least edit distance to s[0..n) ('-', '_' and '.' are
 * alike, so are cases; two neighbours that changed places count once), the first of equals; NULL
 * where all are further than a third of the letters, or s is longer than any word could be. */
const char *nearest_word(const char *s, size_t n, const char *const *words, uint32_t n_words);
