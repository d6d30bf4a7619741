/* [02 api] From JSON to a struct by a table of fields. Each value is type- and range-checked, and
 * an error names the field, what was got and what is wanted. Fields we know but do not support
 * pass when their value is neutral (null, false, [], the default); unknown ones warn, or are
 * refused in strict mode. ANY_THREAD: tables are constant, targets their owner's. */
#pragma once

#include "core/base/error.h"
#include "core/base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_BOOL,    /* bool */
    FIELD_U32,     /* uint32_t, min to max */
    FIELD_U64,     /* uint64_t */
    FIELD_I32,     /* int32_t */
    FIELD_NUMBER,  /* double, min to max */
    FIELD_ABOVE,   /* double, above min, to max */
    FIELD_NAME,    /* char[129]: 1 to 128 of A-Za-z0-9._- */
    FIELD_WORD,    /* char[129]: at most 128 bytes without NUL */
    FIELD_TAKE,    /* take does it */
    FIELD_ANY,     /* any string: it changes nothing */
    FIELD_ALIAS,   /* another name for the field `of` */
    FIELD_NEUTRAL, /* known, not supported: `of` is the JSON text of its default */
    FIELD_FOREIGN, /* of another dialect: `of` says what to do */
};

enum { FIELD_NAME_BYTES = 129, FIELDS_MAX = 128 };

struct fields_seen {
    bool seen[FIELDS_MAX]; /* by index of the table's row: given, and not null */
    struct str warnings;   /* as JSON strings with commas: "a","b" */
    struct str header;     /* the same in one line of ASCII, for X-Warnings */
    uint32_t n_warnings;
    char unknown[64], near[64]; /* the first unknown field, and the known one it resembles */
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset; /* in the target */
    double min, max;
    const char *of;
    /* Takes value into the target; the error names the field. Never called with null. */
    int (*take)(const char *name, const json_t *value, void *target, struct error *err);
};

/* Parses a request's body: one JSON object of at most n_values values and nothing after it. example: a
 * right one, for the error. */
json_t *fields_parse(const char *text, size_t n, size_t n_values, const char *example,
                     struct error *err);

struct field_table {
    const struct field *fields; /* [n], at most FIELDS_MAX */
    size_t n;
};

/* Reads object into target by the table. 0, or -1 with *err. where: "" or "messages[0].". */
int fields_read(const struct field_table *table, const char *where, const json_t *object,
                void *target, bool strict, struct fields_seen *seen, struct error *err);

/* Whether the field of that name was given. */
bool fields_has(const struct field_table *table, const struct fields_seen *seen, const char *name);

__attribute__((format(printf, 2, 3))) void fields_warn(struct fields_seen *seen, const char *fmt,
                                                       ...);
void fields_free(struct fields_seen *seen);

/* An error that shows the value: `NAME must be WANTED, got VALUE`. Returns -1. */
int fields_refuse(const char *name, const json_t *value, const char *wanted, struct error *err);
