/* [base] `attend bench`: tokens a second in prefill and in decode, what the machine would allow,
 * and what rounded activations cost. */
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

enum { LONG = 2048 }; /* tokens before the last row's, where nobody said */

static const char more[] =
    "A step is one forward pass; in decode each sequence then takes its likeliest token. There is\n"
    "no scheduler, no prefix cache and no guessing ahead. Limits are measured with all threads:\n"
    "prefill against the multiplications of the layers' matrices, in 8 bits or floats; decode "
    "against\n"
    "reading the weights (and in the last row keys and values) as fast as a set of that size can "
    "be\n"
    "read; decode of several against whichever of the two takes longer.\n";

static int print_line(json_t *o, struct error *err)
{
    char *line = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(o);
    if (!line)
        return error_set(err, ERR_NO_MEMORY, "no memory for the result");
    puts(line);
    fflush(stdout);
    free(line);
    return 0;
}

/* What a run prints, line by line; the first fault is kept. */
struct printer {
    bool json, began;
    int rc;
    struct error *err;
};

static const double giga = 1e9, mega = 1e6;

static void begin_json(struct printer *p, const struct tool_bench *b)
{
    const struct tool_limits *l = &b->limits;
    json_t *load = json_pack("{s:s, s:s, s:f, s:f, s:I, s:s}", "section", "load", "model", b->model,
                             "load_ms", b->load_ms, "weight_mb", (double)b->weight_bytes / mega,
                             "threads", (json_int_t)b->threads, "cpu_level", b->cpu_level);
    p->rc = print_line(load, p->err);
    if (p->rc == 0 && b->with_limits)
        p->rc = print_line(json_pack("{s:s, s:f, s:f, s:f, s:f}", "section", "limits",
                                     "memory_gb_s", l->memory_bytes_s / giga, "model_gb_s",
                                     l->model_bytes_s / giga, "int8_gop_s", l->int8_ops_s / giga,
                                     "float_gflop_s", l->float_ops_s / giga),
                           p->err);
}

static void begin_table(const struct tool_bench *b)
{
    const struct tool_limits *l = &b->limits;
    printf("%s: %.1f MB of weights, loaded in %.0f ms; %u threads, %s\n", b->model,
           (double)b->weight_bytes / mega, b->load_ms, b->threads, b->cpu_level);
    if (b->with_limits)
        printf(
            "limits: %.1f GB/s from memory, %.1f GB/s of a set as large as the weights, %.0f GOP/s "
            "in 8 bits, %.0f GFLOP/s\n",
            l->memory_bytes_s / giga, l->model_bytes_s / giga, l->int8_ops_s / giga,
            l->float_ops_s / giga);
    printf("\n%-8s %7s %6s %8s %10s %16s\n", "", "tokens", "batch", "context", "tok/s",
           "% of the limit");
}

static void say(const struct tool_bench *b, const struct tool_bench_row *row)
{
    struct printer *p = b->arg;
    double percent = row->limit_tok_s > 0 ? 100 * row->tok_s / row->limit_tok_s : 0;
    if (p->json && !p->began)
        begin_json(p, b);
    else if (!p->began)
        begin_table(b);
    p->began = true;
    if (p->json && p->rc == 0) {
        json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:f}", "section", row->section, "tokens",
                              (json_int_t)row->tokens, "batch", (json_int_t)row->batch, "context",
                              (json_int_t)row->context, "tok_s", row->tok_s);
        if (o && percent > 0) {
            json_object_set_new(o, "limit_tok_s", json_real(row->limit_tok_s));
            json_object_set_new(o, "percent", json_real(percent));
        }
        p->rc = print_line(o, p->err);
    } else if (!p->json) {
        printf("%-8s %7u %6u %8u %10.1f", row->section, row->tokens, row->batch, row->context,
               row->tok_s);
        if (percent > 0)
            printf(" %16.0f", percent);
        puts("");
        fflush(stdout);
    }
}

static int speed(struct tool_bench *job, bool json, struct error *err)
{
    struct printer p = {.json = json, .err = err};
    job->say = say;
    job->arg = &p;
    if (tool_bench(job, err) || p.rc)
        return -1;
    double resident = (double)job->resident_bytes / mega, beyond = (double)job->beyond_bytes / mega;
    if (json)
        return print_line(json_pack("{s:s, s:f, s:f}", "section", "memory", "resident_mb", resident,
                                    "beyond_mb", beyond),
                          err);
    printf("\nmemory: %.0f MB resident, %.0f beyond weights, keys and values\n", resident, beyond);
    return 0;
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
    return print_line(o, err);
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
    static const uint32_t usual[] = {1, 8, 16};
    struct config config = {0};
    struct flag_list batch = {0};
    const char *text = NULL;
    uint64_t window = 512, prefill = 512, decode = 64, prompt = 32, context = UINT64_MAX,
             repeat = 3;
    bool json = false, verbose = false, no_limits = false;
    const struct flag flags[] = {
        {"json", 0, FLAG_SWITCH, NULL, 0, 0, &json, "one JSON object a line"},
        {"prefill", 'p', FLAG_UINT, "N", 0, 1 << 20, &prefill,
         "tokens of a prompt, 0 = none [512]"},
        {"decode", 'n', FLAG_UINT, "N", 0, 1 << 20, &decode, "tokens to decode, 0 = none [64]"},
        {"batch", 'b', FLAG_LIST, "1,8,16", 1, 4096, &batch, "sequences decoded at once [1,8,16]"},
        {"prompt", 0, FLAG_UINT, "N", 1, 1 << 20, &prompt, "tokens before them, in each [32]"},
        {"long", 0, FLAG_UINT, "N", 0, 1 << 20, &context,
         "then one sequence after so many tokens, 0 = none [2048, or what the context has room "
         "for]"},
        {"repeat", 'r', FLAG_UINT, "N", 1, 100, &repeat, "how often; the median counts [3]"},
        {"no-limits", 0, FLAG_SWITCH, NULL, 0, 0, &no_limits,
         "do not measure what the machine allows"},
        {"accuracy", 'a', FLAG_TEXT, "FILE", 0, 0, &text,
         "what rounded activations cost on this text, instead of speed"},
        {"window", 'w', FLAG_UINT, "N", 2, 1 << 20, &window, "tokens of a piece of the text [512]"},
        {"verbose", 'v', FLAG_SWITCH, NULL, 0, 0, &verbose, "log what the engine does"},
    };
    const struct flag_set set = {
        .command = "bench",
        .flags = flags,
        .n_flags = sizeof(flags) / sizeof(flags[0]),
        .settings = flags_model,
        .config = &config,
        .min_words = 1,
        .max_words = 1,
        .more = more,
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    log_set_level(verbose ? LOG_INFO : LOG_WARN);
    struct tool_bench job = {.model = argv[0],
                             .prefill = (uint32_t)prefill,
                             .decode = (uint32_t)decode,
                             .batches = batch.n ? batch.item : usual,
                             .n_batches = batch.n ? batch.n : 3,
                             .prompt = (uint32_t)prompt,
                             .long_context = context == UINT64_MAX ? LONG : (uint32_t)context,
                             .long_shrinks = context == UINT64_MAX,
                             .repeats = (uint32_t)repeat,
                             .with_limits = !no_limits};
    if (rc == 0)
        options_engine(&config, &job.engine);
    if (rc == 0 && text)
        rc = accuracy(argv[0], text, (uint32_t)window, json, &config, err);
    else if (rc == 0)
        rc = speed(&job, json, err);
    flags_list_free(&batch);
    config_free(&config);
    return rc < 0 ? -1 : 0;
}
