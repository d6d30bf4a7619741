/* [02 api] JSON -> struct by a table of fields. */
#include "server/fields.h"

#include "core/base/mem.h"
#include "core/base/nearest.h"
#include "core/base/utf8.h"
#include "server/check.h"
#include "server/json.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 60, WARNINGS_MAX = 16, HEADER_BYTES = 1024, PARAM_BYTES = 64 };

/* ---- what the errors show ---- */

struct shown {
    char s[SHOWN_BYTES + 8];
    size_t n;
};

/* Takes the beginning of a dump, then stops it: a value may be megabytes long. */
static int show_bytes(const char *bytes, size_t n, void *arg)
{
    struct shown *shown = arg;
    size_t room = SHOWN_BYTES - shown->n;
    size_t take = n < room ? n : room;
    memcpy(shown->s + shown->n, bytes, take);
    shown->n += take;
    return take < n ? -1 : 0;
}

static const char *show(const json_t *value, struct shown *shown)
{
    shown->n = 0;
    bool whole = json_dump_callback(value, show_bytes, shown,
                                    JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) == 0;
    shown->n = utf8_whole(shown->s, shown->n);
    snprintf(shown->s + shown->n, sizeof(shown->s) - shown->n, "%s", whole ? "" : "...");
    return shown->s;
}

int fields_refuse(const char *name, const json_t *value, const char *wanted, struct error *err)
{
    struct shown shown;
    return error_set_field(err, ERR_INVALID, name, "%s must be %s, got %s", name, wanted,
                           show(value, &shown));
}

/* ---- warnings ---- */

/* The text as a header's value can carry it. */
static void add_header(struct str *out, const char *text)
{
    if (out->n + strlen(text) + 2 > HEADER_BYTES)
        return;
    if (out->n)
        str_adds(out, "; ");
    for (const char *p = text; *p; p++)
        str_add(out, (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7F ? p : "?", 1);
}

void fields_warn(struct fields_seen *seen, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (++seen->n_warnings > WARNINGS_MAX)
        return;
    if (seen->n_warnings == WARNINGS_MAX)
        snprintf(text, sizeof(text), "more warnings than %d", WARNINGS_MAX - 1);
    text[utf8_whole(text, strlen(text))] = '\0';
    if (seen->warnings.n)
        str_add(&seen->warnings, ",", 1);
    json_add_text(&seen->warnings, text);
    add_header(&seen->header, text);
}

void fields_free(struct fields_seen *seen)
{
    str_free(&seen->warnings);
    str_free(&seen->header);
}

/* ---- values ---- */

static int refuse_range(const struct field *f, const char *name, const json_t *v, const char *what,
                        struct error *err)
{
    char wanted[96];
    snprintf(wanted, sizeof(wanted),
             f->kind == FIELD_ABOVE ? "%s above %.10g, at most %.10g" : "%s from %.10g to %.10g",
             what, f->min, f->max);
    return fields_refuse(name, v, wanted, err);
}

/* An integer, also where it is written as 5.0. */
static bool whole_number(const json_t *v, double *out)
{
    if (!json_is_number(v))
        return false;
    *out = json_number_value(v);
    return json_is_integer(v) || *out == floor(*out);
}

static int take_integer(const struct field *f, const char *name, const json_t *v, void *at,
                        struct error *err)
{
    double d;
    if (!whole_number(v, &d) || d < f->min || d > f->max)
        return refuse_range(f, name, v, "an integer", err);
    if (f->kind == FIELD_U32)
        *(uint32_t *)at = (uint32_t)d;
    else if (f->kind == FIELD_I32)
        *(int32_t *)at = (int32_t)d;
    else
        *(uint64_t *)at = json_is_integer(v) ? (uint64_t)json_integer_value(v) : (uint64_t)d;
    return 0;
}

static int take_number(const struct field *f, const char *name, const json_t *v, double *at,
                       struct error *err)
{
    double d = json_is_number(v) ? json_number_value(v) : NAN;
    bool above = f->kind != FIELD_ABOVE || d > f->min;
    if (!(d >= f->min && d <= f->max && above))
        return refuse_range(f, name, v, "a number", err);
    *at = d;
    return 0;
}

static int take_name(const struct field *f, const char *name, const json_t *v, char *at,
                     struct error *err)
{
    size_t n = json_is_string(v) ? json_string_length(v) : 0;
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    if (f->kind == FIELD_NAME && !check_name(s, n, FIELD_NAME_BYTES - 1, "._-"))
        return fields_refuse(name, v, "1 to 128 characters of A-Z a-z 0-9 . _ -", err);
    if (!json_is_string(v) || n >= FIELD_NAME_BYTES || memchr(s, '\0', n))
        return fields_refuse(name, v, "a string of at most 128 bytes", err);
    memcpy(at, s, n);
    at[n] = '\0';
    return 0;
}

/* jansson does not say that it failed for want of memory. */
static _Thread_local bool no_memory;

static void *allocate(size_t n)
{
    void *p = malloc(n);
    no_memory = no_memory || !p;
    return p;
}

static void watch_memory(void) { json_set_alloc_funcs(allocate, free); }

/* Numbers are equal by value, whatever their notation. */
static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) == 1;
}

