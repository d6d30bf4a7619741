/* [base] The command line of a subcommand: a small table of its own flags, the settings that it
 * takes besides, and --help made from both. Main thread. */
#pragma once

#include "config/config.h"
#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum flag_kind {
    FLAG_SWITCH, /* bool */
    FLAG_TEXT,   /* const char *, into argv */
    FLAG_UINT,   /* uint64_t in [min, max] */
    FLAG_REAL,   /* double in [min, max] */
    FLAG_LIST,   /* struct flag_list: 1,2,3, each in [min, max]; at least one */
};

struct flag_list {
    uint32_t *item; /* malloc'd [n] */
    uint32_t n;
};

struct flag {
    const char *name; /* "out": --out FILE or --out=FILE */
    char letter;      /* 'n': -n 64; 0 = none */
    enum flag_kind kind;
    const char *arg; /* what --help calls the value */
    double min, max;
    void *to; /* where it goes; what is there before is the default */
    const char *help;
};

struct flag_set {
    const char *command;      /* its row of command.def */
    const struct flag *flags; /* [n_flags] */
    uint32_t n_flags;
    const char *const *settings; /* names, NULL at the end; NULL: none */
    struct config *config;    /* filled (defaults, file, environment, flags) if settings is set */
    const char *more;         /* --help's last lines, or NULL */
    int min_words, max_words; /* words that are no flags */
};

/* The settings of a model that is opened: `logits` and `bench` take these; and of an engine that
 * serves: `run`. */
extern const char *const flags_model[], *const flags_engine[];

/* Reads argv, and leaves in argv[0..*n_words) the words that are no flags. Returns 0; 1 where
 * --help was asked for and printed; -1 with ERR_USAGE (or ERR_IO of the settings' file). The
 * caller frees set->config in all three cases. */
int flags_read(const struct flag_set *set, int argc, char **argv, int *n_words, struct error *err);

/* One number, the whole of s, in [min, max]. what names it in the error. */
int flags_number(const char *what, const char *s, uint64_t min, uint64_t max, uint64_t *value,
                 struct error *err);
void flags_list_free(struct flag_list *list);
