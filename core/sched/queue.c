/* [03 queue] the way in: a mutex, a condition, two lists; and the order of those that wait. */
#include "core/sched/queue.h"

#include "core/base/clock.h"

#include <string.h>
#include <time.h>

int queue_open(struct queue *q, struct error *err)
{
    pthread_condattr_t attr;
    *q = (struct queue){.last = &q->first};
    TAILQ_INIT(&q->requests);
    int rc = pthread_mutex_init(&q->mutex, NULL);
    if (rc)
        return error_set(err, ERR_NO_MEMORY, "no mutex for the queue: %s", strerror(rc));
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&q->cond, &attr);
    pthread_condattr_destroy(&attr);
    if (rc) {
        pthread_mutex_destroy(&q->mutex);
        return error_set(err, ERR_NO_MEMORY, "no condition for the queue: %s", strerror(rc));
    }
    return 0;
}

void queue_close(struct queue *q)
{
    pthread_cond_destroy(&q->cond);
    pthread_mutex_destroy(&q->mutex);
}

static void wake_locked(struct queue *q)
{
    q->woken = true;
    pthread_cond_signal(&q->cond);
}

void queue_put(struct queue *q, struct request *r)
{
    pthread_mutex_lock(&q->mutex);
    TAILQ_INSERT_TAIL(&q->requests, r, wait_link);
    wake_locked(q);
    pthread_mutex_unlock(&q->mutex);
}

void queue_put_command(struct queue *q, struct session_command *c)
{
    pthread_mutex_lock(&q->mutex);
    c->next = NULL;
    *q->last = c;
    q->last = &c->next;
    wake_locked(q);
    pthread_mutex_unlock(&q->mutex);
}

void queue_wake(struct queue *q)
{
    pthread_mutex_lock(&q->mutex);
    wake_locked(q);
    pthread_mutex_unlock(&q->mutex);
}

void queue_stop(struct queue *q)
{
    pthread_mutex_lock(&q->mutex);
    q->stop = true;
    wake_locked(q);
    pthread_mutex_unlock(&q->mutex);
}

static void sleep_locked(struct queue *q, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    while (!q->woken && !q->stop && (!until_ns || clock_ns() < until_ns)) {
        if (until_ns)
            pthread_cond_timedwait(&q->cond, &q->mutex, &until);
        else
            pthread_cond_wait(&q->cond, &q->mutex);
    }
}

void queue_take(struct queue *q, struct queue_news *news, bool idle, uint64_t until_ns)
{
    TAILQ_INIT(&news->requests);
    pthread_mutex_lock(&q->mutex);
    if (idle)
        sleep_locked(q, until_ns);
    q->woken = false;
    TAILQ_CONCAT(&news->requests, &q->requests, wait_link);
    news->commands = q->first;
    q->first = NULL;
    q->last = &q->first;
    news->stop = q->stop;
    pthread_mutex_unlock(&q->mutex);
}

void queue_insert(struct request_list *waiting, struct request *r)
{
    struct request *before;
    TAILQ_FOREACH_REVERSE(before, waiting, request_list, wait_link)
    {
        if (before->params.priority > r->params.priority ||
            (before->params.priority == r->params.priority && before->number < r->number)) {
            TAILQ_INSERT_AFTER(waiting, before, r, wait_link);
            return;
        }
    }
    TAILQ_INSERT_HEAD(waiting, r, wait_link);
}
