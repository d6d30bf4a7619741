/* [config] Settings: one table (option.def), four sources; later ones win: defaults < file <
 * environment (ATTEND_*) < flags. One bad value stops the start and names itself, its source and
 * what is allowed. Read-only after config_load: ANY_THREAD. */
#pragma once

#include "core/base/error.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config {
#define TEXT(name, value, help)                 char *name;
#define CHOICE(name, value, choices, help)      char *name;
#define SWITCH(name, value, help)               bool name;
#define UINT(name, value, min, max, unit, help) uint64_t name;
#define SIZE(name, value, min, max, help)       uint64_t name;
#include "config/option.def"
#undef TEXT
#undef CHOICE
#undef SWITCH
#undef UINT
#undef SIZE
};

/* argv without the program and the subcommand. --config FILE names the file (else
 * /etc/attend/attend.conf if it exists). Words that are no flags are left, in order, in
 * words[0..*n_words) (pointers into argv, room for argc of them); `--` ends the flags. A flag is
 * --name VALUE, --name=VALUE, and for a SWITCH also --name or --no-name. Unknown names: ERR_USAGE
 * with the nearest known one. In names '-', '_' and '.' are alike. Fails with ERR_USAGE, or ERR_IO
 * where the file cannot be read; config_free is right in either case. */
int config_load(struct config *c, int argc, char **argv, char **words, int *n_words,
                struct error *err);
void config_free(struct config *c);

/* What the flag --NAME (n bytes) is, for subcommands that take some of the settings: whether the
 * next word may be its value. --no-NAME of a switch takes none. */
enum config_kind { CONFIG_UNKNOWN, CONFIG_VALUE, CONFIG_SWITCH, CONFIG_NO_SWITCH };
enum config_kind config_kind(const char *name, size_t n);
/* A word that a switch takes as its value: yes, no, true, false, on, off. */
bool config_is_switch_value(const char *word);
/* The names of all settings; a NULL behind them. */
const char *const *config_names(uint32_t *n);

void config_help(struct str *out);                      /* --help's table of settings */
void config_help_of(const char *name, struct str *out); /* one line of it */
void config_print(const struct config *c,
                  struct str *out);   /* --print-config: a file that sets the same */
void config_example(struct str *out); /* config/attend.conf, annotated */
