/* work.c -- asynchronous calls: one worker thread for a comm, started with the first of them, which
 * runs calls in the order they were made.
 *
 * A work item is used by two threads: the worker until it is done, the caller until it has waited.
 * Items and lock live in the queue, which lives until the comm and all callers have let go of it;
 * items are reused, so that a training step allocates none.
 *
 * Locks     queue.lock protects the list, the free list and the counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm_impl.h"

struct td_work {
    td__coll_call call;
    td__queue *queue;
    td_work *next;
    atomic_bool done;
    td_status status;
    char text[400];
};

struct td__queue {
    td_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t submitted, finished;
    td_work *head, **tail; /* the first is the one that runs */
    td_work *spare;
    bool stop;
    int refs; /* the comm, and each item that a caller holds */
};

static void *serve(void *arg)
{
    td__queue *q = arg;

    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->head && !q->stop)
            pthread_cond_wait(&q->submitted, &q->lock);
        td_work *w = q->head;
        if (!w)
            break;
        pthread_mutex_unlock(&q->lock);
        td_status st = td__comm_run(q->comm, &w->call);
        pthread_mutex_lock(&q->lock);
        w->status = st;
        if (st)
            snprintf(w->text, sizeof w->text, "%s", td_last_error());
        q->head = w->next;
        if (!q->head)
            q->tail = &q->head;
        atomic_store_explicit(&w->done, true, memory_order_release);
        pthread_cond_broadcast(&q->finished);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static td_status queue_create(td_comm *c, td__queue **out)
{
    td__queue *q = td__calloc(1, sizeof *q);

    if (!q)
        return TD_FAIL(TD_ENOMEM, "a queue of asynchronous calls");
    q->comm = c;
    q->tail = &q->head;
    q->refs = 1;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->submitted, NULL);
    pthread_cond_init(&q->finished, NULL);
    int rc = pthread_create(&q->thread, NULL, serve, q);
    if (rc) {
        pthread_cond_destroy(&q->finished);
        pthread_cond_destroy(&q->submitted);
        pthread_mutex_destroy(&q->lock);
        td__free(q);
        return TD_FAIL(TD_ENOMEM, "the thread of asynchronous calls: error %d", rc);
    }
    *out = q;
    return TD_OK;
}

/* Called with the lock held, which is given up. */
static void release(td__queue *q)
{
    bool last = --q->refs == 0;

    pthread_mutex_unlock(&q->lock);
    if (!last)
        return;
    while (q->spare) {
        td_work *w = q->spare;
        q->spare = w->next;
        td__free(w);
    }
    pthread_cond_destroy(&q->finished);
    pthread_cond_destroy(&q->submitted);
    pthread_mutex_destroy(&q->lock);
    td__free(q);
}

void td__queue_destroy(td__queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    bool busy = q->head != NULL;
    pthread_cond_signal(&q->submitted);
    pthread_mutex_unlock(&q->lock);
    if (busy) /* leaving waits for nobody */
        td_comm_abort(q->comm, "the communicator was destroyed with calls in flight");
    pthread_join(q->thread, NULL);
    pthread_mutex_lock(&q->lock);
    release(q);
}

td_status td__comm_submit(td_comm *c, td__coll_call *call, td_work **work)
{
    *work = NULL;
    if (!c->queue)
        TD_TRY(queue_create(c, &c->queue));
    td__queue *q = c->queue;
    pthread_mutex_lock(&q->lock);
    td_work *w = q->spare;
    if (w)
        q->spare = w->next;
    else
        w = td__calloc(1, sizeof *w);
    if (!w) {
        pthread_mutex_unlock(&q->lock);
        return TD_FAIL(TD_ENOMEM, "an asynchronous call");
    }
    w->call = *call;
    w->queue = q;
    w->next = NULL;
    w->status = TD_OK;
    atomic_store_explicit(&w->done, false, memory_order_relaxed);
    *q->tail = w;
    q->tail = &w->next;
    q->refs++;
    pthread_cond_signal(&q->submitted);
    pthread_mutex_unlock(&q->lock);
    *work = w;
    return TD_OK;
}

void td__comm_drain(td_comm *c)
{
    td__queue *q = c->queue;

    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    while (q->head)
        pthread_cond_wait(&q->finished, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

td_status td_work_wait(td_work *w)
{
    if (!w)
        return TD_FAIL(TD_EINVAL, "waiting for an asynchronous call that is NULL");
    td__queue *q = w->queue;

    pthread_mutex_lock(&q->lock);
    while (!atomic_load_explicit(&w->done, memory_order_acquire))
        pthread_cond_wait(&q->finished, &q->lock); /* the call itself has a deadline */
    td_status st = w->status ? TD_FAIL(w->status, "%s", w->text) : TD_OK;
    w->next = q->spare;
    q->spare = w;
    release(q);
    return st;
}

bool td_work_done(const td_work *w)
{
    return atomic_load_explicit(&w->done, memory_order_acquire);
}
