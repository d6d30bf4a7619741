/* [config] One setting: its row of option.def as data, how its value is read and written.
 * Private to config/. ANY_THREAD: the table is const. */
#pragma once

#include "config/config.h"

enum option_kind { OPTION_TEXT, OPTION_CHOICE, OPTION_SWITCH, OPTION_UINT, OPTION_SIZE };

struct option {
    const char *name; /* kv_type */
    enum option_kind kind;
    size_t offset;       /* of the member in struct config */
    const char *text;    /* default of TEXT and CHOICE */
    uint64_t number;     /* default of SWITCH, UINT and SIZE */
    uint64_t min, max;   /* UINT, SIZE */
    const char *choices; /* CHOICE: "f16|f32" */
    const char *unit;    /* UINT: "ms", or "" */
    const char *help;
};

enum { OPTION_NAME_MAX = 64 };

extern const struct option option_table[];
extern const uint32_t option_count;

/* NULL where no setting is called so; '-', '_' and '.' are alike. */
const struct option *option_find(const char *name, size_t n);

/* Reads value into its member of c. where: what to call the source in an error ("--port 99999"). */
int option_set(struct config *c, const struct option *o, const char *value, const char *where,
               struct error *err);

/* The default. */
int option_reset(struct config *c, const struct option *o, struct error *err);
void option_free(struct config *c, const struct option *o);

/* The value in c (NULL: the default) as a line of a file has it: quoted where it must be. */
void option_show(const struct option *o, const struct config *c, struct str *out);

/* "0 to 65535", "f16, f32", "yes or no"; nothing for texts. */
void option_range(const struct option *o, struct str *out);

/* A value from outside, for a message: at most 60 bytes, one line, valid UTF-8. */
const char *option_quote(const char *value, char out[72]);
