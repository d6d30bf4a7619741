/* [base] fuzzing: any bytes as the body of POST /generate. It is taken, and then every number is in its range, or
 * it is refused with a sentence and a status of the client's fault. */
#include "server/generate_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n); // NOLINT(readability-identifier-naming)

static void require(bool true_of_every_input)
{
    if (!true_of_every_input)
        abort();
}

static const struct engine_model model = {
    .path = "m.gguf",
    .file_name = "m.gguf",
    .arch = "llama",
    .types = "F32",
    .context = 128,
    .n_ctx_train = 128,
    .n_vocab = 300,
    .n_layers = 1,
    .defaults = {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
};

static void within(double v, double min, double max) { require(v >= min && v <= max); }

static void in_range(const struct generate *g)
{
    const struct request_params *p = &g->params;
    within(p->sampling.temperature, 0, 100);
    within(p->sampling.top_p, 0, 1);
    within(p->sampling.min_p, 0, 1);
    require(isfinite(p->sampling.repeat_penalty) && p->sampling.repeat_penalty > 0);
    within(p->sampling.presence_penalty, -2, 2);
    within(p->sampling.frequency_penalty, -2, 2);
    require(strlen(p->session) <= SESSION_ID_MAX);
    require(g->kind != PROMPT_NONE);
    for (uint32_t i = 0; i < g->ids.n; i++)
        require(g->ids.id[i] < model.n_vocab);
    for (uint32_t i = 0; i < p->n_stops; i++)
        require(p->n_stop[i] > 0 && memchr(p->stops[i], '\0', p->n_stop[i] + 1) != NULL);
}

static void read_body(const char *body, size_t n, const struct config *config)
{
    struct generate g = {0};
    struct error err = {0};
    if (generate_read(&g, body, n, &model, config, &err) == 0) {
        in_range(&g);
    } else {
        require(err.text[0] != '\0');
        require(error_http_status(err.code) == 400);
    }
    generate_free(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) // NOLINT(readability-identifier-naming)
{
    static struct config lenient, strict;
    if (!lenient.host) {
        char *one[] = {"--config=config/attend.conf", NULL};
        char *two[] = {"--config=config/attend.conf", "--strict", NULL}, *words[2];
        int n_words = 0;
        require(config_load(&lenient, 1, one, words, &n_words, NULL) == 0);
        require(config_load(&strict, 2, two, words, &n_words, NULL) == 0);
    }
    char *body = malloc(n + 1); /* as the server has it: a NUL behind it */
    require(body != NULL);
    memcpy(body, bytes, n);
    body[n] = '\0';
    read_body(body, n, &lenient);
    read_body(body, n, &strict);
    free(body);
    return 0;
}
