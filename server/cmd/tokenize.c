/* [base] `attend tokenize`: the text of stdin -> a JSON array of ids. A vocabulary without tensors
 * will do. */
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"
#include "server/input.h"

#include <stdio.h>

enum { STDIN_MAX = 1 << 30 };

static int check_tokenizer(const struct text *t, const char *model, struct error *err)
{
    return text_has_tokenizer(t) ? 0
                                 : error_set(err, ERR_UNSUPPORTED, "%s has no tokenizer", model);
}

static int add_bos(const struct text *t, const char *model, struct ids *ids, struct error *err)
{
    uint32_t id;
    if (!text_bos(t, &id))
        return error_set(err, ERR_INVALID, "--bos: %s has no BOS token", model);
    return ids_add(ids, id, err);
}

static int print(const struct ids *ids, struct error *err)
{
    struct str out = {0};
    str_adds(&out, "[");
    for (uint32_t i = 0; i < ids->n; i++)
        str_addf(&out, "%s%u", i ? "," : "", ids->id[i]);
    str_adds(&out, "]\n");
    fwrite(str_text(&out), 1, out.n, stdout);
    bool failed = out.failed;
    str_free(&out);
    return failed ? error_set(err, ERR_NO_MEMORY, "no memory for %u ids", ids->n) : 0;
}

static int tokenize(const char *model, bool special, bool bos, struct error *err)
{
    struct str in = {0};
    struct ids ids = {0};
    int rc = -1;
    struct text *t = tool_text(model, err);
    if (!t)
        return -1;
    if (check_tokenizer(t, model, err) != 0 || input_read(&in, STDIN_MAX, err) != 0 ||
        input_check_utf8("stdin", str_text(&in), in.n, err) != 0)
        goto out;
    if (bos && add_bos(t, model, &ids, err) != 0)
        goto out;
    rc = text_encode(t, str_text(&in), in.n, special, &ids, err);
    if (rc == 0)
        rc = print(&ids, err);
out:
    ids_free(&ids);
    str_free(&in);
    text_close(t);
    return rc;
}

int cmd_tokenize(int argc, char **argv, struct error *err)
{
    bool special = false, bos = false;
    const struct flag flags[] = {
        {"special", 0, FLAG_SWITCH, NULL, 0, 0, &special,
         "control tokens written in the text are control tokens, else they are text"},
        {"bos", 0, FLAG_SWITCH, NULL, 0, 0, &bos, "put the BOS token in front"},
    };
    const struct flag_set set = {
        .command = "tokenize", .flags = flags, .n_flags = 2, .min_words = 1, .max_words = 1};
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc == 0)
        rc = tokenize(argv[0], special, bos, err);
    return rc < 0 ? -1 : 0;
}
