/* [05 scheduler] sessions: a table of named timelines, and the commands on them. */
#include "core/sched/session.h"

#include "core/base/mem.h"

#include <string.h>
#include <time.h>

static double unix_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct session **bucket(struct sessions *t, const char *id)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *id; id++)
        h = (h ^ (uint8_t)*id) * 16777619u;
    return &t->buckets[(h ^ h >> 15) % SESSION_BUCKETS];
}

void sessions_open(struct sessions *t, struct prefix *prefix, size_t token_bytes)
{
    *t = (struct sessions){.prefix = prefix, .token_bytes = token_bytes};
}

static void session_free(struct sessions *t, struct session *s)
{
    t->bytes -= (uint64_t)s->n_ids * sizeof(*s->ids);
    prefix_root_drop(t->prefix, s->root);
    free(s->ids);
    free(s);
}

static void unlink_session(struct sessions *t, struct session *s)
{
    struct session **at = bucket(t, s->id);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    t->n--;
}

void sessions_close(struct sessions *t)
{
    for (uint32_t i = 0; i < SESSION_BUCKETS; i++) {
        for (struct session *s = t->buckets[i], *next; s; s = next) {
            next = s->next;
            ASSERT(TAILQ_EMPTY(&s->line));
            session_free(t, s);
        }
        t->buckets[i] = NULL;
    }
    ASSERT(t->bytes == 0);
    t->n = 0;
}

struct session *sessions_find(struct sessions *t, const char *id)
{
    struct session *s = *bucket(t, id);
    while (s && strcmp(s->id, id) != 0)
        s = s->next;
    return s;
}

struct session *sessions_create(struct sessions *t, const char *id, struct error *err)
{
    struct session **at = bucket(t, id), *s = NULL;
    if (t->n < SESSIONS_MAX)
        s = mem_new(1, sizeof(*s));
    if (!s) {
        error_set(err, ERR_NO_MEMORY,
                  "no room for session \"%s\": there are %u, at most %d; "
                  "delete some",
                  id, t->n, SESSIONS_MAX);
        return NULL;
    }
    ASSERT(strlen(id) <= SESSION_ID_MAX);
    memcpy(s->id, id, strlen(id) + 1);
    s->number = t->n_created++;
    s->root = PREFIX_NONE;
    s->created_s = s->last_used_s = unix_s();
    TAILQ_INIT(&s->line);
    s->next = *at;
    *at = s;
    t->n++;
    return s;
}

int sessions_room(const struct sessions *t, uint32_t n_ids, struct error *err)
{
    uint64_t want = t->bytes + (uint64_t)n_ids * sizeof(uint32_t);
    if (want > SESSIONS_BYTES)
        return error_set(err, ERR_NO_MEMORY,
                         "no room for %u tokens more: the sessions' timelines would take %llu "
                         "bytes, at most %u; delete some",
                         n_ids, (unsigned long long)want, SESSIONS_BYTES);
    return 0;
}

/* What is counted is what is held: the room behind the last id is given back. */
static void fit_ids(struct session *s)
{
    uint32_t *less = mem_grow(s->ids, s->n_ids, sizeof(*s->ids));
    s->ids = less ? less : s->ids;
}

void session_keep(struct sessions *t, struct session *s, uint32_t *ids, uint32_t n, uint32_t root)
{
    prefix_root_share(t->prefix, root);
    prefix_root_drop(t->prefix, s->root);
    s->root = root;
    free(s->ids);
    t->bytes += ((uint64_t)n - s->n_ids) * sizeof(*ids);
    s->ids = ids;
    s->n_ids = n;
    fit_ids(s);
    s->last_used_s = unix_s();
}

/* Takes it out of the table; frees it when (as soon as) nobody is in line. */
static void remove_session(struct sessions *t, struct session *s)
{
    unlink_session(t, s);
    s->deleted = true;
    if (TAILQ_EMPTY(&s->line))
        session_free(t, s);
}

void session_leave(struct sessions *t, struct session *s, struct request *r)
{
    bool empty = !s->n_ids && r->result.session_created; /* of its first request nothing was kept */
    TAILQ_REMOVE(&s->line, r, line_link);
    r->session = NULL;
    if (!TAILQ_EMPTY(&s->line)) {
        struct request *next = TAILQ_FIRST(&s->line);
        next->result.session_created = next->result.session_created || empty;
    } else if (s->deleted) {
        session_free(t, s);
    } else if (empty) {
        remove_session(t, s);
    }
}

/* Held is what is in the page table of its running request, or what the cache still has. The last
 * token's keys and values are written when the next one is computed: its place is counted where all
 * before it is held, so that a session that lost nothing has the bytes of its tokens. */
