/* [16 stream] what the engine has for the loop, handed over once a step. */
#include "core/sched/ready.h"

#include "core/base/mem.h"

void ready_open(struct ready *y, void (*wake)(void *arg), void *arg)
{
    *y = (struct ready){.wake = wake, .wake_arg = arg};
    pthread_mutex_init(&y->mutex, NULL);
    TAILQ_INIT(&y->requests);
    y->last = &y->first;
    y->answered_last = &y->answered;
}

void ready_close(struct ready *y)
{
    ASSERT(!y->first && !y->touched && !y->answered);
    pthread_mutex_destroy(&y->mutex);
}

void ready_touch(struct ready *y, struct request *r)
{
    if (r->touched)
        return;
    r->touched = true;
    r->touched_next = y->touched;
    y->touched = r;
}

void ready_answer(struct ready *y, struct session_command *c)
{
    c->next = NULL;
    *y->answered_last = c;
    y->answered_last = &c->next;
}

void ready_publish(struct ready *y)
{
    if (!y->touched && !y->answered)
        return;
    pthread_mutex_lock(&y->mutex);
    for (struct request *r = y->touched, *next; r; r = next) {
        next = r->touched_next;
        r->touched = false;
        if (!r->is_ready) {
            r->is_ready = true;
            TAILQ_INSERT_TAIL(&y->requests, r, ready_link);
        }
        if (r->finished)
            atomic_store(&r->done, true); /* the last touch: the loop may free it after unlock */
    }
    if (y->answered) {
        *y->last = y->answered;
        y->last = y->answered_last;
    }
    pthread_mutex_unlock(&y->mutex);
    y->touched = NULL;
    y->answered = NULL;
    y->answered_last = &y->answered;
    if (y->wake)
        y->wake(y->wake_arg);
}

struct request *ready_next(struct ready *y)
{
    pthread_mutex_lock(&y->mutex);
    struct request *r = TAILQ_FIRST(&y->requests);
    if (r) {
        TAILQ_REMOVE(&y->requests, r, ready_link);
        r->is_ready = false;
    }
    pthread_mutex_unlock(&y->mutex);
    return r;
}

struct session_command *ready_next_answer(struct ready *y)
{
    pthread_mutex_lock(&y->mutex);
    struct session_command *c = y->first;
    if (c) {
        y->first = c->next;
        if (!y->first)
            y->last = &y->first;
    }
    pthread_mutex_unlock(&y->mutex);
    return c;
}

void ready_remove(struct ready *y, struct request *r)
{
    pthread_mutex_lock(&y->mutex);
    TAILQ_REMOVE(&y->requests, r, ready_link);
    r->is_ready = false;
    pthread_mutex_unlock(&y->mutex);
}
