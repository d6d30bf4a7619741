/* [config] the four sources of settings: defaults < file < environment < flags. */
#include "config/config.h"

#include "config/option.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/nearest.h"
#include "core/base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char default_path[] = "/etc/attend/attend.conf";
enum { FILE_MAX = 1 << 20, WHERE_MAX = 256 };

const char *const *config_names(uint32_t *n)
{
#define TEXT(name, value, help)                 #name,
#define CHOICE(name, value, choices, help)      #name,
#define SWITCH(name, value, help)               #name,
#define UINT(name, value, min, max, unit, help) #name,
#define SIZE(name, value, min, max, help)       #name,
    static const char *const names[] = {
#include "config/option.def"
        NULL};
#undef TEXT
#undef CHOICE
#undef SWITCH
#undef UINT
#undef SIZE
    *n = sizeof(names) / sizeof(names[0]) - 1;
    return names;
}

static const char *near_name(const char *name, size_t n)
{
    uint32_t n_names;
    const char *const *names = config_names(&n_names);
    return nearest_word(name, n, names, n_names);
}

/* ---- the file ---- */

struct source_file {
    const char *path;
    uint32_t line;
    uint32_t *seen; /* [option_count] the line that set it, or 0 */
};

static char *skip_blanks(char *s) { return s + strspn(s, " \t"); }

/* `"a \"b\""`: unquotes in place; only a comment may follow. NULL and *why where it is
 * malformed. */
static char *unquote(char *s, const char **why)
{
    char *from = s + 1, *to = s;
    while (*from && *from != '"') {
        if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
            from++;
        *to++ = *from++;
    }
    *why = "a quote that does not end";
    if (!*from)
        return NULL;
    from = skip_blanks(from + 1);
    *why = "text behind the closing quote";
    if (*from && *from != '#')
        return NULL;
    *to = '\0';
    return s;
}

/* The value without blanks around it and without a comment (a # at its start or after a blank). */
static char *bare_value(char *s)
{
    for (char *p = s; *p; p++)
        if (*p == '#' && (p == s || p[-1] == ' ' || p[-1] == '\t')) {
            *p = '\0';
            break;
        }
    size_t n = strlen(s);
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        s[--n] = '\0';
    return s;
}

static int unknown_name(const struct source_file *f, const char *name, struct error *err)
{
    char quoted[72];
    const char *near = near_name(name, strlen(name));
    return error_set_field(err, ERR_USAGE, "config", "%s:%u: unknown setting \"%s\"%s%s%s", f->path,
                           f->line, option_quote(name, quoted), near ? ", did you mean " : "",
                           near ? near : "", near ? "?" : "");
}

static int read_line(struct config *c, struct source_file *f, char *line, struct error *err)
{
    char where[WHERE_MAX], quoted[72];
    const char *why = "";
    char *name = skip_blanks(line), *value = strchr(name, '=');
    if (!*name || *name == '#')
        return 0;
    if (!value)
        return error_set_field(err, ERR_USAGE, "config", "%s:%u: \"%s\" is not `name = value`",
                               f->path, f->line, option_quote(name, quoted));
    *value = '\0';
    value = skip_blanks(value + 1);
    bare_value(name);
    const struct option *o = option_find(name, strlen(name));
    if (!o)
        return unknown_name(f, name, err);
    uint32_t *seen = &f->seen[o - option_table];
    if (*seen)
        return error_set_field(err, ERR_USAGE, o->name, "%s:%u: %s was already set in line %u",
                               f->path, f->line, o->name, *seen);
    *seen = f->line;
    value = *value == '"' ? unquote(value, &why) : bare_value(value);
    if (!value)
        return error_set_field(err, ERR_USAGE, o->name, "%s:%u: %s has %s", f->path, f->line,
                               o->name, why);
    if (o->kind == OPTION_TEXT) /* it may be a secret */
        snprintf(where, sizeof(where), "%s:%u: %s", f->path, f->line, o->name);
    else
        snprintf(where, sizeof(where), "%s:%u: %s = %s", f->path, f->line, o->name,
                 option_quote(value, quoted));
    return option_set(c, o, value, where, err);
}

static int check_bytes(const char *path, const char *s, size_t n, struct error *err)
{
    if (memchr(s, '\0', n))
        return error_set(err, ERR_USAGE, "%s: has a NUL byte, it is not a text file", path);
    if (!utf8_valid(s, n))
        return error_set(err, ERR_USAGE, "%s: is not valid UTF-8", path);
    return 0;
}

