/* [04 tokenizer] What text.c and chat.c share: the inside of a text. */
#pragma once

#include "core/text/tokenizer.h"

/* The chat form that messages are rendered in. Today: ChatML. */
struct chat {
    bool known;          /* the marks below are control tokens and the template is of this form */
    bool has_template;   /* the file has one, of whatever form */
    uint32_t start, end; /* <|im_start|>, <|im_end|> */
};

struct text {
    const struct tokenizer *tokenizer; /* NULL: ids only */
    void *state;                       /* the tokenizer's */
    struct vocab vocab;
    char name[128];
    uint32_t bos; /* or VOCAB_NONE */
    bool add_bos;
    struct ids ends; /* rising */
    struct chat chat;
};

void chat_open(struct chat *chat, const struct checkpoint *c, const struct vocab *v);
