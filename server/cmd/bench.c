/* [base] `attend bench`: tokens a second in prefill and in decode, for each number of sequences. */
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"
#include "server/input.h"
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

static int print_accuracy_json(const struct tool_accuracy *a, const char *file, struct error *err)
{
    json_t *of = json_object();
    for (int i = 0; i < TOOL_ACCURACIES; i++)
        json_object_set_new(of, a->of[i].activations,
                            json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean_kl", a->of[i].mean_kl,
                                      "p99_kl", a->of[i].p99_kl, "max_kl", a->of[i].max_kl, "flips",
                                      a->of[i].flips, "perplexity", a->of[i].perplexity));
    json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "section", "accuracy", "model",
                          a->model, "text", file, "tokens", (json_int_t)a->n_tokens, "window",
                          (json_int_t)a->window, "activations", of);
    char *line = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!line)
        return error_set(err, ERR_NO_MEMORY, "no memory for the result");
    puts(line);
    free(line);
    return 0;
}

static void print_accuracy(const struct tool_accuracy *a)
{
    printf("%s: %u tokens in windows of %u, against float activations\n"
           "%-12s %12s %12s %12s %14s %12s\n",
           a->model, a->n_tokens, a->window, "activations", "mean KL", "p99 KL", "max KL",
           "argmax flips", "perplexity");
    for (int i = 0; i < TOOL_ACCURACIES; i++)
        printf("%-12s %12.2e %12.2e %12.2e %12.2f %% %12.4f\n", a->of[i].activations,
               a->of[i].mean_kl, a->of[i].p99_kl, a->of[i].max_kl, 100 * a->of[i].flips,
               a->of[i].perplexity);
}

/* The text of a file through the model, with each kind of activations. */
static int accuracy(const char *model, const char *path, uint32_t window, bool json,
                    const struct config *config, struct error *err)
{
    struct file_map text;
    struct tool_accuracy job = {.model = model, .window = window};
    if (file_map_open(path, &text, err) != 0)
        return -1;
    job.text = (const char *)text.bytes;
    job.n_text = text.n_bytes;
    options_engine(config, &job.engine);
    int rc = input_check_utf8(path, job.text, job.n_text, err);
    if (rc == 0)
        rc = tool_accuracy(&job, err);
    if (rc == 0 && json)
        rc = print_accuracy_json(&job, path, err);
    else if (rc == 0)
        print_accuracy(&job);
    file_map_close(&text);
    return rc;
}

int cmd_bench(int argc, char **argv, struct error *err)
{
    struct config config = {0};
    struct flag_list batch = {0};
    uint64_t prefill = 512, decode = 128;
    const char *text = NULL;
    uint64_t window = 512;
    bool json = false, verbose = false;
    const struct flag flags[] = {
        {"json", 0, FLAG_SWITCH, NULL, 0, 0, &json, "one JSON object a line"},
        {"prefill", 'p', FLAG_UINT, "N", 1, 1 << 20, &prefill, "tokens of the prompt [512]"},
        {"decode", 'n', FLAG_UINT, "N", 1, 1 << 20, &decode, "tokens to generate [128]"},
        {"batch", 'b', FLAG_LIST, "1,8,16", 1, 4096, &batch, "sequences at once [1]"},
        {"accuracy", 'a', FLAG_TEXT, "FILE", 0, 0, &text,
         "what rounded activations cost on this text, instead of speed"},
        {"window", 'w', FLAG_UINT, "N", 2, 1 << 20, &window, "tokens of a piece of the text [512]"},
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
    if (rc == 0 && text)
        rc = accuracy(argv[0], text, (uint32_t)window, json, &config, err);
    for (uint32_t i = 0; rc == 0 && !text && i < (batch.n ? batch.n : 1); i++) {
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