static int load_file(struct config *c, const char *path, struct error *err)
{
    size_t n = 0;
    int rc = -1;
    struct source_file f = {.path = path};
    char *text = file_read(path, FILE_MAX, &n, err), *line = text;
    if (!text)
        return -1;
    f.seen = mem_new(option_count, sizeof(*f.seen));
    if (!f.seen) {
        error_set(err, ERR_NO_MEMORY, "no memory for the settings");
        goto out;
    }
    if (check_bytes(path, text, n, err) != 0)
        goto out;
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        line += 3;
    while (line) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        size_t n_line = strlen(line);
        if (n_line && line[n_line - 1] == '\r')
            line[n_line - 1] = '\0';
        f.line++;
        if (read_line(c, &f, line, err) != 0)
            goto out;
        line = next;
    }
    rc = 0;
out:
    free(f.seen);
    free(text);
    return rc;
}

/* ---- the environment ---- */

extern char **environ;

static void env_name(const struct option *o, char name[OPTION_NAME_MAX + 8])
{
    size_t n = (size_t)snprintf(name, OPTION_NAME_MAX + 8, "ATTEND_%s", o->name);
    for (size_t i = 0; i < n; i++)
        name[i] = (char)toupper((unsigned char)name[i]);
}

/* A service called attend makes Kubernetes set ATTEND_PORT=tcp://10.1.2.3:8080 in every pod. */
static const char *env_hint(const char *value)
{
    return strncmp(value, "tcp://", 6) == 0
               ? " (Kubernetes sets it for a service of that name: enableServiceLinks: false)"
               : "";
}

static int load_env(struct config *c, struct error *err)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        char name[OPTION_NAME_MAX + 8], where[WHERE_MAX], quoted[72];
        env_name(o, name);
        const char *value = getenv(name);
        if (!value)
            continue;
        if (o->kind == OPTION_TEXT)
            snprintf(where, sizeof(where), "%s", name);
        else
            snprintf(where, sizeof(where), "%s=%s%s", name, option_quote(value, quoted),
                     env_hint(value));
        if (option_set(c, o, value, where, err) != 0)
            return -1;
    }
    return 0;
}

/* Other programs may own ATTEND_ names, so that an unknown one is no error; one that is nearly a
 * setting's is worth a line. */
static void warn_env(void)
{
    for (char **e = environ; *e; e++) {
        char name[41];
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "ATTEND_", 7) != 0 || n < 7 + 5 || n - 7 >= sizeof(name))
            continue;
        for (size_t i = 0; i < n - 7; i++)
            name[i] = (char)tolower((unsigned char)(*e)[i + 7]);
        name[n - 7] = '\0';
        const char *near = option_find(name, n - 7) ? NULL : near_name(name, n - 7);
        if (near && utf8_valid(name, n - 7))
            log_line(LOG_WARN, "unknown environment variable", "name=%.*s nearest_setting=%s",
                     (int)n, *e, near);
    }
}

/* ---- the flags ---- */

/* What stands in argv at one place. */
struct flag_word {
    const struct option *option; /* NULL: a word, --config, or unknown */
    bool is_flag, is_config, is_no;
    const char *name; /* without dashes; n_name bytes */
    size_t n_name;
    const char *value; /* NULL: none, or in the next word */
};

static void split_flag(const char *arg, struct flag_word *w)
{
    *w = (struct flag_word){0};
    if (arg[0] != '-' || !arg[1])
        return;
    w->is_flag = true;
    w->name = arg + (arg[1] == '-' ? 2 : 1);
    w->n_name = strcspn(w->name, "=");
    if (w->name[w->n_name])
        w->value = w->name + w->n_name + 1;
    if (arg[1] != '-')
        return; /* no setting has a short flag */
    w->is_config = w->n_name == 6 && memcmp(w->name, "config", 6) == 0;
    w->option = option_find(w->name, w->n_name);
    if (w->option || w->n_name <= 3 || strncmp(w->name, "no-", 3) != 0)
        return;
    w->option = option_find(w->name + 3, w->n_name - 3);
    w->is_no = w->option && w->option->kind == OPTION_SWITCH;
    if (!w->is_no)
        w->option = NULL;
}