static void describe(const struct sessions *t, const struct session *s, struct session_info *info)
{
    const struct request *r = TAILQ_FIRST(&s->line);
    bool runs = r && r->state == STATE_RUNNING;
    uint32_t n = runs ? r->n_timeline : s->n_ids;
    uint32_t n_held = runs ? r->seq.n_tokens : prefix_held(t->prefix, s->root, s->ids, n);
    if (n_held && n_held + 1 == n)
        n_held = n;
    *info = (struct session_info){.tokens = n,
                                  .bytes = (uint64_t)n_held * t->token_bytes,
                                  .created_s = s->created_s,
                                  .last_used_s = s->last_used_s,
                                  .state = r ? SESSION_RUNNING : SESSION_IDLE};
    memcpy(info->id, s->id, sizeof(info->id));
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = (*(struct session *const *)a)->number, y = (*(struct session *const *)b)->number;
    return (x > y) - (x < y);
}

static int list(struct sessions *t, struct session_command *c)
{
    struct session **all = mem_new(t->n, sizeof(struct session *));
    uint32_t n = 0;
    c->infos = mem_new(t->n, sizeof(*c->infos));
    if (!all || !c->infos) {
        free(all);
        free(c->infos);
        c->infos = NULL;
        return error_set(&c->err, ERR_NO_MEMORY, "no memory for a list of %u sessions", t->n);
    }
    for (uint32_t i = 0; i < SESSION_BUCKETS; i++)
        for (struct session *s = t->buckets[i]; s; s = s->next)
            all[n++] = s;
    qsort(all, n, sizeof(struct session *), by_number);
    for (uint32_t i = 0; i < n; i++)
        describe(t, all[i], &c->infos[i]);
    c->n_infos = n;
    free(all);
    return 0;
}

static int answer_one(struct sessions *t, const struct session *s, struct session_command *c)
{
    c->infos = mem_new(1, sizeof(*c->infos));
    if (!c->infos)
        return error_set(&c->err, ERR_NO_MEMORY, "no memory for an answer");
    describe(t, s, c->infos);
    c->n_infos = 1;
    return 0;
}

ON_ENGINE static int delete_session(struct sessions *t, struct session *s)
{
    struct request *r;
    TAILQ_FOREACH(r, &s->line, line_link)
    atomic_store(&r->cancel, true);
    remove_session(t, s);
    return 0;
}

ON_ENGINE static int fork_session(struct sessions *t, const struct session *s,
                                  struct session_command *c)
{
    uint32_t n = c->has_at ? c->at : s->n_ids;
    if (n > s->n_ids)
        return error_set_field(&c->err, ERR_INVALID, "at", "at is %u, the session has %u tokens", n,
                               s->n_ids);
    if (sessions_find(t, c->to))
        return error_set_field(&c->err, ERR_CONFLICT, "to", "session \"%s\" exists", c->to);
    if (sessions_room(t, n, &c->err))
        return -1;
    uint32_t *ids = mem_new(n, sizeof(*ids));
    struct session *copy = ids ? sessions_create(t, c->to, &c->err) : NULL;
    if (!copy) {
        free(ids);
        return ids ? -1 : error_set(&c->err, ERR_NO_MEMORY, "no memory for %u tokens", n);
    }
    if (n)
        memcpy(ids, s->ids, n * sizeof(*ids));
    session_keep(t, copy, ids, n, s->root);
    return answer_one(t, copy, c);
}

ON_ENGINE static int rewind_session(struct sessions *t, struct session *s,
                                    struct session_command *c)
{
    if (c->at > s->n_ids)
        return error_set_field(&c->err, ERR_INVALID, "to", "to is %u, the session has %u tokens",
                               c->at, s->n_ids);
    t->bytes -= (uint64_t)(s->n_ids - c->at) * sizeof(*s->ids);
    s->n_ids = c->at;
    fit_ids(s);
    s->last_used_s = unix_s();
    return answer_one(t, s, c);
}

ON_ENGINE static int run(struct sessions *t, struct session_command *c)
{
    if (c->verb == SESSION_LIST)
        return list(t, c);
    struct session *s = sessions_find(t, c->id);
    if (!s)
        return error_set_field(&c->err, ERR_NO_SESSION, "session", "no session \"%s\"", c->id);
    if ((c->verb == SESSION_FORK || c->verb == SESSION_REWIND) && !TAILQ_EMPTY(&s->line))
        return error_set_field(&c->err, ERR_CONFLICT, "session", "session \"%s\" is running",
                               c->id);
    switch (c->verb) {
    case SESSION_GET:
        return answer_one(t, s, c);
    case SESSION_DELETE:
        return delete_session(t, s);
    case SESSION_FORK:
        return fork_session(t, s, c);
    default:
        return rewind_session(t, s, c);
    }
}

void sessions_command(struct sessions *t, struct session_command *c)
{
    c->infos = NULL;
    c->n_infos = 0;
    c->err = (struct error){0};
    c->rc = run(t, c);
}
