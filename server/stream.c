/* [16 stream] events -> text, NDJSON, SSE, or one JSON document. */
#include "server/stream.h"

#include "server/json.h"
#include "server/reply.h"

#include <string.h>

const char *stream_content_type(enum stream_format format)
{
    static const char *const types[FORMAT_COUNT] = {
        [FORMAT_TEXT] = "text/plain; charset=utf-8",
        [FORMAT_NDJSON] = "application/x-ndjson",
        [FORMAT_SSE] = "text/event-stream",
        [FORMAT_DOCUMENT] = "application/json",
    };
    return types[format];
}

const char *stream_finish_name(enum finish_reason finish)
{
    switch (finish) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
        return "length";
    case FINISH_DEADLINE:
        return "deadline";
    case FINISH_CANCELLED:
        return "cancelled";
    case FINISH_ERROR:
        break;
    }
    return "error";
}

void stream_free(struct stream *st)
{
    str_free(&st->out);
    str_free(&st->text);
    str_free(&st->choices);
    ids_free(&st->tokens);
}

/* ---- framing: one JSON object as the format carries it ---- */

static void open_object(struct stream *st)
{
    if (st->format == FORMAT_SSE)
        str_adds(&st->out, "data: ");
}

static void close_object(struct stream *st)
{
    str_adds(&st->out, st->format == FORMAT_SSE ? "\n\n" : "\n");
}

/* ---- logprobs ---- */

static void add_token_text(struct stream *st, uint32_t id, struct str *bytes)
{
    str_clear(bytes);
    st->token_bytes(st->token_arg, id, bytes);
    str_adds(&st->choices, "\"token\":");
    json_add_str(&st->choices, str_text(bytes), bytes->n);
    str_addf(&st->choices, ",\"id\":%u", id);
}

/* {"token","id","logprob","bytes","top":[{"token","id","logprob"}]} */
static void add_choice(struct stream *st, const struct sample_choice *choice)
{
    struct str bytes = {0};
    struct str *out = &st->choices;
    str_adds(out, out->n ? ",{" : "{");
    add_token_text(st, choice->id, &bytes);
    str_adds(out, ",\"logprob\":");
    json_add_logprob(out, choice->logprob);
    str_adds(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.n; i++)
        str_addf(out, i ? ",%u" : "%u", (unsigned char)bytes.s[i]);
    str_adds(out, "],\"top\":[");
    for (uint32_t i = 0; i < choice->n_top; i++) {
        str_adds(out, i ? ",{" : "{");
        add_token_text(st, choice->top[i].id, &bytes);
        str_adds(out, ",\"logprob\":");
        json_add_logprob(out, choice->top[i].logprob);
        str_add(out, "}", 1);
    }
    str_adds(out, "]}");
    str_free(&bytes);
}

/* ---- pieces ---- */

/* {"text":" Paris","tokens":[7042]}: the text, and the tokens since the last piece. */
static void add_piece(struct stream *st, const char *text, size_t n_text)
{
    open_object(st);
    str_adds(&st->out, "{\"text\":");
    json_add_str(&st->out, text, n_text);
    str_adds(&st->out, ",\"tokens\":");
    json_add_ids(&st->out, st->tokens.id + st->n_told, st->tokens.n - st->n_told);
    st->n_told = st->tokens.n;
    if (st->logprobs) {
        size_t from = st->n_choices_told;
        if (from && from < st->choices.n)
            from++; /* the comma */
        str_adds(&st->out, ",\"logprobs\":[");
        str_add(&st->out, str_text(&st->choices) + from, st->choices.n - from);
        str_add(&st->out, "]", 1);
        st->n_choices_told = st->choices.n;
    }
    str_add(&st->out, "}", 1);
    close_object(st);
}

static void add_text(struct stream *st, const char *text, size_t n_text, bool last)
{
    bool pending = last && st->n_told < st->tokens.n;
    if (st->format == FORMAT_TEXT) {
        str_add(&st->out, text, n_text);
        return;
    }
    str_add(&st->text, text, n_text);
    if (st->format != FORMAT_DOCUMENT && (n_text || pending))
        add_piece(st, text, n_text);
}

void stream_token(struct stream *st, const struct sample_choice *choice, const char *text,
                  size_t n_text)
{
    if (st->format != FORMAT_TEXT) {
        if (ids_add(&st->tokens, choice->id, NULL) < 0)
            st->failed = true;
        if (st->logprobs)
            add_choice(st, choice);
    }
    add_text(st, text, n_text, false);
}

/* ---- the final object ---- */

