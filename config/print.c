/* [config] what the table of settings says of itself: --help, --print-config, the annotated
 * example. */
#include "config/config.h"

#include "config/option.h"

#include <string.h>

/* "--kv-type f16|f32": the left column of --help. */
static void help_flag(const struct option *o, struct str *out)
{
    str_adds(out, "--");
    for (const char *p = o->name; *p; p++)
        str_add(out, *p == '_' ? "-" : p, 1);
    switch (o->kind) {
    case OPTION_TEXT:
        str_adds(out, " TEXT");
        break;
    case OPTION_CHOICE:
        str_addf(out, " %s", o->choices);
        break;
    case OPTION_SWITCH:
        break;
    case OPTION_UINT:
        str_adds(out, strcmp(o->unit, "ms") == 0 ? " MS" : strcmp(o->unit, "s") == 0 ? " S" : " N");
        break;
    case OPTION_SIZE:
        str_adds(out, " SIZE");
        break;
    }
}

static void help_line(const struct option *o, struct str *out)
{
    struct str left = {0};
    help_flag(o, &left);
    str_addf(out, "  %-28s %s", str_text(&left), o->help);
    if (o->kind != OPTION_TEXT || o->text[0]) {
        str_adds(out, " [");
        option_show(o, NULL, out);
        str_adds(out, "]");
    }
    str_adds(out, "\n");
    str_free(&left);
}

void config_help(struct str *out)
{
    for (uint32_t i = 0; i < option_count; i++)
        help_line(&option_table[i], out);
}

void config_help_of(const char *name, struct str *out)
{
    const struct option *o = option_find(name, strlen(name));
    if (o)
        help_line(o, out);
}

void config_print(const struct config *c, struct str *out)
{
    for (uint32_t i = 0; i < option_count; i++) {
        str_addf(out, "%s = ", option_table[i].name);
        option_show(&option_table[i], c, out);
        str_adds(out, "\n");
    }
}

void config_example(struct str *out)
{
    str_adds(out,
             "# attend: every setting with its default. Made from config/option.def by\n"
             "# `attend serve --print-example`; it changes nothing until a line loses its #.\n"
             "#\n"
             "# Read from --config FILE, else from /etc/attend/attend.conf if that exists. The\n"
             "# environment (ATTEND_KV_TYPE=f32) wins over this file, a flag (--kv-type f32) over "
             "both.\n"
             "# A line is `name = value`; a # at its start or behind a blank begins a comment;\n"
             "# \"quotes\" keep one. Sizes take K, M, G and T (1024). `attend --check-config` "
             "checks.\n");
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        str_addf(out, "\n# %s", o->help);
        if (o->kind != OPTION_TEXT) {
            str_adds(out, " (");
            option_range(o, out);
            str_adds(out, ")");
        }
        str_addf(out, "\n#%s = ", o->name);
        option_show(o, NULL, out);
        str_adds(out, "\n");
    }
}
