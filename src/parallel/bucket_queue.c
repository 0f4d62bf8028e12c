/* bucket_queue.c -- see bucket_queue.h. `done` counts the jobs that are over, hence is the next one
 * to be taken; `posted` says which may be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/bucket_queue.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"

enum { TEXT = 512 };

struct td__bucket_queue {
    int n;
    td__bucket_fn *fn;
    void *user;
    bool threaded;
    pthread_t thread;

    pthread_mutex_t lock;            /* of all below; nothing else is taken under it */
    pthread_cond_t to_do, have_done; /* the thread's, the owner's */
    bool *posted;
    td__bucket_span *spans;
    int done;
    bool running, cancelled, ending;
    td_status status; /* of the first job that failed */
    char error[TEXT];
};

/* The next job, with the lock held, which is let go meanwhile. */
static void run_next(td__bucket_queue *q)
{
    int k = q->done;
    q->running = true;
    pthread_mutex_unlock(&q->lock);
    uint64_t begin = td__clock_ns(), cpu = td__clock_thread_ns();
    td_status st = q->fn(q->user, k);
    uint64_t end = td__clock_ns();
    cpu = td__clock_thread_ns() - cpu;
    pthread_mutex_lock(&q->lock);
    q->running = false;
    q->spans[k].begin_ns = begin;
    q->spans[k].end_ns = end;
    q->spans[k].cpu_ns = cpu;
    q->done = k + 1;
    if (st) {
        q->status = st;
        snprintf(q->error, sizeof q->error, "%s", td_last_error());
    }
}

static bool can_run(const td__bucket_queue *q)
{
    return q->done < q->n && q->posted[q->done] && !q->status && !q->cancelled;
}

static void *work(void *arg)
{
    td__bucket_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    while (!q->ending) {
        if (!can_run(q)) {
            pthread_cond_wait(&q->to_do, &q->lock);
            continue;
        }
        run_next(q);
        pthread_cond_broadcast(&q->have_done);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

td_status td__bucket_queue_create(int n, bool thread, td__bucket_fn *fn, void *user,
                                  td__bucket_queue **out)
{
    *out = NULL;
    td__bucket_queue *q = td__calloc(1, sizeof *q);
    if (!q)
        return TD_FAIL(TD_ENOMEM, "no memory for a queue of buckets");
    q->n = q->done = n;
    q->fn = fn;
    q->user = user;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->to_do, NULL);
    pthread_cond_init(&q->have_done, NULL);
    q->posted = td__calloc((size_t)n + 1, sizeof *q->posted);
    q->spans = td__calloc((size_t)n + 1, sizeof *q->spans);
    td_status st =
        q->posted && q->spans ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d buckets", n);
    if (!st && thread) {
        int error = pthread_create(&q->thread, NULL, work, q);
        q->threaded = !error;
        if (error)
            st = TD_FAIL(TD_ENOMEM, "cannot start the thread that reduces gradients: %s",
                         strerror(error));
    }
    if (st) {
        td__bucket_queue_destroy(q);
        return st;
    }
    *out = q;
    return TD_OK;
}

void td__bucket_queue_destroy(td__bucket_queue *q)
{
    if (!q)
        return;
    if (q->threaded) {
        pthread_mutex_lock(&q->lock);
        q->ending = true;
        pthread_cond_signal(&q->to_do);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
    }
    pthread_cond_destroy(&q->to_do);
    pthread_cond_destroy(&q->have_done);
    pthread_mutex_destroy(&q->lock);
    td__free(q->posted);
    td__free(q->spans);
    td__free(q);
}

void td__bucket_queue_begin(td__bucket_queue *q)
{
    pthread_mutex_lock(&q->lock);
    TD_ASSERT(!q->running && (q->done == q->n || q->cancelled || q->status),
              "%d of %d buckets of the last step are done", q->done, q->n);
    memset(q->posted, 0, (size_t)q->n * sizeof *q->posted);
    memset(q->spans, 0, (size_t)q->n * sizeof *q->spans);
    q->done = 0;
    q->cancelled = false;
    q->status = TD_OK;
    pthread_mutex_unlock(&q->lock);
}

void td__bucket_queue_post(td__bucket_queue *q, int k)
{
    pthread_mutex_lock(&q->lock);
    TD_ASSERT(k >= 0 && k < q->n && !q->posted[k], "bucket %d of %d", k, q->n);
    q->posted[k] = true;
    q->spans[k].posted_ns = td__clock_ns();
    if (q->threaded && k == q->done)
        pthread_cond_signal(&q->to_do);
    pthread_mutex_unlock(&q->lock);
}

td_status td__bucket_queue_wait(td__bucket_queue *q, int k)
{
    pthread_mutex_lock(&q->lock);
    while (q->done <= k && !q->status && !q->cancelled) {
        if (q->threaded) {
            pthread_cond_wait(&q->have_done, &q->lock);
            continue;
        }
        TD_ASSERT(can_run(q), "bucket %d was not posted", q->done);
        run_next(q);
    }
    td_status st = q->status;
    if (st && q->done <= k + 1)
        st = TD_FAIL(st, "%s", q->error);
    else if (st && q->done > k + 1)
        st = TD_OK;
    else if (q->done <= k)
        st = TD_FAIL(TD_EABORTED, "the step was given up");
    pthread_mutex_unlock(&q->lock);
    return st;
}

void td__bucket_queue_cancel(td__bucket_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->cancelled = true;
    while (q->running)
        pthread_cond_wait(&q->have_done, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

const td__bucket_span *td__bucket_queue_spans(const td__bucket_queue *q)
{
    return q->spans;
}
