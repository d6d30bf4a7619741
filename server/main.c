/* [00 main] which subcommand; its result to stdout, its failure as one line to stderr.
 * `attend [serve] [MODEL]`: a first word that is no subcommand is the model. */
#include "server/cmd/command.h"

#include "core/base/str.h"
#include "server/version.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct command command_table[] = {
#define COMMAND(name, usage, summary) {#name, usage, summary, cmd_##name},
#include "server/cmd/command.def"
#undef COMMAND
};
const unsigned command_count = sizeof(command_table) / sizeof(command_table[0]);

static const struct command *find(const char *word)
{
    for (unsigned i = 0; i < command_count; i++)
        if (strcmp(command_table[i].name, word) == 0)
            return &command_table[i];
    return NULL;
}

static void help(void)
{
    printf("attend: serves a language model over HTTP\n\n");
    for (unsigned i = 0; i < command_count; i++) {
        const struct command *c = &command_table[i];
        printf("  attend %s %s\n      %s\n", c->name, c->usage, c->summary);
    }
    printf(
        "  attend --version\n  attend SUBCOMMAND --help\n\n"
        "A first word that is no subcommand is the model: `attend FILE` is `attend serve FILE`.\n"
        "Results go to stdout, all else to stderr. Exit: 0 done, 1 failed, 2 wrong usage.\n");
}

/* A descriptor 0, 1 or 2 that the caller closed would be given to the next file or socket. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0)
            _exit(1);
}

/* A page of a mapped file is not there any more: the model was cut while it was read. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char text[] = "attend: the model file was cut, or cannot be read to its end\n";
    (void)context;
    if (info->si_code == BUS_ADRERR && write(STDERR_FILENO, text, sizeof(text) - 1) > 0)
        _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_mapped_files(void)
{
    struct sigaction a = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &a, NULL);
}

static int run(int argc, char **argv, struct error *err)
{
    const char *first = argc > 1 ? argv[1] : "";
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0)
        return version_print(err);
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        help();
        return 0;
    }
    const struct command *c = find(first);
    if (c)
        return c->run(argc - 2, argv + 2, err);
    c = find("serve");
    return c ? c->run(argc - 1, argv + 1, err)
             : error_set(err, ERR_USAGE, "unknown subcommand \"%.60s\"", first);
}

int main(int argc, char **argv)
{
    struct error err = {0};
    hold_standard_files();
    watch_mapped_files();
    int rc = run(argc, argv, &err);
    if (fflush(stdout) != 0 && rc == 0)
        rc = error_set(&err, ERR_IO, "cannot write to stdout: %s", strerror(errno));
    if (rc == 0)
        return 0;
    fprintf(stderr, "attend: %s\n", err.text);
    return err.code == ERR_USAGE ? 2 : 1;
}
