/* far_stream.c -- a stream of the far device: a thread that takes work from a ring, in order.
 *
 * Work is numbered from 1; an event is the number of the last piece posted before it. Who posts
 * waits while the ring is full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "device/far/far.h"

enum { RING = 256 };

typedef struct work {
    td__stream_fn *fn;
    const void *by_reference; /* NULL: args */
    unsigned fp_mode;         /* of who posted it */
    _Alignas(16) unsigned char args[TD__LAUNCH_ARGS];
} work;

typedef struct far_stream {
    td_stream base;
    pthread_t thread;
    pthread_mutex_t lock; /* of the following */
    pthread_cond_t posted_one, done_one;
    uint64_t posted, done; /* pieces of work */
    bool ends;
    work ring[RING];
} far_stream;

static void *serve(void *user)
{
    far_stream *s = user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->posted == s->done && !s->ends)
            pthread_cond_wait(&s->posted_one, &s->lock);
        if (s->posted == s->done)
            break;
        const work *w = &s->ring[s->done % RING]; /* its place is free when it is done */
        pthread_mutex_unlock(&s->lock);
        td__cpu_fp_restore(w->fp_mode);
        w->fn(w->by_reference ? w->by_reference : w->args);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->done_one);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

td_status td__far_stream_create(td_device *d, td_stream **out)
{
    pthread_condattr_t attr;
    *out = NULL;
    far_stream *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a stream of device far");
    td__stream_init(&s->base, d, false);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->posted_one, &attr);
    pthread_cond_init(&s->done_one, &attr);
    pthread_condattr_destroy(&attr);
    int rc = pthread_create(&s->thread, NULL, serve, s);
    if (rc == 0) {
        *out = &s->base;
        return TD_OK;
    }
    pthread_cond_destroy(&s->posted_one);
    pthread_cond_destroy(&s->done_one);
    pthread_mutex_destroy(&s->lock);
    td__stream_fini(&s->base);
    td__free(s);
    return TD_FAIL(TD_ENOMEM, "no thread for a stream of device far: %s", strerror(rc));
}

void td__far_stream_destroy(td_stream *stream)
{
    far_stream *s = (far_stream *)stream;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_signal(&s->posted_one);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->posted_one);
    pthread_cond_destroy(&s->done_one);
    pthread_mutex_destroy(&s->lock);
    td__stream_fini(&s->base);
    td__free(s);
}

/* Until piece `at` is done; false: time is up. With the lock held. */
static bool wait_done(far_stream *s, uint64_t at, td__deadline until)
{
    struct timespec ts = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};
    while (s->done < at)
        if (until == TD_DEADLINE_NEVER)
            pthread_cond_wait(&s->done_one, &s->lock);
        else if (pthread_cond_timedwait(&s->done_one, &s->lock, &ts) == ETIMEDOUT && s->done < at)
            return false;
    return true;
}

void td__far_launch(td_stream *stream, td__stream_fn *fn, const void *args, size_t nbytes)
{
    far_stream *s = (far_stream *)stream;
    unsigned mode = td__cpu_fp_flush(); /* to learn it */
    td__cpu_fp_restore(mode);
    pthread_mutex_lock(&s->lock);
    bool room = s->posted < RING ||
                wait_done(s, s->posted - RING + 1, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS));
    if (room) {
        work *w = &s->ring[s->posted++ % RING];
        w->fn = fn;
        w->by_reference = nbytes ? NULL : args;
        w->fp_mode = mode;
        memcpy(w->args, args, nbytes);
        pthread_cond_signal(&s->posted_one);
    }
    pthread_mutex_unlock(&s->lock);
    if (!room)
        td__stream_fail(stream, TD_ETIMEDOUT,
                        "timed out waiting for room in a stream of device far");
}

void td__far_record(td_stream *stream, td_event *e)
{
    far_stream *s = (far_stream *)stream;
    pthread_mutex_lock(&s->lock);
    e->at = s->posted;
    pthread_mutex_unlock(&s->lock);
}

bool td__far_done(const td_event *e, td__deadline until)
{
    far_stream *s = (far_stream *)e->stream;
    pthread_mutex_lock(&s->lock);
    bool done = wait_done(s, e->at, until);
    pthread_mutex_unlock(&s->lock);
    return done;
}

typedef struct wait_args {
    td_stream *waits;
    td_event e;
} wait_args;

static void run_wait(const void *args)
{
    const wait_args *w = args;
    td_stream *of = w->e.stream;
    if (!of->at_once && !of->device->ops->done(&w->e, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS)))
        td__stream_fail(w->waits, TD_ETIMEDOUT, "timed out waiting for an event of device %s",
                        of->device->ops->name);
}

void td__far_wait(td_stream *s, const td_event *e)
{
    wait_args w = {s, *e};
    td__far_launch(s, run_wait, &w, sizeof w);
}
