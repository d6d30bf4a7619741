/* [02 api] A generate request as its client wrote it, checked (generate_fields.def). ON_LOOP;
 * while its text is made into tokens it belongs to the text role. */
#pragma once

#include "config/config.h"
#include "core/engine.h"
#include "server/accept.h"
#include "server/fields.h"

#include <jansson.h>

enum prompt_kind { PROMPT_NONE, PROMPT_TEXT, PROMPT_IDS, PROMPT_CHAT };
enum asked { ASKED_NOT, ASKED_NO, ASKED_YES };

struct generate {
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

/* Reads a body into g (zeroed). Defaults come from model and max_tokens. 0, or -1 with *err; generate_free
 * in both cases. */
int generate_read(struct generate *g, const char *body, size_t n_body,
                  const struct engine_model *model, const struct config *config, struct error *err);
void generate_free(struct generate *g);
