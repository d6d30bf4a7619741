/* [16 stream] What the engine has for the loop: requests with news, answered session commands. The
 * engine collects in a step and publishes once; the loop is woken once. */
#pragma once

#include "core/sched/request.h"

#include <pthread.h>

struct ready {
    pthread_mutex_t mutex;
    struct request_list requests; /* each once */
    struct session_command *first, **last;

    /* the engine's, of this step */
    struct request *touched;
    struct session_command *answered, **answered_last;

    void (*wake)(void *arg);
    void *wake_arg;
};

void ready_open(struct ready *y, void (*wake)(void *arg), void *arg);
void ready_close(struct ready *y); /* lists must be drained */

/* r has news: an event, or (finished) its end. */
void ready_touch(struct ready *y, struct request *r) ON_ENGINE;
void ready_answer(struct ready *y, struct session_command *c) ON_ENGINE;

/* Hands everything over and wakes the loop. Requests that finished are the loop's from here on. */
void ready_publish(struct ready *y) ON_ENGINE;

struct request *ready_next(struct ready *y) ON_LOOP;
struct session_command *ready_next_answer(struct ready *y) ON_LOOP;

/* Takes a request that will be freed out of the list. */
void ready_remove(struct ready *y, struct request *r) ON_LOOP;
