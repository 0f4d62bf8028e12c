/* stream.c -- streams and events, as far as all devices do them alike. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "device/device_impl.h"

void td__stream_init(td_stream *s, td_device *d, bool at_once)
{
    s->device = d;
    s->at_once = at_once;
    pthread_mutex_init(&s->lock, NULL);
}

void td__stream_fini(td_stream *s)
{
    pthread_mutex_destroy(&s->lock);
}

td_status td__stream_create(td_device *d, td_stream **out)
{
    *out = NULL;
    TD_TRY(d->ops->stream(d, out));
    td__device_retain(d);
    return TD_OK;
}

void td__stream_destroy(td_stream *s)
{
    if (!s)
        return;
    td_device *d = s->device;
    td__stream_drain(s);
    d->ops->stream_destroy(s);
    td__device_release(d);
}

void td__stream_launch(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes)
{
    TD_ASSERT(nbytes <= TD__LAUNCH_ARGS, "%zu bytes of arguments", nbytes);
    if (s->tape && !s->device->ops->tape_begin)
        td__tape_record(s, fn, args, nbytes);
    else if (s->at_once)
        fn(args);
    else
        s->device->ops->launch(s, fn, args, nbytes);
}

typedef struct copy_args {
    const td_device *device;
    void *to;
    const void *from;
    size_t nbytes;
} copy_args;

static void run_copy(const void *args)
{
    const copy_args *c = args;
    memcpy(c->device->ops->local(c->device, c->to), c->device->ops->local(c->device, c->from),
           c->nbytes);
}

void td__stream_copy(td_stream *s, void *to, const void *from, size_t nbytes)
{
    copy_args c = {s->device, to, from, nbytes};
    if (nbytes && s->device->ops->copy)
        s->device->ops->copy(s, to, from, nbytes);
    else if (nbytes)
        td__stream_launch(s, run_copy, &c, sizeof c);
}

/* ---- Failures -------------------------------------------------------------------------------- */

void td__stream_fail(td_stream *s, td_status st, const char *fmt, ...)
{
    va_list ap;
    pthread_mutex_lock(&s->lock);
    if (!s->why) {
        s->why = st;
        va_start(ap, fmt);
        vsnprintf(s->text, sizeof s->text, fmt, ap);
        va_end(ap);
    }
    atomic_store_explicit(&s->failed, true, memory_order_release);
    pthread_mutex_unlock(&s->lock);
}

static td_status take_failure(td_stream *s)
{
    if (!atomic_load_explicit(&s->failed, memory_order_acquire))
        return TD_OK;
    pthread_mutex_lock(&s->lock);
    td_status st = s->why ? TD_FAIL(s->why, "%s", s->text) : TD_OK;
    s->why = TD_OK;
    atomic_store_explicit(&s->failed, false, memory_order_release);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- Events ---------------------------------------------------------------------------------- */

void td__event_record(td_stream *s, td_event *e)
{
    *e = (td_event){.stream = s};
    if (!s->at_once)
        s->device->ops->record(s, e);
}

static _Thread_local uint64_t waited_ns;

uint64_t td__stream_waited_ns(void)
{
    return waited_ns;
}

static bool done(const td_event *e, td__deadline until)
{
    if (e->stream->at_once)
        return true;
    uint64_t begin = td__clock_ns();
    bool is = e->stream->device->ops->done(e, until);
    waited_ns += td__clock_ns() - begin;
    return is;
}

void td__event_wait(td_stream *s, const td_event *e)
{
    if (e->stream == s)
        return;
    if (!s->at_once)
        s->device->ops->wait(s, e);
    else if (!done(e, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS)))
        td__stream_fail(s, TD_ETIMEDOUT, "timed out waiting for work on device %s",
                        e->stream->device->ops->name);
}

td_status td__event_sync(const td_event *e, td__deadline until)
{
    if (!done(e, until))
        return TD_FAIL(TD_ETIMEDOUT, "timed out waiting for work on device %s",
                       e->stream->device->ops->name);
    return take_failure(e->stream);
}

td_status td__stream_sync(td_stream *s)
{
    td_event e;
    if (s->at_once)
        return take_failure(s);
    td__event_record(s, &e);
    return td__event_sync(&e, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS));
}

void td__stream_drain(td_stream *s)
{
    td_event e;
    if (s->at_once)
        return;
    td__event_record(s, &e);
    if (!done(&e, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS)))
        td__stream_fail(s, TD_ETIMEDOUT, "timed out waiting for work on device %s",
                        s->device->ops->name);
}

void *td__stream_native(const td_stream *s)
{
    return s->device->ops->native ? s->device->ops->native(s) : NULL;
}

/* ---- Times ----------------------------------------------------------------------------------- */

struct td__timer {
    td_device *device; /* retained */
    int n;
    void *own; /* the device's */
};

td_status td__timer_create(td_device *d, int n, td__timer **out)
{
    *out = NULL;
    if (!d->ops->timer)
        return TD_OK;
    td__timer *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for %d times", n);
    *t = (td__timer){.device = d, .n = n};
    td_status st = d->ops->timer(d, n, &t->own);
    if (st) {
        td__free(t);
        return st;
    }
    td__device_retain(d);
    *out = t;
    return TD_OK;
}

void td__timer_destroy(td__timer *t)
{
    if (!t)
        return;
    t->device->ops->timer_destroy(t->device, t->n, t->own);
    td__device_release(t->device);
    td__free(t);
}

void td__timer_mark(td__timer *t, td_stream *s, int i)
{
    TD_ASSERT(i >= 0 && i < t->n && s->device == t->device, "time %d of %d", i, t->n);
    t->device->ops->timer_mark(s, t->own, i);
}

uint64_t td__timer_ns(const td__timer *t, int from, int to)
{
    return t->device->ops->timer_ns(t->device, t->own, from, to);
}