static void add_stop(struct str *out, const struct stream_end *end)
{
    static const char *const names[] = {
        [STOP_NONE] = "null",
        [STOP_EOS] = "\"eos\"",
        [STOP_WORD] = "\"word\"",
        [STOP_LIMIT] = "\"limit\"",
    };
    str_addf(out, ",\"stop\":{\"type\":%s", names[end->result->stop]);
    if (end->result->stop == STOP_WORD) {
        str_adds(out, ",\"word\":");
        json_add_str(out, end->stop_word, end->n_stop_word);
    }
    str_add(out, "}", 1);
}

static double per_second(uint32_t tokens, double ms) { return ms > 0 ? tokens / ms * 1e3 : 0; }

static void add_timings(struct str *out, const struct request_result *r)
{
    str_adds(out, ",\"timings\":{\"queue_ms\":");
    json_add_num(out, r->queue_ms, 3);
    str_adds(out, ",\"prefill_ms\":");
    json_add_num(out, r->prefill_ms, 3);
    str_adds(out, ",\"ttft_ms\":");
    json_add_num(out, r->ttft_ms, 3);
    str_adds(out, ",\"decode_ms\":");
    json_add_num(out, r->decode_ms, 3);
    str_adds(out, ",\"prefill_tok_s\":");
    json_add_num(out, per_second(r->prefilled_tokens, r->prefill_ms), 1);
    str_adds(out, ",\"decode_tok_s\":");
    json_add_num(out, per_second(r->completion_tokens, r->decode_ms), 1);
    str_add(out, "}", 1);
}

static void add_session(struct str *out, const struct stream_end *end)
{
    str_adds(out, ",\"session\":");
    if (!end->session[0]) {
        str_adds(out, "null");
        return;
    }
    str_adds(out, "{\"id\":");
    json_add_text(out, end->session);
    str_addf(out, ",\"tokens\":%u,\"created\":%s}", end->result->session_tokens,
             end->result->session_created ? "true" : "false");
}

static void add_final(struct stream *st, const struct stream_end *end)
{
    const struct request_result *r = end->result;
    struct str *out = &st->out;
    str_adds(out, "{\"id\":");
    json_add_text(out, end->id);
    str_adds(out, ",\"model\":");
    json_add_text(out, end->model);
    str_adds(out, ",\"text\":");
    json_add_str(out, str_text(&st->text), st->text.n);
    str_adds(out, ",\"tokens\":");
    json_add_ids(out, st->tokens.id, st->tokens.n);
    str_addf(out, ",\"finish_reason\":\"%s\"", stream_finish_name(r->finish));
    add_stop(out, end);
    str_addf(out, ",\"seed\":%llu", (unsigned long long)end->seed);
    str_addf(out, ",\"usage\":{\"prompt_tokens\":%u,\"cached_tokens\":%u,\"completion_tokens\":%u}",
             r->prompt_tokens, r->cached_tokens, r->completion_tokens);
    add_timings(out, r);
    add_session(out, end);
    if (st->logprobs)
        str_addf(out, ",\"logprobs\":[%s]", str_text(&st->choices));
    str_addf(out, ",\"warnings\":[%s],\"done\":true}", end->warnings);
}

void stream_finish(struct stream *st, const char *text, size_t n_text, const struct stream_end *end)
{
    add_text(st, text, n_text, true);
    st->failed = st->failed || st->text.failed || st->choices.failed || st->out.failed;
    st->ended = true;
    if (st->format == FORMAT_TEXT || st->failed)
        return;
    open_object(st);
    add_final(st, end);
    if (st->format != FORMAT_DOCUMENT)
        close_object(st);
    st->failed = st->out.failed;
}

void stream_fail(struct stream *st, const struct error *err)
{
    st->ended = true;
    if (st->format == FORMAT_TEXT) {
        st->broken = true;
        return;
    }
    open_object(st);
    reply_add_error(&st->out, err);
    close_object(st);
}

void stream_progress(struct stream *st, uint32_t prefilled, uint32_t prompt_tokens)
{
    if (st->format == FORMAT_SSE)
        str_addf(&st->out, ": prefill %u/%u\n\n", prefilled, prompt_tokens);
    else if (st->format == FORMAT_NDJSON)
        str_addf(&st->out, "{\"progress\":{\"prefilled\":%u,\"prompt_tokens\":%u}}\n", prefilled,
                 prompt_tokens);
}

size_t stream_take(struct stream *st, char *to, size_t max)
{
    size_t left = st->out.n - st->taken;
    size_t n = left < max ? left : max;
    if (n)
        memcpy(to, st->out.s + st->taken, n);
    st->taken += n;
    if (st->taken == st->out.n) {
        str_clear(&st->out);
        st->taken = 0;
    }
    return n;
}
