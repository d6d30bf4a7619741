/* [base] `attend detokenize`: ids -> their bytes on stdout, exactly (no newline is added, bytes
 * that are no UTF-8 stay what they are), control tokens by their names: the inverse of `tokenize
 * --special`. */
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Appends the bytes of the ids written in s: one, or several with commas, as `tokenize` prints
 * them. */
static int add_word(const struct text *t, const char *word, bool *first, struct str *out,
                    struct error *err)
{
    const char *p = word;
    for (;;) {
        char one[24];
        uint64_t id;
        p += strspn(p, "[], \t\n");
        size_t n = strcspn(p, "[], \t\n");
        if (n == 0)
            return 0;
        snprintf(one, sizeof(one), "%.*s", (int)(n < 23 ? n : 23), p);
        if (flags_number("token", one, 0, text_n_vocab(t) - 1, &id, err) != 0)
            return -1;
        text_token_bytes(t, (uint32_t)id, *first, true, out);
        *first = false;
        p += n;
    }
}

static int detokenize(const char *model, char **words, int n_words, struct error *err)
{
    struct str out = {0};
    bool first = true;
    int rc = -1;
    struct text *t = tool_text(model, err);
    if (!t)
        return -1;
    if (!text_has_tokenizer(t) || text_n_vocab(t) == 0) {
        error_set(err, ERR_UNSUPPORTED, "%s has no tokenizer", model);
        goto out;
    }
    for (int i = 0; i < n_words; i++)
        if (add_word(t, words[i], &first, &out, err) != 0)
            goto out;
    if (out.failed) {
        error_set(err, ERR_NO_MEMORY, "no memory for the text");
        goto out;
    }
    fwrite(str_text(&out), 1, out.n, stdout);
    rc = 0;
out:
    str_free(&out);
    text_close(t);
    return rc;
}

int cmd_detokenize(int argc, char **argv, struct error *err)
{
    const struct flag_set set = {
        .command = "detokenize",
        .more =
            "Ids are words, or lists with commas, with or without brackets. Control tokens are\n"
            "printed by name; no newline is added.\n",
        .min_words = 1,
        .max_words = INT_MAX,
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc == 0)
        rc = detokenize(argv[0], argv + 1, n_words - 1, err);
    return rc < 0 ? -1 : 0;
}
