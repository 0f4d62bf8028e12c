/* work.c -- the threads; see work.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/work.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"

typedef struct queue {
    td__work *first, **last_link;
} queue;

struct td__work_threads {
    td__loop *loop;
    td__task task;        /* on the loop: finished work is there */
    pthread_mutex_t lock; /* protects what follows; taken alone */
    pthread_cond_t some;
    queue waiting, finished;
    bool leaving, posted;
    int n_threads, n_idle, n_waiting; /* threads; of them idle; work in `waiting` */
    int most;
    pthread_t threads[];
};

static void put(queue *q, td__work *w)
{
    w->next = NULL;
    *q->last_link = w;
    q->last_link = &w->next;
}

static td__work *take(queue *q)
{
    td__work *w = q->first;

    if (w)
        q->first = w->next;
    if (!q->first)
        q->last_link = &q->first;
    return w;
}

/* The loop gets it back. With the lock held. */
static void finish(td__work_threads *w, td__work *work)
{
    put(&w->finished, work);
    if (!w->posted)
        td__loop_post(w->loop, &w->task);
    w->posted = true;
}

static void *worker(void *arg)
{
    td__work_threads *w = arg;
    td__work *work;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        w->n_idle++;
        while (!w->waiting.first && !w->leaving)
            pthread_cond_wait(&w->some, &w->lock);
        w->n_idle--;
        if (w->leaving)
            break;
        work = take(&w->waiting);
        w->n_waiting--;
        pthread_mutex_unlock(&w->lock);
        work->run(work->arg);
        work->was_run = true;
        pthread_mutex_lock(&w->lock);
        finish(w, work);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void hand_back(void *arg)
{
    td__work_threads *w = arg;
    td__work *work, *next;

    pthread_mutex_lock(&w->lock);
    w->posted = false;
    work = w->finished.first;
    w->finished = (queue){NULL, &w->finished.first};
    pthread_mutex_unlock(&w->lock);
    for (; work; work = next) {
        next = work->next;
        work->done(work->arg, work->was_run);
    }
}

td_status td__work_threads_create(td__loop *l, int n_threads, td__work_threads **out)
{
    td__work_threads *w = td__calloc(1, sizeof *w + (size_t)n_threads * sizeof w->threads[0]);

    *out = NULL;
    if (!w)
        return TD_FAIL(TD_ENOMEM, "workers: out of memory");
    w->loop = l;
    w->task = (td__task){.run = hand_back, .arg = w};
    w->waiting.last_link = &w->waiting.first;
    w->finished.last_link = &w->finished.first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->some, NULL);
    w->most = n_threads;
    *out = w;
    return TD_OK;
}

void td__work_threads_destroy(td__work_threads *w)
{
    td__work *work;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->leaving = true;
    pthread_cond_broadcast(&w->some);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i], NULL);
    td__loop_unpost(w->loop, &w->task);
    hand_back(w);
    while ((work = take(&w->waiting)) != NULL)
        work->done(work->arg, false);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->some);
    td__free(w);
}

/* A thread is started when there is more work than idle threads, so that a server that has none
 * for them has none of them either. Where none can be started and there is none, work is handed
 * back as not run. With the lock held. */
static void start_thread(td__work_threads *w)
{
    int e = pthread_create(&w->threads[w->n_threads], NULL, worker, w);

    if (!e) {
        w->n_threads++;
        return;
    }
    TD_LOG(WARN, SERVICE, "workers: cannot start a thread: %s", strerror(e));
    if (!w->n_threads)
        for (td__work *work; (work = take(&w->waiting)) != NULL; w->n_waiting--)
            finish(w, work);
}

void td__work_threads_add(td__work_threads *w, td__work *work)
{
    work->was_run = false;
    pthread_mutex_lock(&w->lock);
    put(&w->waiting, work);
    w->n_waiting++;
    if (w->n_waiting > w->n_idle && w->n_threads < w->most)
        start_thread(w);
    pthread_cond_signal(&w->some);
    pthread_mutex_unlock(&w->lock);
}
