/* [03 queue] The way in. The loop puts requests and commands under a mutex; the engine takes all at
 * once between two steps and sleeps here when there is nothing to do. Behind it, the engine's own:
 * the order in which checked requests wait for a slot. */
#pragma once

#include "core/sched/request.h"

#include <pthread.h>

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct request_list requests; /* by wait_link, as they came */
    struct session_command *first, **last;
    bool woken, stop;
};

struct queue_news {
    struct request_list requests;
    struct session_command *commands; /* by next */
    bool stop;
};

int queue_open(struct queue *q, struct error *err);
void queue_close(struct queue *q);

void queue_put(struct queue *q, struct request *r) ON_LOOP;
void queue_put_command(struct queue *q, struct session_command *c) ON_LOOP;

/* ANY_THREAD: a flag that the engine looks at before each step has changed. */
void queue_wake(struct queue *q);
void queue_stop(struct queue *q); /* the last thing it will hear */

/* Takes what has come. idle: sleeps first until something comes, or until the clock says until_ns
 * (0 = no such time). */
void queue_take(struct queue *q, struct queue_news *news, bool idle, uint64_t until_ns) ON_ENGINE;

/* Requests that wait for a slot: higher priority first, then as they came. */
void queue_insert(struct request_list *waiting, struct request *r) ON_ENGINE;
