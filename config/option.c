/* [config] the table of settings, and how one value is read, checked and written. */
#include "config/option.h"

#include "core/base/nearest.h"
#include "core/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ROW(n, k) .name = #n, .kind = OPTION_##k, .offset = offsetof(struct config, n)
#define TEXT(n, value, about)                                                                      \
    {                                                                                              \
        ROW(n, TEXT), .text = (value), .help = (about)                                             \
    }                                                                                              \
    ,
#define CHOICE(n, value, list, about)                                                              \
    {                                                                                              \
        ROW(n, CHOICE), .text = (value), .choices = (list), .help = (about)                        \
    }                                                                                              \
    ,
#define SWITCH(n, value, about)                                                                    \
    {                                                                                              \
        ROW(n, SWITCH), .number = (value), .help = (about)                                         \
    }                                                                                              \
    ,
#define UINT(n, value, lo, hi, of, about)                                                          \
    {                                                                                              \
        ROW(n, UINT), .number = (value), .min = (lo), .max = (hi), .unit = (of), .help = (about)   \
    }                                                                                              \
    ,
#define SIZE(n, value, lo, hi, about)                                                              \
    {                                                                                              \
        ROW(n, SIZE), .number = (value), .min = (lo), .max = (hi), .help = (about)                 \
    }                                                                                              \
    ,
const struct option option_table[] = {
#include "config/option.def"
};
#undef TEXT
#undef CHOICE
#undef SWITCH
#undef UINT
#undef SIZE

const uint32_t option_count = sizeof(option_table) / sizeof(option_table[0]);

static void *member(struct config *c, const struct option *o) { return (char *)c + o->offset; }

static const void *value_of(const struct config *c, const struct option *o)
{
    return (const char *)c + o->offset;
}

static int alike(char ch) { return ch == '-' || ch == '.' ? '_' : ch; }

const struct option *option_find(const char *name, size_t n)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const char *known = option_table[i].name;
        size_t k = 0;
        while (k < n && known[k] && alike(name[k]) == alike(known[k]))
            k++;
        if (k == n && !known[k])
            return &option_table[i];
    }
    return NULL;
}

const char *option_quote(const char *value, char out[72])
{
    size_t n = 0;
    for (const char *p = value; *p && n < 60; p++)
        out[n++] = *p;
    n = utf8_whole(out, n);
    for (size_t i = 0; !utf8_valid(out, n) && i < n; i++)
        if ((unsigned char)out[i] >= 0x80)
            out[i] = '?';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)out[i] < ' ' || out[i] == 0x7F)
            out[i] = '?';
    out[n] = '\0';
    if (value[n])
        memcpy(out + n, "...", 4);
    return out;
}

/* ---- numbers ---- */

/* All digits of s up to *end; false where there are none or they overflow. */
static bool digits(const char *s, uint64_t *value, const char **end)
{
    uint64_t v = 0;
    const char *p = s;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    *end = p;
    return p > s;
}

static const char units[] = "KMGT";

/* 512, 512K, 8M, 2G, 1T, with or without iB: powers of 1024. */
static bool read_size(const char *s, uint64_t *value)
{
    const char *p, *unit;
    if (!digits(s, value, &p))
        return false;
    if (!*p)
        return true;
    unit = strchr(units, *p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    if (!unit || (p[1] && strcasecmp(p + 1, "iB") != 0))
        return false;
    int shift = 10 * (int)(unit - units + 1);
    if (*value > UINT64_MAX >> shift)
        return false;
    *value <<= shift;
    return true;
}

static void show_size(uint64_t value, struct str *out)
{
    int u = -1;
    while (value && value % 1024 == 0 && u < 3) {
        value /= 1024;
        u++;
    }
    str_addf(out, "%" PRIu64, value);
    if (u >= 0)
        str_add(out, units + u, 1);
}

/* ---- switches and choices ---- */

static const struct {
    const char *word;
    bool value;
} switch_words[] = {{"yes", true}, {"no", false},  {"true", true}, {"false", false},
                    {"on", true},  {"off", false}, {"1", true},    {"0", false}};

static bool read_switch(const char *s, bool *value)
{
    for (size_t i = 0; i < sizeof(switch_words) / sizeof(switch_words[0]); i++)
        if (strcasecmp(s, switch_words[i].word) == 0) {
            *value = switch_words[i].value;
            return true;
        }
    return false;
}

bool config_is_switch_value(const char *word)
{
    bool value;
    return !(word[0] >= '0' && word[0] <= '9') && read_switch(word, &value);
}

/* Splits "a|b|c" into words (copies in store); returns how many. */
enum { CHOICES_MAX = 8 };
static uint32_t choices_of(const struct option *o, char store[128], const char *words[CHOICES_MAX])
{
    uint32_t n = 0;
    char *rest = NULL;
    size_t bytes = strlen(o->choices);
    if (bytes >= 128)
        bytes = 127;
    memcpy(store, o->choices, bytes);
    store[bytes] = '\0';
    for (char *w = strtok_r(store, "|", &rest); w && n < CHOICES_MAX;
         w = strtok_r(NULL, "|", &rest))
        words[n++] = w;
    return n;
}

void option_range(const struct option *o, struct str *out)
{
    char store[128];
    const char *words[CHOICES_MAX];
    uint32_t n;
    switch (o->kind) {
    case OPTION_TEXT:
        break;
    case OPTION_CHOICE:
        n = choices_of(o, store, words);
        for (uint32_t i = 0; i < n; i++)
            str_addf(out, "%s%s", i ? ", " : "", words[i]);
        break;
    case OPTION_SWITCH:
        str_adds(out, "yes or no");
        break;
    case OPTION_UINT:
        str_addf(out, "%" PRIu64 " to %" PRIu64 "%s%s", o->min, o->max, o->unit[0] ? " " : "",
                 o->unit);
        break;
    case OPTION_SIZE:
        show_size(o->min, out);
        str_adds(out, " to ");
        show_size(o->max, out);
        break;
    }
}

/* ---- reading ---- */

static int refuse(const struct option *o, const char *value, const char *where, struct error *err)
{
    struct str range = {0};
    char store[128];
    const char *words[CHOICES_MAX], *near = NULL;
    option_range(o, &range);
    if (o->kind == OPTION_CHOICE)
        near = nearest_word(value, strlen(value), words, choices_of(o, store, words));
    error_set_field(err, ERR_USAGE, o->name, "%s: must be %s%s%s%s%s", where,
                    o->kind == OPTION_CHOICE ? "one of " : "", str_text(&range),
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    str_free(&range);
    return -1;
}

static int set_text(struct config *c, const struct option *o, const char *value, const char *where,
                    struct error *err)
{
    char **to = member(c, o);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7F)
            return error_set_field(err, ERR_USAGE, o->name, "%s: has a control character", where);
    if (!utf8_valid(value, strlen(value)))
        return error_set_field(err, ERR_USAGE, o->name, "%s: is not valid UTF-8", where);
    char *copy = strdup(value);
    if (!copy)
        return error_set(err, ERR_NO_MEMORY, "no memory for the settings");
    free(*to);
    *to = copy;
    return 0;
}

static int set_choice(struct config *c, const struct option *o, const char *value,
                      const char *where, struct error *err)
{
    char store[128];
    const char *words[CHOICES_MAX];
    uint32_t n = choices_of(o, store, words);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(value, words[i]) == 0)
            return set_text(c, o, value, where, err);
    return refuse(o, value, where, err);
}

