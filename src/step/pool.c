/* pool.c -- see pool.h. A call is announced by raising `calls`; a thread that sees it does its part
 * and lowers `busy`. Both sides look at their counter for a few microseconds before they sleep:
 * between the phases of a step the next call comes at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fail.h"

enum { SPINS = 2000, MAX_THREADS = 1024, TEXT = 512 };

typedef struct worker {
    td__pool *pool;
    pthread_t thread;
    int index;
    td_status status;
    char error[TEXT];
} worker;

struct td__pool {
    worker *workers; /* [threads]; [0] is the caller */
    int threads, started;
    td__pool_fn *fn;
    void *user;
    atomic_uint_fast64_t calls;
    atomic_int busy;
    atomic_bool stop;
    pthread_mutex_t lock; /* for the two conditions alone; nothing else is taken under it */
    pthread_cond_t called, done;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Error texts belong to a thread: the caller must be given the worker's. */
static void run_part(worker *w)
{
    w->status = w->pool->fn(w->pool->user, w->index);
    if (w->status)
        snprintf(w->error, sizeof w->error, "%s", td_last_error());
}

static bool wait_for_call(td__pool *p, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->calls, memory_order_acquire) != seen)
            return !atomic_load(&p->stop);
        pause_briefly();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->calls) == seen)
        pthread_cond_wait(&p->called, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return !atomic_load(&p->stop);
}

static void *work(void *arg)
{
    worker *w = arg;
    td__pool *p = w->pool;
    for (uint64_t seen = 0; wait_for_call(p, seen); seen++) {
        run_part(w);
        if (atomic_fetch_sub(&p->busy, 1) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
    return NULL;
}

static void call(td__pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->calls, 1);
    pthread_cond_broadcast(&p->called);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_all(td__pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->busy, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->busy) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

td_status td__pool_create(int threads, td__pool **out)
{
    *out = NULL;
    if (threads == 0)
        threads = td__processors();
    if (threads < 1 || threads > MAX_THREADS)
        return TD_FAIL(TD_EINVAL, "%d compute threads: must be 1 to %d", threads, MAX_THREADS);
    td__pool *p = td__calloc(1, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory for compute threads");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->called, NULL);
    pthread_cond_init(&p->done, NULL);
    p->threads = threads;
    p->workers = td__calloc((size_t)threads, sizeof *p->workers);
    td_status st = p->workers ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d threads", threads);
    for (int i = 0; i < threads && !st; i++) {
        p->workers[i].pool = p;
        p->workers[i].index = i;
        int error = i ? pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]) : 0;
        if (error)
            st = TD_FAIL(TD_ENOMEM, "cannot start compute thread %d of %d: %s", i, threads,
                         strerror(error));
        else
            p->started = i + 1;
    }
    if (st) {
        td__pool_destroy(p);
        return st;
    }
    *out = p;
    return TD_OK;
}

void td__pool_destroy(td__pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    call(p);
    for (int i = 1; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->called);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    td__free(p->workers);
    td__free(p);
}

int td__pool_threads(const td__pool *p)
{
    return p->threads;
}

td_status td__pool_run(td__pool *p, td__pool_fn *fn, void *user)
{
    if (p->threads == 1)
        return fn(user, 0);
    p->fn = fn;
    p->user = user;
    atomic_store(&p->busy, p->threads - 1);
    call(p);
    run_part(&p->workers[0]);
    wait_for_all(p);
    for (int i = 0; i < p->threads; i++) {
        const worker *w = &p->workers[i];
        if (w->status)
            return i ? TD_FAIL(w->status, "%s", w->error) : w->status;
    }
    return TD_OK;
}
