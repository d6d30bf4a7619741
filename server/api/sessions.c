/* [02 api] sessions: list, look, delete, fork, rewind. The engine's thread does it between two
 * steps and answers by callback. */
#include "core/base/mem.h"
#include "server/check.h"
#include "server/fields.h"
#include "server/json.h"
#include "server/reply.h"

#include <stdio.h>
#include <string.h>

void sessions_list(struct exchange *x);
void sessions_get(struct exchange *x);
void sessions_delete(struct exchange *x);
void sessions_fork(struct exchange *x);
void sessions_rewind(struct exchange *x);

/* ---- answers ---- */

static void add_info(struct str *out, const struct session_info *info)
{
    str_adds(out, "{\"id\":");
    json_add_text(out, info->id);
    str_addf(out, ",\"tokens\":%u,\"bytes\":%llu,\"created\":", info->tokens,
             (unsigned long long)info->bytes);
    json_add_num(out, info->created_s, 3);
    str_adds(out, ",\"last_used\":");
    json_add_num(out, info->last_used_s, 3);
    str_addf(out, ",\"state\":\"%s\"}", info->state == SESSION_RUNNING ? "running" : "idle");
}

static void add_answer(struct str *out, const struct session_command *c)
{
    if (c->verb == SESSION_LIST) {
        str_adds(out, "{\"sessions\":[");
        for (uint32_t i = 0; i < c->n_infos; i++) {
            if (i)
                str_add(out, ",", 1);
            add_info(out, &c->infos[i]);
        }
        str_adds(out, "]}");
    } else if (c->verb == SESSION_DELETE) {
        str_adds(out, "{\"id\":");
        json_add_text(out, c->id);
        str_adds(out, ",\"deleted\":true}");
    } else if (c->n_infos) {
        add_info(out, &c->infos[0]);
    }
}

static void on_done(struct session_command *c)
{
    struct exchange *x = c->owner; /* NULL: the client has left */
    struct str body = {0};
    thread_assert_loop();
    if (x && c->rc < 0) {
        reply_error(x, &c->err);
    } else if (x) {
        add_answer(&body, c);
        reply_json(x, MHD_HTTP_OK, &body);
    }
    if (x) {
        x->leave = NULL;
        x->work = NULL;
    }
    free(c->infos);
    free(c);
}

static void on_leave(struct exchange *x)
{
    struct session_command *c = x->work;
    c->owner = NULL;
}

/* ---- commands ---- */

static struct session_command *command(struct exchange *x, enum session_verb verb,
                                       struct error *err)
{
    if (verb != SESSION_LIST && !check_name(x->arg, strlen(x->arg), SESSION_ID_MAX, "._-")) {
        error_set(err, ERR_NO_SESSION, "a session's name is 1 to 128 of A-Z a-z 0-9 . _ -");
        return NULL;
    }
    struct session_command *c = mem_new(1, sizeof(*c));
    if (!c) {
        error_set(err, ERR_NO_MEMORY, NULL);
        return NULL;
    }
    c->verb = verb;
    c->done = on_done;
    snprintf(c->id, sizeof(c->id), "%s", x->arg);
    return c;
}

static ON_LOOP void run(struct exchange *x, struct session_command *c)
{
    c->owner = x;
    x->work = c;
    x->leave = on_leave;
    engine_session(x->server->engine, c);
}

static ON_LOOP void simple(struct exchange *x, enum session_verb verb)
{
    struct error err;
    struct session_command *c = command(x, verb, &err);
    if (c)
        run(x, c);
    else
        reply_error(x, &err);
}

void sessions_list(struct exchange *x)
{
    thread_assert_loop();
    simple(x, SESSION_LIST);
}

void sessions_get(struct exchange *x)
{
    thread_assert_loop();
    simple(x, SESSION_GET);
}

void sessions_delete(struct exchange *x)
{
    thread_assert_loop();
    simple(x, SESSION_DELETE);
}

/* ---- commands with a body ---- */

struct cut { /* where: of a fork, its new name and how much it keeps; of a rewind, its new length */
    char name[FIELD_NAME_BYTES];
    uint32_t at;
};

static const struct field fork_fields[] = {
    {"to", FIELD_NAME, offsetof(struct cut, name), 0, 0, NULL, NULL},
    {"at", FIELD_U32, offsetof(struct cut, at), 0, UINT32_MAX, NULL, NULL},
};
static const struct field rewind_fields[] = {
    {"to", FIELD_U32, offsetof(struct cut, at), 0, UINT32_MAX, NULL, NULL},
};

static const struct field_table fork_table = {fork_fields, 2};
static const struct field_table rewind_table = {rewind_fields, 1};

enum { CUT_BYTES = 4096, CUT_VALUES = 64 };

static json_t *read_cut(const struct exchange *x, const char *example, struct error *err)
{
    if (x->body.n <= CUT_BYTES)
        return fields_parse(str_text(&x->body), x->body.n, CUT_VALUES, example, err);
    error_set(err, ERR_TOO_LARGE, "the body has %zu bytes, at most %d are taken here", x->body.n,
              CUT_BYTES);
    return NULL;
}

static ON_LOOP void with_body(struct exchange *x, enum session_verb verb,
                              const struct field_table *table, const char *example)
{
    struct error err;
    struct cut cut = {0};
    struct fields_seen seen = {0};
    struct session_command *c = command(x, verb, &err);
    json_t *body = c ? read_cut(x, example, &err) : NULL;
    int rc = body ? fields_read(table, "", body, &cut, true, &seen, &err) : -1;
    if (rc == 0 && !seen.seen[0])
        rc = error_set_field(&err, ERR_INVALID, "to", "to is missing; an example: %s", example);
    json_decref(body);
    fields_free(&seen);
    if (rc < 0) {
        free(c);
        reply_error(x, &err);
        return;
    }
    snprintf(c->to, sizeof(c->to), "%s", cut.name);
    c->at = cut.at;
    c->has_at = verb == SESSION_REWIND || seen.seen[1];
    run(x, c);
}

void sessions_fork(struct exchange *x)
{
    thread_assert_loop();
    with_body(x, SESSION_FORK, &fork_table, "{\"to\": \"other-name\", \"at\": 120}");
}

void sessions_rewind(struct exchange *x)
{
    thread_assert_loop();
    with_body(x, SESSION_REWIND, &rewind_table, "{\"to\": 120}");
}
