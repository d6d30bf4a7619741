/* [02 api] A generate request as its client wrote it, checked (generate_fields.def). ON_LOOP, or
 * the text role's while it reads the body and makes its text into tokens. */
#pragma once

#include "config/config.h"
#include "core/engine.h"
#include "server/accept.h"
#include "server/fields.h"

#include <jansson.h>

/* A longer body takes longer to read than the loop may wait: the text role reads it. */
enum { GENERATE_QUICK_BYTES = 65536 };

enum prompt_kind { PROMPT_NONE, PROMPT_TEXT, PROMPT_IDS, PROMPT_CHAT };
enum asked { ASKED_NOT, ASKED_NO, ASKED_YES };

struct generate {
    /* what the header says, set before the body is read */
    enum stream_format format;               /* FORMAT_DOCUMENT afterwards where stream is false */
    char header_session[SESSION_ID_MAX + 1]; /* "" = none */

    json_t *body; /* owns the strings below */
    enum prompt_kind kind;
    const char *prompt; /* TEXT [n_prompt] */
    size_t n_prompt;
    struct ids ids;          /* IDS; later those of the text */
    struct chat_turn *turns; /* CHAT [n_turns] */
    uint32_t n_turns;
    struct str *joined; /* [n_turns]: contents that came in parts */
    bool special;
    enum asked add_bos;
    bool stream;
    bool has_seed;
    struct request_params params;
    struct fields_seen seen;

    /* for the checks of values */
    uint32_t n_vocab;
    bool strict;
};

/* Reads a body into g (zeroed but for what the header says). Defaults come from model and config. 0, or
 * -1 with *err; generate_free in both cases. */
int generate_read(struct generate *g, const char *body, size_t n_body,
                  const struct engine_model *model, const struct config *config, struct error *err);

/* Frees what only the text role needs: the body and all that points into it. */
void generate_drop_body(struct generate *g);
void generate_free(struct generate *g);