/* Values by which a client says that it does not use a field. */
static bool is_neutral(const json_t *v, const char *standard)
{
    bool nothing = json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0);
    json_t *s = json_loads(standard, JSON_DECODE_ANY, NULL);
    ASSERT(s || no_memory);
    nothing = nothing || (s && equal(v, s));
    json_decref(s);
    return nothing;
}

static int take_value(const struct field *f, const char *name, const json_t *v, void *target,
                      struct error *err)
{
    void *at = (char *)target + f->offset;
    struct shown shown;
    switch (f->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(v))
            return fields_refuse(name, v, "true or false", err);
        *(bool *)at = json_is_true(v);
        return 0;
    case FIELD_U32:
    case FIELD_U64:
    case FIELD_I32:
        return take_integer(f, name, v, at, err);
    case FIELD_NUMBER:
    case FIELD_ABOVE:
        return take_number(f, name, v, at, err);
    case FIELD_NAME:
    case FIELD_WORD:
        return take_name(f, name, v, at, err);
    case FIELD_TAKE:
        return f->take(name, v, target, err);
    case FIELD_ANY:
        return json_is_string(v) ? 0 : fields_refuse(name, v, "a string", err);
    case FIELD_FOREIGN:
        return error_set_field(err, ERR_UNSUPPORTED, name, "%s: %s", name, f->of);
    case FIELD_NEUTRAL:
        no_memory = false;
        if (is_neutral(v, f->of))
            return 0;
        if (no_memory)
            return error_set(err, ERR_NO_MEMORY, NULL);
        return error_set_field(err, ERR_UNSUPPORTED, name,
                               "%s is not supported; leave it out or send %s, got %s", name, f->of,
                               show(v, &shown));
    case FIELD_ALIAS:
        break;
    }
    ASSERT(!"an alias of an alias");
    return -1;
}

/* ---- the table ---- */

static size_t find(const struct field_table *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->fields[i].name, name) == 0)
            return i;
    return t->n;
}

/* The row that row i stands for: itself, or what it is an alias of. */
static size_t field_of(const struct field_table *t, size_t i)
{
    size_t at = t->fields[i].kind == FIELD_ALIAS ? find(t, t->fields[i].of) : i;
    ASSERT(at < t->n);
    return at;
}

bool fields_has(const struct field_table *t, const struct fields_seen *seen, const char *name)
{
    size_t i = find(t, name);
    return i < t->n && seen->seen[i];
}

