/* [base] flags of subcommands: own ones from a table, settings through config/, --help from
 * both. */
#include "server/flags.h"

#include "core/base/mem.h"
#include "core/base/nearest.h"
#include "server/cmd/command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_SETTINGS                                                                             \
    "threads", "context", "kv_type", "kv_memory", "page_tokens", "prefill_chunk", "activations",   \
        "blas"
const char *const flags_model[] = {MODEL_SETTINGS, NULL};
const char *const flags_engine[] = {MODEL_SETTINGS, "step_ms", "speculation", NULL};

/* ---- values ---- */

int flags_number(const char *what, const char *s, uint64_t min, uint64_t max, uint64_t *value,
                 struct error *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (s[0] < '0' || s[0] > '9' || *end || errno || v < min || v > max)
        return error_set(err, ERR_USAGE, "%s %.40s: must be %llu to %llu", what, s,
                         (unsigned long long)min, (unsigned long long)max);
    *value = v;
    return 0;
}

static int read_real(const char *what, const char *s, const struct flag *f, struct error *err)
{
    char *end;
    double v = strtod(s, &end);
    bool number = (s[0] >= '0' && s[0] <= '9') || s[0] == '-' || s[0] == '.';
    if (!number || *end || !isfinite(v) || v < f->min || v > f->max)
        return error_set(err, ERR_USAGE, "%s %.40s: must be %g to %g", what, s, f->min, f->max);
    *(double *)f->to = v;
    return 0;
}

static int read_list(const char *what, const char *s, const struct flag *f, struct error *err)
{
    struct flag_list list = {0};
    uint32_t n = 1;
    for (const char *p = s; *p; p++)
        n += *p == ',';
    list.item = mem_new(n, sizeof(*list.item));
    if (!list.item)
        return error_set(err, ERR_NO_MEMORY, "no memory for %u numbers", n);
    while (list.n < n) {
        char one[24];
        uint64_t v = 0;
        size_t len = strcspn(s, ",");
        snprintf(one, sizeof(one), "%.*s", (int)(len < 23 ? len : 23), s);
        if (flags_number(what, one, (uint64_t)f->min, (uint64_t)f->max, &v, err) != 0) {
            flags_list_free(&list);
            return -1;
        }
        list.item[list.n++] = (uint32_t)v;
        s += len + 1;
    }
    flags_list_free(f->to);
    *(struct flag_list *)f->to = list;
    return 0;
}

void flags_list_free(struct flag_list *list)
{
    free(list->item);
    *list = (struct flag_list){0};
}

static int read_value(const struct flag *f, const char *what, const char *value, struct error *err)
{
    switch (f->kind) {
    case FLAG_SWITCH:
        *(bool *)f->to = true;
        return 0;
    case FLAG_TEXT:
        *(const char **)f->to = value;
        return 0;
    case FLAG_UINT:
        return flags_number(what, value, (uint64_t)f->min, (uint64_t)f->max, f->to, err);
    case FLAG_REAL:
        return read_real(what, value, f, err);
    case FLAG_LIST:
        return read_list(what, value, f, err);
    }
    return -1;
}

/* ---- names ---- */

static int alike(char c) { return c == '_' || c == '.' ? '-' : c; }

static bool same_name(const char *a, const char *known, size_t n)
{
    size_t i = 0;
    for (; i < n && known[i]; i++) {
        if (alike(a[i]) != alike(known[i]))
            return false;
    }
    return i == n && !known[i];
}

static const struct flag *find(const struct flag_set *set, const char *arg)
{
    for (uint32_t i = 0; i < set->n_flags; i++) {
        const struct flag *f = &set->flags[i];
        if (arg[1] == '-' ? same_name(arg + 2, f->name, strcspn(arg + 2, "="))
                          : f->letter && arg[1] == f->letter && !arg[2])
            return f;
    }
    return NULL;
}

/* What kind of a setting the flag is, if this command takes it. */
static enum config_kind setting(const struct flag_set *set, const char *arg)
{
    if (!set->settings || arg[1] != '-')
        return CONFIG_UNKNOWN;
    const char *name = arg + 2;
    size_t n = strcspn(name, "=");
    enum config_kind kind = config_kind(name, n);
    size_t skip = kind == CONFIG_NO_SWITCH ? 3 : 0;
    if (same_name(name, "config", n))
        return CONFIG_VALUE;
    for (uint32_t i = 0; set->settings[i]; i++)
        if (same_name(name + skip, set->settings[i], n - skip))
            return kind;
    return CONFIG_UNKNOWN;
}

static int unknown(const struct flag_set *set, const char *arg, struct error *err)
{
    const char *names[128];
    uint32_t n = 0;
    for (uint32_t i = 0; i < set->n_flags && n < 128; i++)
        names[n++] = set->flags[i].name;
    for (uint32_t i = 0; set->settings && set->settings[i] && n < 128; i++)
        names[n++] = set->settings[i];
    const char *name = arg + strspn(arg, "-"), *near;
    near = nearest_word(name, strcspn(name, "="), names, n);
    char dashed[64];
    snprintf(dashed, sizeof(dashed), "%s", near ? near : "");
    for (char *p = dashed; *p; p++)
        if (*p == '_')
            *p = '-';
    return error_set(err, ERR_USAGE, "%s: unknown flag %.60s%s%s%s", set->command, arg,
                     near ? ", did you mean --" : "", dashed, near ? "?" : "");
}

