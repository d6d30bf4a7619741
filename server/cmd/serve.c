/* [base] `attend serve`: settings, log and process id files, then the server until it has
 * drained. */
#include "core/base/nearest.h"
#include "core/tool.h"
#include "server/cmd/command.h"
#include "server/daemon.h"
#include "server/flags.h"
#include "server/options.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* `attend rnu`: a word that is no file may have been meant as a subcommand. */
static void suggest_command(const char *word, struct error *err)
{
    const char *names[16], *near;
    uint32_t n = 0;
    size_t used = strlen(err->text);
    while (n < command_count && n < 16) {
        names[n] = command_table[n].name;
        n++;
    }
    near = nearest_word(word, strlen(word), names, n);
    if (near)
        snprintf(err->text + used, sizeof(err->text) - used, "; did you mean `attend %s`?", near);
}

/* A folder that does not hold the one model is, in a container, one that was not mounted. */
static void suggest_mount(const char *folder, struct error *err)
{
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof(err->text) - used,
             "; in a container mount one (-v $PWD/models:%s), of several say which "
             "(ATTEND_MODEL=%s/x.gguf)",
             folder, folder);
}

/* A model that is not there, that is none, or whose architecture is unknown fails before anything
 * listens. Only the file's head is read. */
static int check_model(const char *path, struct error *err)
{
    struct stat st;
    struct tool_model m;
    if (!path || !path[0])
        return error_set_field(err, ERR_USAGE, "model",
                               "no model: attend serve FILE, or ATTEND_MODEL=FILE");
    if (tool_model_open(path, &m, err) != 0) {
        if (stat(path, &st) != 0)
            suggest_command(path, err);
        else if (S_ISDIR(st.st_mode))
            suggest_mount(path, err);
        return -1;
    }
    if (!m.known)
        *err = m.why_unknown;
    int rc = m.known ? 0 : -1;
    tool_model_close(&m);
    return rc;
}

static int run(const struct config *c, struct error *err)
{
    struct daemon d;
    if (check_model(c->model, err) != 0)
        return -1;
    options_log(c);
    int rc = daemon_begin(&d, c, err);
    if (rc != 0)
        return rc;
    rc = server_run(c, daemon_listening, &d, err);
    daemon_end(&d, rc, err);
    return rc;
}

/* A result made by one of config_print and config_example. */
static int print(const struct str *text, struct error *err)
{
    if (text->failed)
        return error_set(err, ERR_NO_MEMORY, "no memory for the settings' text");
    fwrite(str_text(text), 1, text->n, stdout);
    return 0;
}

struct serve_flags {
    bool check, print, example;
};

static int act(struct config *c, const struct serve_flags *f, struct error *err)
{
    struct str text = {0};
    int rc = 0;
    if (f->example)
        config_example(&text);
    else if (f->print)
        config_print(c, &text);
    else if (f->check)
        str_adds(&text, "the settings are right\n");
    else
        return run(c, err);
    rc = print(&text, err);
    str_free(&text);
    return rc;
}

int cmd_serve(int argc, char **argv, struct error *err)
{
    uint32_t n_names;
    struct config config = {0};
    struct serve_flags f = {0};
    const struct flag flags[] = {
        {"check-config", 0, FLAG_SWITCH, NULL, 0, 0, &f.check, "check all settings, and end"},
        {"print-config", 0, FLAG_SWITCH, NULL, 0, 0, &f.print,
         "print all settings as a file, and end"},
        {"print-example", 0, FLAG_SWITCH, NULL, 0, 0, &f.example,
         "print the annotated example, and end"},
    };
    const struct flag_set set = {
        .command = "serve",
        .flags = flags,
        .n_flags = sizeof(flags) / sizeof(flags[0]),
        .settings = config_names(&n_names),
        .config = &config,
        .max_words = 1,
    };
    int n_words, rc = flags_read(&set, argc, argv, &n_words, err);
    if (rc == 0 && n_words) {
        free(config.model);
        config.model = strdup(argv[0]);
        if (!config.model)
            rc = error_set(err, ERR_NO_MEMORY, "no memory for the settings");
    }
    if (rc == 0)
        rc = act(&config, &f, err);
    config_free(&config);
    return rc < 0 ? -1 : 0;
}
