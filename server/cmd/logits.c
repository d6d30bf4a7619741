/* [base] `attend logits`: what the model computes for the given ids, as raw float32. */
#include "core/base/log.h"
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"
#include "server/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file of --out, or stdout where that is no terminal. */
static FILE *open_out(const char *path, struct error *err)
{
    if (!path || strcmp(path, "-") == 0) {
        if (isatty(STDOUT_FILENO))
            error_set(err, ERR_USAGE, "logits are binary, stdout is a terminal: --out FILE");
        return isatty(STDOUT_FILENO) ? NULL : stdout;
    }
    FILE *f = fopen(path, "wbe");
    if (!f)
        error_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    return f;
}

/* Closes; what a failure left in a regular file is no result and is removed. */
static int close_out(FILE *f, const char *path, int rc, struct error *err)
{
    struct stat st;
    if (f == stdout)
        return rc; /* main flushes it */
    bool regular = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
    bool failed = ferror(f) != 0;
    if ((fclose(f) != 0 || failed) && rc == 0)
        rc = error_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (rc != 0 && regular)
        unlink(path);
    return rc;
}

int cmd_logits(int argc, char **argv, struct error *err)
{
    struct config config = {0};
    struct flag_list tokens = {0};
    const char *path = NULL;
    bool decode = false, verbose = false;
    const struct flag flags[] = {
        {"tokens", 't', FLAG_LIST, "1,2,3", 0, UINT32_MAX, &tokens, "the ids"},
        {"decode", 'd', FLAG_SWITCH, NULL, 0, 0, &decode, "one token at a time, not one prefill"},
        {"out", 'o', FLAG_TEXT, "FILE", 0, 0, &path, "where to write [stdout]"},
        {"verbose", 'v', FLAG_SWITCH, NULL, 0, 0, &verbose, "log what the engine does"},
    };
    const struct flag_set set = {
        .command = "logits",
        .flags = flags,
        .n_flags = sizeof(flags) / sizeof(flags[0]),
        .settings = flags_model,
        .config = &config,
        .min_words = 1,
        .max_words = 1,
        .more = "Writes float32 [n_tokens, n_vocab], little endian.\n",
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc == 0 && tokens.n == 0)
        rc = error_set(err, ERR_USAGE, "logits needs --tokens 1,2,3");
    FILE *out = rc == 0 ? open_out(path, err) : NULL;
    if (out) {
        struct tool_logits job = {
            .model = argv[0], .ids = tokens.item, .n_ids = tokens.n, .decode = decode, .out = out};
        options_engine(&config, &job.engine);
        log_set_level(verbose ? LOG_INFO : LOG_WARN);
        rc = close_out(out, path, tool_logits(&job, err), err);
    } else if (rc == 0) {
        rc = -1;
    }
    flags_list_free(&tokens);
    config_free(&config);
    return rc < 0 ? -1 : 0;
}