static int unknown(const struct field_table *t, const char *name, bool strict,
                   struct fields_seen *seen, struct error *err)
{
    const char *words[FIELDS_MAX];
    char text[256];
    if (seen->n_warnings >= WARNINGS_MAX) { /* not shown: a body has room for a million of them */
        seen->n_warnings++;
        return 0;
    }
    for (size_t i = 0; i < t->n; i++)
        words[i] = t->fields[i].name;
    const char *near = nearest_word(name, strlen(name), words, (uint32_t)t->n);
    if (near)
        snprintf(text, sizeof(text), "unknown field \"%.100s\", did you mean \"%s\"?", name, near);
    else
        snprintf(text, sizeof(text), "unknown field \"%.100s\"", name);
    if (strict)
        return error_set_field(err, ERR_INVALID, name, "%s", text);
    fields_warn(seen, "%s", text);
    if (!seen->unknown[0]) {
        snprintf(seen->unknown, sizeof(seen->unknown), "%.63s", name);
        seen->unknown[utf8_whole(seen->unknown, strlen(seen->unknown))] = '\0';
        snprintf(seen->near, sizeof(seen->near), "%s", near ? near : "");
    }
    return 0;
}

/* Another name of the same field was given before: the values must agree. */
static int agree(const struct field_table *t, const json_t *object, const char *name,
                 const struct field *f, struct error *err)
{
    const json_t *value = json_object_get(object, name);
    for (size_t i = 0; i < t->n; i++) {
        const struct field *g = &t->fields[i];
        bool same = g == f || (g->kind == FIELD_ALIAS && strcmp(g->of, f->name) == 0);
        const json_t *other = same ? json_object_get(object, g->name) : NULL;
        struct shown a, b;
        if (!other || json_is_null(other) || equal(other, value))
            continue;
        return error_set_field(err, ERR_INVALID, name,
                               "%s is %s and %s is %s: they mean the same, send one of them",
                               g->name, show(other, &a), name, show(value, &b));
    }
    return 0;
}

int fields_read(const struct field_table *t, const char *where, const json_t *object, void *target,
                bool strict, struct fields_seen *seen, struct error *err)
{
    const char *key;
    json_t *value;
    char name[PARAM_BYTES + 256];
    ASSERT(t->n <= FIELDS_MAX);
    json_object_foreach((json_t *)object, key, value) /* read only; the macro wants no const */
    {
        size_t i = find(t, key);
        snprintf(name, sizeof(name), "%s%.200s", where, key);
        if (i == t->n) {
            if (unknown(t, name, strict, seen, err) < 0)
                return -1;
            continue;
        }
        if (json_is_null(value))
            continue;
        size_t at = field_of(t, i);
        if (seen->seen[at] && agree(t, object, key, &t->fields[at], err) < 0)
            return -1;
        seen->seen[at] = true;
        if (take_value(&t->fields[at], name, value, target, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the body ---- */

/* jansson has no integers beyond 63 bits and stops at one; read as a number it is refused by its
 * field, by name. */
static json_t *load(const char *text, size_t n, json_error_t *fault)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_memory);
    no_memory = false;
    json_t *root = json_loadb(text, n, flags, fault);
    if (!root && json_error_code(fault) == json_error_numeric_overflow)
        root = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, fault);
    return root;
}

/* How many values the text has at least, if it is JSON: one behind each comma and opening bracket. A
 * value of two bytes takes a hundred in memory. */
static size_t count_values(const char *text, size_t n)
{
    size_t count = 1;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\';
        else
            count += c == ',' || c == '[' || c == '{';
    }
    return count;
}

json_t *fields_parse(const char *text, size_t n, size_t n_values, const char *example,
                     struct error *err)
{
    json_error_t fault;
    size_t count = count_values(text, n);
    if (count > n_values) {
        error_set(err, ERR_INVALID, "the body has %zu values, at most %zu are taken", count,
                  n_values);
        return NULL;
    }
    json_t *root = load(text, n, &fault);
    if (!root) {
        if (no_memory)
            error_set(err, ERR_NO_MEMORY, NULL);
        else if (strspn(text, " \t\r\n") >= n)
            error_set(err, ERR_INVALID, "the body is empty; an example: %s", example);
        else
            error_set(err, ERR_INVALID,
                      "the body is not a JSON object: %s, line %d column %d; "
                      "an example: %s",
                      fault.text, fault.line, fault.column, example);
        return NULL;
    }
    if (json_is_object(root))
        return root;
    error_set(err, ERR_INVALID, "the body is an array, not an object; an example: %s", example);
    json_decref(root);
    return NULL;
}
