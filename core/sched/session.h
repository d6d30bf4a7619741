/* [05 scheduler] Sessions: named timelines. A session is its token ids; the keys and values are
 * found again by prefix.c, or recomputed with the same bits, when the next request continues it.
 * So an idle session holds no page, and its pages are cached ones that pressure may take.
 *
 * Its requests stand in line: the first runs, the others wait for it. What they may hold together is
 * bounded (SESSIONS_MAX, SESSIONS_BYTES); a session is never dropped to make room for another,
 * for it would be begun anew unnoticed: the request that finds no room is refused. */
#pragma once

#include "core/sched/request.h"

enum { SESSIONS_MAX = 65536, SESSION_BUCKETS = 4096 };
#define SESSIONS_BYTES (256u << 20) /* of token ids */

struct session {
    char id[SESSION_ID_MAX + 1];
    uint64_t number; /* order of creation */
    uint32_t *ids;   /* [n_ids] the timeline when the last request ended */
    uint32_t n_ids;
    uint32_t root; /* the tree that its pages were last published in, or PREFIX_NONE */
    double created_s, last_used_s;
    bool deleted; /* no longer in the table; freed when its line is empty */
    struct request_list line;
    struct session *next; /* in its bucket */
};

struct sessions {
    struct session *buckets[SESSION_BUCKETS];
    uint32_t n;
    uint64_t n_created;
    uint64_t bytes; /* of all timelines */
    struct prefix *prefix;
    size_t token_bytes;
};

void sessions_open(struct sessions *t, struct prefix *prefix, size_t token_bytes);
void sessions_close(struct sessions *t) ON_ENGINE; /* lines must be empty */

struct session *sessions_find(struct sessions *t, const char *id) ON_ENGINE; /* or NULL */
struct session *sessions_create(struct sessions *t, const char *id, struct error *err) ON_ENGINE;

/* Room for a timeline of so many tokens more? */
int sessions_room(const struct sessions *t, uint32_t n_ids, struct error *err) ON_ENGINE;

/* The timeline becomes ids[0..n), which it takes over; its pages are in root's tree. */
void session_keep(struct sessions *t, struct session *s, uint32_t *ids, uint32_t n,
                  uint32_t root) ON_ENGINE;

/* Removes r from its line; frees the session where it was deleted and r was the last, or where it
 * never held a token. */
void session_leave(struct sessions *t, struct session *s, struct request *r) ON_ENGINE;

/* Answers a command (list, get, delete, fork, rewind). Deleting asks the requests in line to end. */
void sessions_command(struct sessions *t, struct session_command *c) ON_ENGINE;
