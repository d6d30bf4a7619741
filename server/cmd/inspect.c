/* [base] `attend inspect`: a model file's keys, shapes, sizes and types, and whether we can
 * serve it. */
#include "core/base/utf8.h"
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/flags.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_SHOWN = 8, TEXT_SHOWN = 200 };

/* Bytes of K and V for one token in F16: 2 x layers x KV heads x head size x 2. */
static uint64_t kv_token_bytes(const struct tool_model *m)
{
    return 2ull * m->n_layers * m->n_kv_heads * m->head_dim * 2;
}

/* ---- values of keys, as JSON: also what people see, since it escapes control characters ---- */

/* Strings of a file are hostile: what is no UTF-8 becomes U+FFFD. Long ones end in dots. */
static void add_clean(struct str *out, const char *s, size_t n, size_t limit)
{
    size_t i = 0;
    while (i < n && i < limit) {
        uint32_t cp;
        int k = utf8_decode(s + i, n - i, &cp);
        if (k > 0)
            str_add(out, s + i, (size_t)k);
        else
            str_adds(out, UTF8_REPLACEMENT);
        i += k > 0 ? (size_t)k : 1;
    }
    if (i < n)
        str_adds(out, "...");
}

static json_t *json_text(const char *s, size_t n)
{
    struct str out = {0};
    add_clean(&out, s, n, TEXT_SHOWN);
    json_t *v = json_stringn(str_text(&out), out.n);
    str_free(&out);
    return v;
}

/* JSON has no infinity and no NaN. */
static json_t *json_float(double f)
{
    char word[32];
    if (isfinite(f))
        return json_real(f);
    snprintf(word, sizeof(word), "%g", f);
    return json_string(word);
}

static json_t *json_item(const struct meta *m, uint64_t i)
{
    const char *s;
    size_t n;
    switch (m->of) {
    case META_STRING:
        meta_item_str(m, i, &s, &n);
        return json_text(s, n);
    case META_FLOAT:
        return json_float(meta_item_float(m, i));
    case META_BOOL:
        return json_boolean(meta_item_int(m, i) != 0);
    default:
        return json_integer(meta_item_int(m, i));
    }
}

/* A short array whole; of a long one {"n", "of", "first": [...]}. */
static json_t *json_array_of(const struct meta *m)
{
    static const char *const names[] = {
        [META_UINT] = "uint", [META_INT] = "int",       [META_FLOAT] = "float",
        [META_BOOL] = "bool", [META_STRING] = "string", [META_ARRAY] = "array"};
    json_t *items = json_array();
    bool whole = m->n_items <= 2ull * ITEMS_SHOWN;
    for (uint64_t i = 0; i < m->n_items && (whole || i < ITEMS_SHOWN); i++)
        json_array_append_new(items, json_item(m, i));
    return whole ? items
                 : json_pack("{s:I, s:s, s:o}", "n", (json_int_t)m->n_items, "of", names[m->of],
                             "first", items);
}

static json_t *json_value(const struct meta *m)
{
    switch (m->type) {
    case META_UINT:
        return m->u <= INT64_MAX ? json_integer((json_int_t)m->u) : json_real((double)m->u);
    case META_INT:
        return json_integer(m->i);
    case META_FLOAT:
        return json_float(m->f);
    case META_BOOL:
        return json_boolean(m->b);
    case META_STRING:
        return json_text(m->str.s, m->str.n);
    case META_ARRAY:
        return json_array_of(m);
    }
    return NULL;
}

/* ---- what is known of the model ---- */

struct view {
    struct tool_model m;
    struct text *text; /* NULL: text_error says why */
    struct error text_error;
    bool tensors; /* show each */
};

/* NULL: it can be served. */
static const char *why_not(const struct view *v)
{
    if (!v->m.known)
        return v->m.why_unknown.text;
    if (!v->text)
        return v->text_error.text;
    return checkpoint_n_tensors(v->m.checkpoint) ? NULL : "a vocabulary without tensors";
}

static const char *tokenizer(const struct view *v)
{
    return v->text && text_has_tokenizer(v->text) ? text_tokenizer_name(v->text) : "";
}

static const char *type_name(const struct tensor *t)
{
    return quant_gguf_name(quant_table[t->type].gguf_id);
}

/* ---- --json ---- */

static json_t *json_tensors(const struct checkpoint *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < checkpoint_n_tensors(c); i++) {
        const struct tensor *t = checkpoint_tensor(c, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_array_append_new(
            list, json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(t->name, strlen(t->name)),
                            "type", type_name(t), "shape", shape, "bytes", (json_int_t)t->n_bytes));
    }
    return list;
}

static json_t *json_keys(const struct checkpoint *c)
{
    json_t *keys = json_object();
    for (uint32_t i = 0; i < checkpoint_n_meta(c); i++) {
        const struct meta *m = checkpoint_meta(c, i);
        struct str name = {0};
        add_clean(&name, m->key, strlen(m->key), TEXT_SHOWN);
        json_object_set_new(keys, str_text(&name), json_value(m));
        str_free(&name);
    }
    return keys;
}

static void set_uint(json_t *o, const char *name, uint64_t value)
{
    json_object_set_new(o, name, json_integer((json_int_t)value));
}

