/* [05 scheduler] The engine's door for serving: open, submit, poll, cancel, close. With
 * core/tool.h and core/base the only core headers that server/ sees. It knows nothing of HTTP,
 * JSON or settings.
 *
 * Life of a request: the loop makes it (engine_request_new), submits it, polls events after each
 * wake, and releases it after EVENT_DONE. Every submitted request gets exactly one EVENT_DONE,
 * whatever happens (success, error, cancel, deadline, shutdown); after it the engine never touches
 * the request again. Cancelling only asks. That is the one release path. */
#pragma once

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/sample/sample.h"
#include "core/text/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct request;

enum { SESSION_ID_MAX = 128, REQUEST_ID_MAX = 128 };

struct engine_options {
    const char *model;    /* path */
    uint32_t threads;     /* 0 = processors allowed; never more than those */
    uint32_t context;     /* 0 = the model's, at most what fits */
    uint32_t max_running; /* rows decoded at once */
    uint32_t page_tokens;
    uint32_t prefill_chunk; /* rows of prefill a step; 0 = by step_ms */
    uint32_t step_ms;
    uint64_t kv_memory;      /* bytes; 0 = what fits */
    const char *kv_type;     /* "f16" | "f32" | "q8" */
    const char *activations; /* "int8" | "int16" | "float" */
    const char *blas;        /* "auto" | "off" */
    const char *speculation; /* "auto" | "off" | "on" */
    bool sessions_auto_create;
    void (*wake)(void *arg); /* ANY_THREAD, at most once before a step and once after: poll */
    void *wake_arg;
};

enum engine_state { ENGINE_LOADING, ENGINE_READY, ENGINE_FAILED };

/* Starts the engine thread, which loads the model; returns at once. The options' strings are copied. */
struct engine *engine_open(const struct engine_options *options, struct error *err);

/* Stops loading or computing (at most one step more), ends every request with ERR_DRAINING or
 * `cancelled`, joins the threads, frees all. Requests that were not released stay the loop's to
 * release before this call. NULL is fine. */
void engine_close(struct engine *e);

/* ANY_THREAD. ENGINE_FAILED fills *err. */
enum engine_state engine_state(const struct engine *e, struct error *err);

/* What the model is. Valid and constant once READY. */
struct engine_model {
    const char *path, *file_name, *arch, *types; /* "Q4_1, F32" */
    uint64_t n_params, file_bytes;
    uint32_t context; /* per request */
    uint32_t n_ctx_train, n_vocab, n_layers;
    uint32_t page_tokens, n_pages;
    uint32_t threads;
    const char *cpu_level, *blas_name, *kv_type, *activations; /* blas_name "" = not used */
    uint64_t kv_token_bytes;
    struct sample_defaults defaults; /* the file's general.sampling.* keys, else the usual ones */
};
const struct engine_model *engine_model(const struct engine *e);
const struct text *engine_text(const struct engine *e); /* once READY */

/* ---- requests ---- */

enum timeline_mode {
    TIMELINE_APPEND,  /* `prompt`: ids go behind the session's timeline */
    TIMELINE_COMPARE, /* `messages`: ids are the whole timeline; rewinds to the common prefix */
};

struct request_params {
    char id[REQUEST_ID_MAX + 1];
    char session[SESSION_ID_MAX + 1]; /* "" = anonymous, ends with the request */
    enum timeline_mode mode;
    bool add_bos; /* where the timeline is empty */
    uint32_t max_tokens, min_tokens;
    bool ignore_eos;
    struct sample_params sampling;
    char **stops; /* [n_stops] malloc'd; may contain NUL bytes: n_stop gives the lengths */
    size_t *n_stop;
    uint32_t n_stops;
    uint64_t deadline_ms; /* from submit; 0 = none */
    int32_t priority;     /* higher first in the queue */
    bool cache;           /* may use and feed the shared prefix cache */
    char cache_salt[129]; /* prefixes are shared only where salts are equal */
};

/* Takes over params' heap members (also when it fails). ON_LOOP. */
struct request *request_new(struct request_params *params, struct error *err);

/* The text role's part, before submit: the prompt's ids (taken over, *ids is emptied). */
void request_set_ids(struct request *r, struct ids *ids);
const struct request_params *request_params(const struct request *r);

void engine_submit(struct engine *e, struct request *r) ON_LOOP;
void engine_cancel(struct engine *e, struct request *r) ON_LOOP; /* asks; EVENT_DONE still comes */

/* Gives up the request: not submitted, or EVENT_DONE was polled. */
void request_release(struct request *r);

