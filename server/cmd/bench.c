/* [base] `attend bench`: tokens a second in prefill and in decode, for each number of sequences. */
#include "core/base/log.h"
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"
#include "server/options.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static int print_json(const struct tool_bench *b, struct error *err)
{
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "model", b->model, "prefill",
                          (json_int_t)b->prefill, "decode", (json_int_t)b->decode, "batch",
                          (json_int_t)b->batch, "prefill_tok_s", b->prefill_tok_s, "decode_tok_s",
                          b->decode_tok_s, "load_ms", b->load_ms, "weight_bytes",
                          (json_int_t)b->weight_bytes);
    char *line = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!line)
        return error_set(err, ERR_NO_MEMORY, "no memory for the result");
    puts(line);
    free(line);
    return 0;
}

static void print_row(const struct tool_bench *b, bool first)
{
    if (first)
        printf("%s: %.1f MB of weights, loaded in %.0f ms; prefill of %u, decode of %u tokens\n"
               "%6s  %14s  %13s  %18s\n",
               b->model, (double)b->weight_bytes / 1e6, b->load_ms, b->prefill, b->decode, "batch",
               "prefill tok/s", "decode tok/s", "decode tok/s each");
    printf("%6u  %14.1f  %13.1f  %18.1f\n", b->batch, b->prefill_tok_s, b->decode_tok_s,
           b->decode_tok_s / b->batch);
}

int cmd_bench(int argc, char **argv, struct error *err)
{
    struct config config = {0};
    struct flag_list batch = {0};
    uint64_t prefill = 512, decode = 128;
    bool json = false, verbose = false;
    const struct flag flags[] = {
        {"json", 0, FLAG_SWITCH, NULL, 0, 0, &json, "one JSON object a line"},
        {"prefill", 'p', FLAG_UINT, "N", 1, 1 << 20, &prefill, "tokens of the prompt [512]"},
        {"decode", 'n', FLAG_UINT, "N", 1, 1 << 20, &decode, "tokens to generate [128]"},
        {"batch", 'b', FLAG_LIST, "1,8,16", 1, 4096, &batch, "sequences at once [1]"},
        {"verbose", 'v', FLAG_SWITCH, NULL, 0, 0, &verbose, "log what the engine does"},
    };
    const struct flag_set set = {
        .command = "bench",
        .flags = flags,
        .n_flags = sizeof(flags) / sizeof(flags[0]),
        .settings = flags_engine,
        .config = &config,
        .min_words = 1,
        .max_words = 1,
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    log_set_level(verbose ? LOG_INFO : LOG_WARN);
    for (uint32_t i = 0; rc == 0 && i < (batch.n ? batch.n : 1); i++) {
        struct tool_bench job = {.model = argv[0],
                                 .prefill = (uint32_t)prefill,
                                 .decode = (uint32_t)decode,
                                 .batch = batch.n ? batch.item[i] : 1};
        options_engine(&config, &job.engine);
        rc = tool_bench(&job, err);
        if (rc == 0 && json)
            rc = print_json(&job, err);
        else if (rc == 0)
            print_row(&job, i == 0);
        fflush(stdout);
    }
    flags_list_free(&batch);
    config_free(&config);
    return rc < 0 ? -1 : 0;
}