enum config_kind config_kind(const char *name, size_t n)
{
    char arg[OPTION_NAME_MAX + 3];
    struct flag_word w;
    snprintf(arg, sizeof(arg), "--%.*s", (int)(n < OPTION_NAME_MAX ? n : OPTION_NAME_MAX), name);
    split_flag(arg, &w);
    if (w.is_no)
        return CONFIG_NO_SWITCH;
    if (w.is_config)
        return CONFIG_VALUE;
    if (!w.option)
        return CONFIG_UNKNOWN;
    return w.option->kind == OPTION_SWITCH ? CONFIG_SWITCH : CONFIG_VALUE;
}

static int unknown_flag(const char *arg, const struct flag_word *w, struct error *err)
{
    char quoted[72], dashed[OPTION_NAME_MAX];
    const char *near = near_name(w->name, w->n_name);
    snprintf(dashed, sizeof(dashed), "%s", near ? near : "");
    for (char *p = dashed; *p; p++)
        if (*p == '_')
            *p = '-';
    return error_set(err, ERR_USAGE, "unknown flag %s%s%s%s", option_quote(arg, quoted),
                     near ? ", did you mean --" : "", dashed, near ? "?" : "");
}

/* The value of the flag at argv[*i]: behind its =, or the next word, which is then consumed. */
static int flag_value(int argc, char **argv, int *i, struct flag_word *w, struct error *err)
{
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool is_switch = w->option && w->option->kind == OPTION_SWITCH;
    if (w->is_no && w->value)
        return error_set(err, ERR_USAGE, "--%.*s takes no value", (int)w->n_name, w->name);
    if (w->value || w->is_no)
        return 0;
    if (is_switch && !(next && config_is_switch_value(next))) {
        w->value = "yes";
        return 0;
    }
    if (!next || strncmp(next, "--", 2) == 0)
        return error_set(err, ERR_USAGE, "--%.*s needs a value", (int)w->n_name, w->name);
    w->value = next;
    (*i)++;
    return 0;
}

static int set_flag(struct config *c, const struct flag_word *w, struct error *err)
{
    char where[WHERE_MAX], quoted[72];
    if (w->option->kind == OPTION_TEXT || w->is_no)
        snprintf(where, sizeof(where), "--%.*s", (int)w->n_name, w->name);
    else
        snprintf(where, sizeof(where), "--%.*s %s", (int)w->n_name, w->name,
                 option_quote(w->value, quoted));
    return option_set(c, w->option, w->is_no ? "no" : w->value, where, err);
}

/* One walk over argv. c NULL: only looks for --config. Else sets, and collects the words. */
static int walk_flags(struct config *c, int argc, char **argv, const char **path, char **words,
                      int *n_words, struct error *err)
{
    *n_words = 0;
    for (int i = 0; i < argc; i++) {
        struct flag_word w;
        const char *arg = argv[i];
        if (strcmp(arg, "--") == 0) {
            while (++i < argc)
                words[(*n_words)++] = argv[i];
            return 0;
        }
        split_flag(arg, &w);
        if (!w.is_flag) {
            words[(*n_words)++] = argv[i];
            continue;
        }
        if (!w.option && !w.is_config)
            return unknown_flag(arg, &w, err);
        if (flag_value(argc, argv, &i, &w, err) != 0)
            return -1;
        if (w.is_config)
            *path = w.value;
        else if (c && set_flag(c, &w, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- all of them ---- */

int config_load(struct config *c, int argc, char **argv, char **words, int *n_words,
                struct error *err)
{
    const char *path = NULL;
    struct stat st;
    memset(c, 0, sizeof(*c));
    for (uint32_t i = 0; i < option_count; i++)
        if (option_reset(c, &option_table[i], err) != 0)
            return -1;
    if (walk_flags(NULL, argc, argv, &path, words, n_words, err) != 0)
        return -1;
    if (!path && (stat(default_path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR)))
        path = default_path;
    if (path && load_file(c, path, err) != 0)
        return -1;
    if (load_env(c, err) != 0)
        return -1;
    warn_env();
    return walk_flags(c, argc, argv, &path, words, n_words, err);
}

void config_free(struct config *c)
{
    for (uint32_t i = 0; i < option_count; i++)
        option_free(c, &option_table[i]);
}
