/* [base] The subcommands: one row of command.def and one file each. A command prints its results
 * to stdout and returns 0, or -1 with *err (main prints it; ERR_USAGE is exit 2, the rest exit
 * 1). Runs on the main thread. */
#pragma once

#include "core/base/error.h"

struct command {
    const char *name, *usage, *summary;
    /* argv without the program and the subcommand's name */
    int (*run)(int argc, char **argv, struct error *err);
};

extern const struct command command_table[];
extern const unsigned command_count;

#define COMMAND(name, usage, summary) int cmd_##name(int argc, char **argv, struct error *err);
#include "server/cmd/command.def"
#undef COMMAND
