/* [02 api] the fields of a generate request: a body, checked, into struct generate. */
#include "server/generate_fields.h"
#include "core/base/mem.h"
#include "server/check.h"

#include "config/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    STOPS_MAX = 16,
    STOP_BYTES = 1024,
    BIASES_MAX = 4096,
    TURNS_MAX = 16384,
    ROLE_BYTES = 64,
    VALUES_MAX = 131072, /* of a body, beside a context of token ids */
};
#define BIAS_MAX 1000.0
#define SEED_MAX 9007199254740991.0 /* 2^53 - 1: every JSON reader keeps it exactly */

static const char example[] = "{\"prompt\": \"Once upon a time\", \"max_tokens\": 32}";

/* An integer of 0 to max from value, or -1. */
static int64_t integer_of(const json_t *value, double max)
{
    double d = json_is_number(value) ? json_number_value(value) : -1;
    return d >= 0 && d <= max && d == floor(d) ? (int64_t)d : -1;
}

static int take_prompt(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    char wanted[96];
    if (json_is_string(value)) {
        g->kind = PROMPT_TEXT;
        g->prompt = json_string_value(value);
        g->n_prompt = json_string_length(value);
        return 0;
    }
    if (!json_is_array(value))
        return fields_refuse(name, value, "a string or an array of token ids", err);
    g->kind = PROMPT_IDS;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        int64_t id = integer_of(item, (double)g->n_vocab - 1);
        if (id < 0) {
            char where[64];
            snprintf(where, sizeof(where), "%s[%zu]", name, i);
            snprintf(wanted, sizeof(wanted), "a token id from 0 to %u", g->n_vocab - 1);
            return fields_refuse(where, item, wanted, err);
        }
        if (ids_add(&g->ids, (uint32_t)id, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- messages ---- */

struct message {
    struct generate *g;
    struct chat_turn *turn;
    struct str *joined;
    struct fields_seen *seen;
};

/* Reads an object within an object: its warnings go to those of the outer one. */
static int read_inner(const struct field_table *table, const char *where, const json_t *value,
                      struct message *m, struct fields_seen *outer, struct error *err)
{
    struct fields_seen seen = {
        .warnings = outer->warnings, .header = outer->header, .n_warnings = outer->n_warnings};
    m->seen = &seen;
    int rc = fields_read(table, where, value, m, m->g->strict, &seen, err);
    m->seen = outer;
    outer->warnings = seen.warnings;
    outer->header = seen.header;
    outer->n_warnings = seen.n_warnings;
    return rc;
}

static const struct field part_fields[] = {
    {"type", FIELD_ANY, 0, 0, 0, NULL, NULL},
    {"text", FIELD_ANY, 0, 0, 0, NULL, NULL},
};
static const struct field_table part_table = {part_fields,
                                              sizeof(part_fields) / sizeof(part_fields[0])};

static int take_role(const char *name, const json_t *value, void *target, struct error *err)
{
    struct message *m = target;
    if (!json_is_string(value) ||
        !check_name(json_string_value(value), json_string_length(value), ROLE_BYTES, "_-"))
        return fields_refuse(name, value, "a role such as \"user\"", err);
    m->turn->role = json_string_value(value);
    m->turn->n_role = json_string_length(value);
    return 0;
}

static int take_part(const char *name, const json_t *part, struct message *m, struct error *err)
{
    const json_t *type = json_object_get(part, "type");
    const json_t *text = json_object_get(part, "text");
    char where[96];
    if (!json_is_object(part) || !json_is_string(type))
        return fields_refuse(name, part, "a part such as {\"type\":\"text\",\"text\":\"...\"}",
                             err);
    if (strcmp(json_string_value(type), "text") != 0)
        return error_set_field(err, ERR_UNSUPPORTED, name,
                               "%s has type \"%.40s\"; only text is supported", name,
                               json_string_value(type));
    if (!json_is_string(text))
        return fields_refuse(name, part, "a part with a text", err);
    str_add(m->joined, json_string_value(text), json_string_length(text));
    snprintf(where, sizeof(where), "%s.", name);
    return read_inner(&part_table, where, part, m, m->seen, err);
}

static int take_content(const char *name, const json_t *value, void *target, struct error *err)
{
    struct message *m = target;
    char where[80];
    if (json_is_string(value)) {
        m->turn->content = json_string_value(value);
        m->turn->n_content = json_string_length(value);
        return 0;
    }
    if (!json_is_array(value) || json_array_size(value) == 0)
        return fields_refuse(name, value, "a string or an array of text parts", err);
    for (size_t i = 0; i < json_array_size(value); i++) {
        snprintf(where, sizeof(where), "%s[%zu]", name, i);
        if (take_part(where, json_array_get(value, i), m, err) < 0)
            return -1;
    }
    if (m->joined->failed)
        return error_set(err, ERR_NO_MEMORY, NULL);
    m->turn->content = str_text(m->joined);
    m->turn->n_content = m->joined->n;
    return 0;
}

static const struct field message_fields[] = {
    {"role", FIELD_TAKE, 0, 0, 0, NULL, take_role},
    {"content", FIELD_TAKE, 0, 0, 0, NULL, take_content},
    {"name", FIELD_NEUTRAL, 0, 0, 0, "\"\"", NULL},
    {"tool_calls", FIELD_NEUTRAL, 0, 0, 0, "[]", NULL},
    {"tool_call_id", FIELD_NEUTRAL, 0, 0, 0, "\"\"", NULL},
    {"function_call", FIELD_NEUTRAL, 0, 0, 0, "null", NULL},
    {"reasoning_content", FIELD_NEUTRAL, 0, 0, 0, "\"\"", NULL},
    {"refusal", FIELD_NEUTRAL, 0, 0, 0, "\"\"", NULL},
};
static const struct field_table message_table = {message_fields, sizeof(message_fields) /
                                                                     sizeof(message_fields[0])};

static int take_message(struct generate *g, size_t i, const json_t *value, struct error *err)
{
    struct message m = {.g = g, .turn = &g->turns[i], .joined = &g->joined[i]};
    char where[32];
    if (!json_is_object(value)) {
        snprintf(where, sizeof(where), "messages[%zu]", i);
        return fields_refuse(where, value, "an object with role and content", err);
    }
    snprintf(where, sizeof(where), "messages[%zu].", i);
    if (read_inner(&message_table, where, value, &m, &g->seen, err) < 0)
        return -1;
    if (m.turn->role && m.turn->content)
        return 0;
    snprintf(where, sizeof(where), "messages[%zu].%s", i, m.turn->role ? "content" : "role");
    return error_set_field(err, ERR_INVALID, where, "%s is missing", where);
}

static int take_messages(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    size_t n = json_array_size(value); /* 0 also where it is no array */
    if (n == 0 || n > TURNS_MAX)
        return fields_refuse(name, value, "a non-empty array of {\"role\",\"content\"}", err);
    g->turns = mem_new(n, sizeof(*g->turns));
    g->joined = mem_new(n, sizeof(*g->joined));
    if (!g->turns || !g->joined)
        return error_set(err, ERR_NO_MEMORY, NULL);
    g->kind = PROMPT_CHAT;
    g->n_turns = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        if (take_message(g, i, json_array_get(value, i), err) < 0)
            return -1;
    return 0;
}

/* ---- single values ---- */

static int take_add_bos(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    if (!json_is_boolean(value))
        return fields_refuse(name, value, "true or false", err);
    g->add_bos = json_is_true(value) ? ASKED_YES : ASKED_NO;
    return 0;
}

static int take_seed(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    if (json_is_number(value) && json_number_value(value) == -1) /* "random", as elsewhere */
        return 0;
    int64_t seed = integer_of(value, SEED_MAX);
    if (seed < 0)
        return fields_refuse(name, value,
                             "an integer from 0 to 9007199254740991, or -1 for a random one", err);
    g->params.sampling.seed = (uint64_t)seed;
    g->has_seed = true;
    return 0;
}

static int take_logprobs(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    if (json_is_false(value))
        return 0;
    int64_t n = integer_of(value, LOGPROBS_MAX);
    if (n < 0)
        return fields_refuse(name, value, "an integer from 0 to 20", err);
    g->params.sampling.n_logprobs = (int32_t)n;
    return 0;
}

static int add_stop(const char *name, const json_t *value, struct generate *g, struct error *err)
{
    struct request_params *p = &g->params;
    size_t n = json_is_string(value) ? json_string_length(value) : 0;
    if (n == 0 || n > STOP_BYTES)
        return fields_refuse(name, value, "a string of 1 to 1024 bytes", err);
    char *copy = mem_new(n + 1, 1);
    if (!copy)
        return error_set(err, ERR_NO_MEMORY, NULL);
    memcpy(copy, json_string_value(value), n);
    p->stops[p->n_stops] = copy;
    p->n_stop[p->n_stops++] = n;
    return 0;
}

static int take_stop(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    char where[64];
    if (n > STOPS_MAX)
        return error_set_field(err, ERR_INVALID, name, "%s has %zu strings, at most %d are taken",
                               name, n, STOPS_MAX);
    if (n == 0)
        return 0;
    g->params.stops = mem_new(n, sizeof(*g->params.stops));
    g->params.n_stop = mem_new(n, sizeof(*g->params.n_stop));
    if (!g->params.stops || !g->params.n_stop)
        return error_set(err, ERR_NO_MEMORY, NULL);
    if (!json_is_array(value))
        return json_is_string(value)
                   ? add_stop(name, value, g, err)
                   : fields_refuse(name, value, "a string or an array of strings", err);
    for (size_t i = 0; i < n; i++) {
        snprintf(where, sizeof(where), "%s[%zu]", name, i);
        if (add_stop(where, json_array_get(value, i), g, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- logit_bias ---- */

static int add_bias(struct generate *g, const char *name, int64_t id, const json_t *bias,
                    struct error *err)
{
    struct sample_params *p = &g->params.sampling;
    double d = json_is_number(bias) ? json_number_value(bias) : NAN;
    if (json_is_false(bias))
        d = -(double)INFINITY;
    else if (!(fabs(d) <= BIAS_MAX))
        return fields_refuse(name, bias, "a number from -1000 to 1000, or false to ban the token",
                             err);
    for (uint32_t i = 0; i < p->n_biases; i++)
        if (p->biases[i].id == (uint32_t)id)
            return error_set_field(err, ERR_INVALID, name, "%s has token %lld twice", name,
                                   (long long)id);
    p->biases[p->n_biases++] = (struct logit_bias){.id = (uint32_t)id, .bias = (float)d};
    return 0;
}

static int refuse_id(const struct generate *g, const char *name, const json_t *value,
                     struct error *err)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "for token ids from 0 to %u", g->n_vocab - 1);
    return fields_refuse(name, value, wanted, err);
}

/* {"id": bias} */
static int take_bias_object(const char *name, const json_t *value, struct generate *g,
                            struct error *err)
{
    const char *key;
    json_t *bias;
    json_object_foreach((json_t *)value, key, bias)
    {
        char *end;
        errno = 0;
        unsigned long id = strtoul(key, &end, 10);
        if (!check_name(key, strlen(key), 10, "") || *end || errno || id >= g->n_vocab)
            return refuse_id(g, name, value, err);
        if (add_bias(g, name, (int64_t)id, bias, err) < 0)
            return -1;
    }
    return 0;
}

/* [[id, bias]] */
static int take_bias_array(const char *name, const json_t *value, struct generate *g,
                           struct error *err)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *pair = json_array_get(value, i);
        if (json_array_size(pair) != 2)
            return fields_refuse(name, pair, "made of [id, bias]", err);
        int64_t id = integer_of(json_array_get(pair, 0), (double)g->n_vocab - 1);
        if (id < 0)
            return refuse_id(g, name, pair, err);
        if (add_bias(g, name, id, json_array_get(pair, 1), err) < 0)
            return -1;
    }
    return 0;
}

static int take_logit_bias(const char *name, const json_t *value, void *target, struct error *err)
{
    struct generate *g = target;
    bool object = json_is_object(value);
    size_t n = object ? json_object_size(value) : json_array_size(value);
    if (!object && !json_is_array(value))
        return fields_refuse(name, value, "an object {\"id\": bias} or an array of [id, bias]",
                             err);
    if (n > BIASES_MAX)
        return error_set_field(err, ERR_INVALID, name, "%s has %zu tokens, at most %d are taken",
                               name, n, BIASES_MAX);
    if (n == 0)
        return 0;
    g->params.sampling.biases = mem_new(n, sizeof(struct logit_bias));
    if (!g->params.sampling.biases)
        return error_set(err, ERR_NO_MEMORY, NULL);
    return object ? take_bias_object(name, value, g, err) : take_bias_array(name, value, g, err);
}

/* ---- the table ---- */

static const struct field fields[] = {
#define FIELD(name, kind, member, min, max)                                                        \
    {name, FIELD_##kind, offsetof(struct generate, member), min, max, NULL, NULL},
#define TAKE(name, function) {name, FIELD_TAKE, 0, 0, 0, NULL, function},
#define ALIAS(name, of)      {name, FIELD_ALIAS, 0, 0, 0, of, NULL},
#define NEUTRAL(name, value) {name, FIELD_NEUTRAL, 0, 0, 0, value, NULL},
#define FOREIGN(name, what)  {name, FIELD_FOREIGN, 0, 0, 0, what, NULL},
#define ANY(name)            {name, FIELD_ANY, 0, 0, 0, NULL, NULL},
#include "server/generate_fields.def"
#undef FIELD
#undef TAKE
#undef ALIAS
#undef NEUTRAL
#undef FOREIGN
#undef ANY
};
static const struct field_table table = {fields, sizeof(fields) / sizeof(fields[0])};

static int set_defaults(struct generate *g, const struct engine_model *model,
                        const struct config *config, struct error *err)
{
    struct sample_params *p = &g->params.sampling;
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        return error_set(err, ERR_INTERNAL, "no random numbers: %s", strerror(errno));
    g->special = true;
    g->stream = true;
    g->n_vocab = model->n_vocab;
    g->strict = config->strict;
    g->params.max_tokens = (uint32_t)config->max_tokens;
    g->params.deadline_ms = config->deadline_ms;
    g->params.cache = true;
    p->temperature = model->defaults.temperature;
    p->top_k = model->defaults.top_k;
    p->top_p = model->defaults.top_p;
    p->min_p = model->defaults.min_p;
    p->repeat_penalty = 1;
    p->repeat_last_n = 64;
    p->n_logprobs = -1;
    p->seed = seed >> 11;
    return 0;
}

/* The session's name may come by header, too. */
static int take_header_session(struct generate *g, struct error *err)
{
    char *name = g->params.session;
    const char *given = g->header_session;
    if (!given[0])
        return 0;
    if (name[0] && strcmp(name, given) != 0)
        return error_set_field(err, ERR_INVALID, "session",
                               "session is \"%s\" and X-Session-Id is \"%.128s\": send one of them",
                               name, given);
    snprintf(name, sizeof(g->params.session), "%s", given);
    return 0;
}

/* Rules between fields. */
static int check(struct generate *g, struct error *err)
{
    const struct fields_seen *seen = &g->seen;
    bool prompt = fields_has(&table, seen, "prompt");
    bool messages = fields_has(&table, seen, "messages");
    if (prompt && messages)
        return error_set_field(err, ERR_INVALID, "messages",
                               "prompt and messages are both there: send one of them");
    if (!prompt && !messages && seen->unknown[0] && seen->near[0])
        return error_set_field(err, ERR_INVALID, "prompt",
                               "needs one of prompt, messages; unknown field \"%s\", did you mean "
                               "\"%s\"?",
                               seen->unknown, seen->near);
    if (!prompt && !messages && seen->unknown[0])
        return error_set_field(err, ERR_INVALID, "prompt",
                               "needs one of prompt, messages; unknown field \"%s\"",
                               seen->unknown);
    if (!prompt && !messages)
        return error_set_field(err, ERR_INVALID, "prompt",
                               "needs one of prompt, messages; an example: %s", example);
    if (g->params.min_tokens > g->params.max_tokens)
        return error_set_field(err, ERR_INVALID, "min_tokens",
                               "min_tokens is %u, more than max_tokens %u", g->params.min_tokens,
                               g->params.max_tokens);
    return take_header_session(g, err);
}

int generate_read(struct generate *g, const char *body, size_t n_body,
                  const struct engine_model *model, const struct config *config, struct error *err)
{
    if (set_defaults(g, model, config, err) < 0)
        return -1;
    g->body = fields_parse(body, n_body, VALUES_MAX + (size_t)model->context, example, err);
    if (!g->body || fields_read(&table, "", g->body, g, g->strict, &g->seen, err) < 0 ||
        check(g, err) < 0)
        return -1;
    g->params.mode = g->kind == PROMPT_CHAT ? TIMELINE_COMPARE : TIMELINE_APPEND;
    if (!g->stream)
        g->format = FORMAT_DOCUMENT;
    return 0;
}

void generate_drop_body(struct generate *g)
{
    for (uint32_t i = 0; g->joined && i < g->n_turns; i++)
        str_free(&g->joined[i]);
    free(g->joined);
    free(g->turns);
    json_decref(g->body);
    g->joined = NULL;
    g->turns = NULL;
    g->n_turns = 0;
    g->prompt = NULL;
    g->n_prompt = 0;
    g->body = NULL;
}

void generate_free(struct generate *g)
{
    for (uint32_t i = 0; i < g->params.n_stops; i++)
        free(g->params.stops[i]);
    free(g->params.stops);
    free(g->params.n_stop);
    free(g->params.sampling.biases);
    ids_free(&g->ids);
    fields_free(&g->seen);
    generate_drop_body(g);
    memset(g, 0, sizeof(*g));
}