/* ---- help ---- */

static const struct command *row(const char *name)
{
    for (unsigned i = 0; i < command_count; i++)
        if (strcmp(command_table[i].name, name) == 0)
            return &command_table[i];
    return NULL;
}

static void help_flag(const struct flag *f, struct str *out)
{
    char left[64], letter[8] = "";
    if (f->letter)
        snprintf(letter, sizeof(letter), "-%c, ", f->letter);
    snprintf(left, sizeof(left), "%s--%s%s%s", letter, f->name, f->arg ? " " : "",
             f->arg ? f->arg : "");
    str_addf(out, "  %-28s %s\n", left, f->help);
}

static int help(const struct flag_set *set, struct error *err)
{
    const struct command *c = row(set->command);
    struct str out = {0};
    str_addf(&out, "attend %s %s\n%s\n", set->command, c ? c->usage : "", c ? c->summary : "");
    if (set->n_flags)
        str_adds(&out, "\n");
    for (uint32_t i = 0; i < set->n_flags; i++)
        help_flag(&set->flags[i], &out);
    if (set->settings) {
        str_addf(&out,
                 "\nSettings (also ATTEND_NAME in the environment, or a line of the file):\n"
                 "  %-28s %s\n",
                 "--config FILE", "the file [/etc/attend/attend.conf if it exists]");
        for (uint32_t i = 0; set->settings[i]; i++)
            config_help_of(set->settings[i], &out);
    }
    if (set->more)
        str_addf(&out, "\n%s", set->more);
    fwrite(str_text(&out), 1, out.n, stdout);
    bool failed = out.failed;
    str_free(&out);
    return failed ? error_set(err, ERR_NO_MEMORY, "no memory for the help") : 1;
}

/* ---- the walk ---- */

/* Own flag at argv[*i], and its value. */
static int take_own(const struct flag *f, int argc, char **argv, int *i, struct error *err)
{
    const char *arg = argv[*i], *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    char what[64];
    snprintf(what, sizeof(what), "%.*s", (int)strcspn(arg, "="), arg);
    if (f->kind == FLAG_SWITCH)
        return equals ? error_set(err, ERR_USAGE, "%s takes no value", what)
                      : read_value(f, what, NULL, err);
    if (equals)
        return read_value(f, what, equals + 1, err);
    if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
        return error_set(err, ERR_USAGE, "%s needs a value", what);
    return read_value(f, what, argv[++*i], err);
}

static int check_words(const struct flag_set *set, char **words, int n, struct error *err)
{
    const struct command *c = row(set->command);
    if (n < set->min_words)
        return error_set(err, ERR_USAGE, "usage: attend %s %s", set->command, c ? c->usage : "");
    if (n > set->max_words)
        return error_set(err, ERR_USAGE, "%s: one word too many: \"%.60s\"; usage: attend %s %s",
                         set->command, words[set->max_words], set->command, c ? c->usage : "");
    return 0;
}

/* Takes own flags out of argv; leaves in rest what the settings' reader is to see. */
static int walk(const struct flag_set *set, int argc, char **argv, char **rest, int *n_rest,
                struct error *err)
{
    *n_rest = 0;
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (strcmp(arg, "--") == 0) {
            while (i < argc)
                rest[(*n_rest)++] = argv[i++];
            return 0;
        }
        if (arg[0] != '-' || !arg[1]) {
            rest[(*n_rest)++] = arg;
            continue;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
            return help(set, err);
        const struct flag *own = find(set, arg);
        if (own) {
            if (take_own(own, argc, argv, &i, err) != 0)
                return -1;
            continue;
        }
        enum config_kind kind = setting(set, arg);
        if (kind == CONFIG_UNKNOWN)
            return unknown(set, arg, err);
        rest[(*n_rest)++] = arg;
        bool next = i + 1 < argc && !strchr(arg, '=');
        if (next && (kind == CONFIG_VALUE ||
                     (kind == CONFIG_SWITCH && config_is_switch_value(argv[i + 1]))))
            rest[(*n_rest)++] = argv[++i];
    }
    return 0;
}

/* The words of rest, for a command that takes no settings. */
static void keep_words(int n_rest, char **rest, char **words, int *n_words)
{
    bool flags_end = false;
    *n_words = 0;
    for (int i = 0; i < n_rest; i++) {
        if (!flags_end && strcmp(rest[i], "--") == 0)
            flags_end = true;
        else
            words[(*n_words)++] = rest[i];
    }
}

int flags_read(const struct flag_set *set, int argc, char **argv, int *n_words, struct error *err)
{
    int n_rest = 0, rc;
    char **rest = mem_new((size_t)argc + 1, sizeof(*rest));
    *n_words = 0;
    if (!rest)
        return error_set(err, ERR_NO_MEMORY, "no memory for the command line");
    rc = walk(set, argc, argv, rest, &n_rest, err);
    if (rc == 0 && set->config)
        rc = config_load(set->config, n_rest, rest, argv, n_words, err);
    else if (rc == 0)
        keep_words(n_rest, rest, argv, n_words);
    if (rc == 0)
        rc = check_words(set, argv, *n_words, err);
    free(rest);
    return rc;
}