enum engine_event_kind {
    EVENT_NONE,     /* nothing there now */
    EVENT_STARTED,  /* checked, fits, will run: errors of the request come before this or never */
    EVENT_PROGRESS, /* prefilled so far; at most one unread */
    EVENT_TOKEN,    /* one token chosen; text that may leave now (possibly none) */
    EVENT_DONE,     /* the last */
};

enum finish_reason { FINISH_STOP, FINISH_LENGTH, FINISH_DEADLINE, FINISH_CANCELLED, FINISH_ERROR };
enum stop_type { STOP_NONE, STOP_EOS, STOP_WORD, STOP_LIMIT };

struct request_result {
    enum finish_reason finish;
    enum stop_type stop;
    int32_t stop_index;                                       /* STOP_WORD: which of the stops */
    struct error error;                                       /* FINISH_ERROR */
    uint32_t prompt_tokens, cached_tokens, completion_tokens; /* prompt: the whole timeline */
    double queue_ms, prefill_ms, ttft_ms, decode_ms;          /* ttft from submit */
    uint32_t prefilled_tokens;                                /* computed, not cached */
    uint32_t session_tokens;
    bool session_created;
};

struct engine_event {
    enum engine_event_kind kind;
    uint32_t prefilled, prompt_tokens; /* STARTED, PROGRESS */
    struct sample_choice choice;       /* TOKEN */
    const char *text; /* TOKEN and DONE: valid until the next poll of this request */
    size_t n_text;
    uint64_t at_ns;                      /* when the engine made it */
    const struct request_result *result; /* DONE: valid until release */
};

/* Next event of the request. ON_LOOP. Non-blocking. When a full ring is half empty again the engine
 * is told by itself. */
void request_poll(struct engine *e, struct request *r, struct engine_event *event) ON_LOOP;

/* After a wake: the next request that has events, or NULL. Each is given once per wake. */
struct request *engine_next_ready(struct engine *e) ON_LOOP;

void request_set_owner(struct request *r, void *owner); /* the server's object */
void *request_owner(const struct request *r);

/* ---- sessions and books; answers come by callback ON_LOOP (from engine_next_ready) ---- */

enum session_state { SESSION_IDLE, SESSION_RUNNING };

struct session_info {
    char id[SESSION_ID_MAX + 1];
    uint32_t tokens;
    uint64_t bytes; /* of KV held: tokens in pages, the last one's place too, x kv_token_bytes */
    double created_s, last_used_s; /* Unix time */
    enum session_state state;
};

enum session_verb { SESSION_LIST, SESSION_GET, SESSION_DELETE, SESSION_FORK, SESSION_REWIND };

struct session_command {
    enum session_verb verb;
    char id[SESSION_ID_MAX + 1];
    char to[SESSION_ID_MAX + 1]; /* FORK: new name */
    bool has_at;
    uint32_t at; /* FORK: keep this many tokens; REWIND: to */
    /* the answer */
    int rc; /* 0, or -1 with *err */
    struct error err;
    struct session_info *infos; /* malloc'd [n_infos]: the caller frees */
    uint32_t n_infos;
    void (*done)(struct session_command *c); /* ON_LOOP */
    void *owner;
    struct session_command *next; /* the engine's */
};
void engine_session(struct engine *e, struct session_command *c) ON_LOOP;

enum request_phase { PHASE_QUEUED, PHASE_PREFILL, PHASE_DECODE };
struct request_info { /* ON_LOOP, of any submitted request; a snapshot of atomics */
    enum request_phase phase;
    uint32_t prompt_tokens, prefilled, completion_tokens;
    double age_ms;
};
void request_info(const struct request *r, struct request_info *info) ON_LOOP;

/* Counters and gauges. ANY_THREAD: a snapshot of atomics. */
struct engine_stats {
    uint64_t steps, rows, tokens_in, tokens_out, tokens_cached; /* in: prompt tokens computed */
    uint64_t tokens_drafted, drafts_held; /* speculation: computed, and of these picked */
    uint64_t requests_cancelled;
    uint32_t running, waiting;
    uint32_t pages_total, pages_used, pages_cached, pages_free, pages_reserved;
    uint32_t sessions;
    uint64_t scores;    /* q.k of one layer and head */
    uint64_t heartbeat; /* rises with every layer computed and tensor loaded */
    uint64_t blas_calls;
    double last_step_ms, longest_step_ms;
    bool busy; /* computing or loading now: then the heartbeat must move */
};
void engine_stats(const struct engine *e, struct engine_stats *stats);
