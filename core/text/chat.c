/* [04 tokenizer] chat turns -> ids, in the form ChatML:
 *
 *   <|im_start|>ROLE\nCONTENT<|im_end|>\n   for each turn, then   <|im_start|>assistant\n
 *
 * The marks are put as control tokens; roles and contents are always ordinary text, so that nobody
 * can write a turn into a message. */
#include "core/base/mem.h"
#include "core/text/text_parts.h"

#include <string.h>

static const char im_start[] = "<|im_start|>", im_end[] = "<|im_end|>";

void chat_open(struct chat *chat, const struct checkpoint *c, const struct vocab *v)
{
    const char *s;
    size_t n, n_start = strlen(im_start), n_end = strlen(im_end);
    *chat = (struct chat){.start = vocab_find_control(v, im_start, n_start),
                          .end = vocab_find_control(v, im_end, n_end)};
    chat->has_template = meta_str(c, "tokenizer.chat_template", &s, &n);
    chat->known = chat->has_template && memmem(s, n, im_start, n_start) &&
                  memmem(s, n, im_end, n_end) && chat->start != VOCAB_NONE &&
                  chat->end != VOCAB_NONE;
}

bool text_has_chat(const struct text *t) { return t->chat.known; }

static int render_turn(const struct text *t, const struct chat_turn *turn, struct str *line,
                       struct ids *out, struct error *err)
{
    str_clear(line);
    str_add(line, turn->role, turn->n_role);
    str_add(line, "\n", 1);
    str_add(line, turn->content, turn->n_content);
    if (line->failed)
        return error_set(err, ERR_NO_MEMORY, "no memory for a message of %zu bytes",
                         turn->n_content);
    if (ids_add(out, t->chat.start, err) < 0 ||
        text_encode(t, line->s, line->n, false, out, err) < 0 || ids_add(out, t->chat.end, err) < 0)
        return -1;
    return text_encode(t, "\n", 1, false, out, err);
}

int text_render_chat(const struct text *t, const struct chat_turn *turns, uint32_t n_turns,
                     struct ids *out, struct error *err)
{
    static const char opening[] = "assistant\n";
    struct str line = {0};
    int rc = 0;
    if (!t->chat.known)
        return error_set_field(err, ERR_UNSUPPORTED, "messages",
                               t->chat.has_template
                                   ? "\"messages\": the chat template of this model is not of the "
                                     "form ChatML, which is the one known; use \"prompt\""
                                   : "\"messages\": this model has no chat template; use "
                                     "\"prompt\"");
    for (uint32_t i = 0; i < n_turns && rc == 0; i++)
        rc = render_turn(t, &turns[i], &line, out, err);
    if (rc == 0)
        rc = ids_add(out, t->chat.start, err);
    if (rc == 0)
        rc = text_encode(t, opening, sizeof(opening) - 1, false, out, err);
    str_free(&line);
    return rc;
}