static int set_number(struct config *c, const struct option *o, const char *value,
                      const char *where, struct error *err)
{
    uint64_t v;
    const char *end;
    bool ok = o->kind == OPTION_SIZE ? read_size(value, &v) : digits(value, &v, &end) && !*end;
    if (!ok || v < o->min || v > o->max)
        return refuse(o, value, where, err);
    if (strcmp(o->name, "page_tokens") == 0 && v % 16)
        return error_set_field(err, ERR_USAGE, o->name, "%s: must be a multiple of 16", where);
    *(uint64_t *)member(c, o) = v;
    return 0;
}

int option_set(struct config *c, const struct option *o, const char *value, const char *where,
               struct error *err)
{
    switch (o->kind) {
    case OPTION_TEXT:
        return set_text(c, o, value, where, err);
    case OPTION_CHOICE:
        return set_choice(c, o, value, where, err);
    case OPTION_SWITCH:
        return read_switch(value, member(c, o)) ? 0 : refuse(o, value, where, err);
    default:
        return set_number(c, o, value, where, err);
    }
}

int option_reset(struct config *c, const struct option *o, struct error *err)
{
    if (o->kind == OPTION_TEXT || o->kind == OPTION_CHOICE)
        return option_set(c, o, o->text, o->name, err);
    if (o->kind == OPTION_SWITCH)
        *(bool *)member(c, o) = o->number != 0;
    else
        *(uint64_t *)member(c, o) = o->number;
    return 0;
}

void option_free(struct config *c, const struct option *o)
{
    if (o->kind != OPTION_TEXT && o->kind != OPTION_CHOICE)
        return;
    char **text = member(c, o);
    free(*text);
    *text = NULL;
}

/* ---- writing ---- */

/* A value of a file needs quotes where it is empty, has blanks at its ends, begins with a quote, or
 * has what looks like a comment. */
static void show_text(const char *s, struct str *out)
{
    size_t n = strlen(s);
    if (n && s[0] != '"' && s[0] != '#' && s[0] != ' ' && s[n - 1] != ' ' && !strstr(s, " #")) {
        str_adds(out, s);
        return;
    }
    str_adds(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            str_adds(out, "\\");
        str_add(out, s, 1);
    }
    str_adds(out, "\"");
}

void option_show(const struct option *o, const struct config *c, struct str *out)
{
    uint64_t number = o->number;
    const char *text = o->text;
    if (c && (o->kind == OPTION_TEXT || o->kind == OPTION_CHOICE))
        text = *(char *const *)value_of(c, o);
    else if (c)
        number = o->kind == OPTION_SWITCH ? *(const bool *)value_of(c, o)
                                          : *(const uint64_t *)value_of(c, o);
    switch (o->kind) {
    case OPTION_TEXT:
    case OPTION_CHOICE:
        show_text(text ? text : "", out);
        break;
    case OPTION_SWITCH:
        str_adds(out, number ? "yes" : "no");
        break;
    case OPTION_UINT:
        str_addf(out, "%" PRIu64, number);
        break;
    case OPTION_SIZE:
        show_size(number, out);
        break;
    }
}