static json_t *json_model(const struct view *v)
{
    const struct tool_model *m = &v->m;
    const struct checkpoint *c = m->checkpoint;
    const char *path = checkpoint_path(c), *why = why_not(v);
    json_t *o = json_object();
    json_object_set_new(o, "path", json_text(path, strlen(path)));
    json_object_set_new(o, "format", json_string(checkpoint_format(c)));
    set_uint(o, "file_bytes", checkpoint_bytes(c));
    json_object_set_new(o, "architecture", json_text(m->arch, strlen(m->arch)));
    json_object_set_new(o, "supported", json_boolean(!why));
    json_object_set_new(o, "why_not", why ? json_text(why, strlen(why)) : json_null());
    set_uint(o, "parameters", m->n_params);
    json_object_set_new(o, "types", json_string(m->types));
    if (m->known) {
        set_uint(o, "layers", m->n_layers);
        set_uint(o, "dim", m->dim);
        set_uint(o, "heads", m->n_heads);
        set_uint(o, "kv_heads", m->n_kv_heads);
        set_uint(o, "head_dim", m->head_dim);
        set_uint(o, "ff_dim", m->ff_dim);
        set_uint(o, "vocabulary", m->n_vocab);
        set_uint(o, "context", m->n_ctx);
        set_uint(o, "kv_token_bytes_f16", kv_token_bytes(m));
    }
    json_object_set_new(o, "tokenizer", json_string(tokenizer(v)));
    json_object_set_new(o, "chat", json_boolean(v->text && text_has_chat(v->text)));
    json_object_set_new(o, "keys", json_keys(c));
    set_uint(o, "n_tensors", checkpoint_n_tensors(c));
    if (v->tensors)
        json_object_set_new(o, "tensors", json_tensors(c));
    return o;
}

static int print_json(const struct view *v, struct error *err)
{
    json_t *o = json_model(v);
    char *text = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!text)
        return error_set(err, ERR_NO_MEMORY, "no memory for the description");
    puts(text);
    free(text);
    return 0;
}

/* ---- for people ---- */

static void print_value(const char *name, json_t *value)
{
    char *text =
        value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    struct str shown = {0};
    if (text)
        add_clean(&shown, text, strlen(text), 96);
    printf("  %-44s %s\n", name, str_text(&shown));
    str_free(&shown);
    free(text);
    json_decref(value);
}

static void print_keys(const struct checkpoint *c)
{
    printf("\n%u keys\n", checkpoint_n_meta(c));
    for (uint32_t i = 0; i < checkpoint_n_meta(c); i++) {
        const struct meta *m = checkpoint_meta(c, i);
        json_t *key = json_text(m->key, strlen(m->key));
        print_value(key ? json_string_value(key) : "", json_value(m));
        json_decref(key);
    }
}

static void print_tensors(const struct checkpoint *c)
{
    printf("\n%u tensors\n", checkpoint_n_tensors(c));
    for (uint32_t i = 0; i < checkpoint_n_tensors(c); i++) {
        const struct tensor *t = checkpoint_tensor(c, i);
        char shape[96] = "";
        size_t n = 0;
        for (uint32_t d = 0; d < t->n_dims && n < sizeof(shape); d++)
            n += (size_t)snprintf(shape + n, sizeof(shape) - n, "%s%" PRIu64, d ? ", " : "",
                                  t->dims[d]);
        printf("  %-44s %-6s [%s] %zu bytes\n", t->name, type_name(t), shape, t->n_bytes);
    }
}

static void print_shapes(const struct tool_model *m)
{
    uint64_t kv = kv_token_bytes(m);
    printf("  %-14s %u layers of dim %u, %u heads (%u KV) of %u, MLP %u\n", "shape", m->n_layers,
           m->dim, m->n_heads, m->n_kv_heads, m->head_dim, m->ff_dim);
    printf("  %-14s %u tokens\n", "vocabulary", m->n_vocab);
    printf("  %-14s %u tokens\n", "context", m->n_ctx);
    printf("  %-14s %" PRIu64 " bytes a token in f16, %.1f MB for a whole context\n", "KV cache",
           kv, (double)kv * m->n_ctx / 1e6);
}

static int print_people(const struct view *v)
{
    const struct tool_model *m = &v->m;
    const struct checkpoint *c = m->checkpoint;
    const char *why = why_not(v);
    printf("%s\n", checkpoint_path(c));
    printf("  %-14s %s, %.1f MB\n", "file", checkpoint_format(c),
           (double)checkpoint_bytes(c) / 1e6);
    struct str arch = {0};
    add_clean(&arch, m->arch, strlen(m->arch), 60);
    printf("  %-14s %s\n", "architecture", str_text(&arch));
    str_free(&arch);
    printf("  %-14s %.2f M in %u tensors: %s\n", "parameters", (double)m->n_params / 1e6,
           checkpoint_n_tensors(c), m->types);
    if (m->known)
        print_shapes(m);
    printf("  %-14s %s\n", "tokenizer", tokenizer(v)[0] ? tokenizer(v) : "none");
    printf("  %-14s %s\n", "chat form", v->text && text_has_chat(v->text) ? "yes" : "no");
    printf("  %-14s %s%s\n", "supported", why ? "no: " : "yes", why ? why : "");
    print_keys(c);
    if (v->tensors)
        print_tensors(c);
    return 0;
}

int cmd_inspect(int argc, char **argv, struct error *err)
{
    struct view v = {0};
    bool json = false;
    const struct flag flags[] = {
        {"json", 0, FLAG_SWITCH, NULL, 0, 0, &json, "one JSON document"},
        {"tensors", 0, FLAG_SWITCH, NULL, 0, 0, &v.tensors, "each tensor too"},
    };
    const struct flag_set set = {
        .command = "inspect", .flags = flags, .n_flags = 2, .min_words = 1, .max_words = 1};
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (tool_model_open(argv[0], &v.m, err) != 0)
        return -1;
    v.text = tool_text(argv[0], &v.text_error);
    rc = json ? print_json(&v, err) : print_people(&v);
    text_close(v.text);
    tool_model_close(&v.m);
    return rc;
}
