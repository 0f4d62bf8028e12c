/* cuda_stream.c -- streams of a GPU: launches, copies, events. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/cuda/cuda_impl.h"

static td__cuda_stream_t *of(const td_stream *s)
{
    return (td__cuda_stream_t *)(uintptr_t)s;
}

CUstream td__cuda_stream(const td_stream *s)
{
    return of(s)->stream;
}

void td__cuda_check(td_stream *s, CUresult r, const char *what)
{
    char text[160];
    if (r != CUDA_SUCCESS)
        td__stream_fail(s, r == CUDA_ERROR_OUT_OF_MEMORY ? TD_ENOMEM : TD_EIO,
                        "device cuda: %s: %s", what, td__cuda_text(r, text, sizeof text));
}

/* ---- Streams --------------------------------------------------------------------------------- */

void td__cuda_stream_destroy(td_stream *stream)
{
    td__cuda_stream_t *s = of(stream);
    td__cuda_enter(stream->device);
    if (s->stream)
        td__cu.cuStreamSynchronize(s->stream);
    if (s->staging)
        td__cu.cuMemFree_v2(s->staging);
    for (int i = 0; i < TD__CUDA_EVENTS; i++)
        if (s->events[i])
            td__cu.cuEventDestroy_v2(s->events[i]);
    if (s->stream)
        td__cu.cuStreamDestroy_v2(s->stream);
    pthread_mutex_destroy(&s->lock);
    td__stream_fini(stream);
    td__free(s);
}

td_status td__cuda_stream_create(td_device *d, td_stream **out)
{
    *out = NULL;
    td__cuda_stream_t *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a stream of device cuda");
    td__stream_init(&s->base, d, false);
    pthread_mutex_init(&s->lock, NULL);
    td__cuda_enter(d);
    CUresult r = td__cu.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < TD__CUDA_EVENTS && r == CUDA_SUCCESS; i++)
        r = td__cu.cuEventCreate(&s->events[i], CU_EVENT_DISABLE_TIMING);
    td_status st = td__cuda_status(r, "a stream");
    if (st) {
        td__cuda_stream_destroy(&s->base);
        return st;
    }
    *out = &s->base;
    return TD_OK;
}

/* The function puts its work into the stream by itself. */
void td__cuda_call(td_stream *s, td__stream_fn *fn, const void *args, size_t nbytes)
{
    (void)nbytes;
    td__cuda_enter(s->device);
    fn(args);
}

CUresult td__cuda_start(td_stream *s, CUfunction kernel, td__cuda_grid g, const void *args)
{
    void *params[] = {(void *)(uintptr_t)args};
    if (!g.x)
        return CUDA_SUCCESS;
    return td__cu.cuLaunchKernel(kernel, g.x, g.y ? g.y : 1, g.z ? g.z : 1, g.threads, 1, 1,
                                 g.shared, of(s)->stream, params, NULL);
}

void td__cuda_launch(td_stream *s, CUfunction kernel, td__cuda_grid g, const void *args)
{
    td__cuda_check(s, td__cuda_start(s, kernel, g, args), "launch");
}

void td__cuda_copy(td_stream *s, void *to, const void *from, size_t nbytes)
{
    td__cuda_enter(s->device);
    td__cuda_check(
        s, td__cu.cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, nbytes, of(s)->stream), "copy");
}

void td__cuda_zero(td_stream *s, void *at, size_t nbytes)
{
    if (nbytes)
        td__cuda_check(s, td__cu.cuMemsetD8Async((CUdeviceptr)at, 0, nbytes, of(s)->stream),
                       "clearing memory");
}

/* ---- Events ---------------------------------------------------------------------------------- */

void td__cuda_record(td_stream *stream, td_event *e)
{
    td__cuda_stream_t *s = of(stream);
    td__cuda_enter(stream->device);
    pthread_mutex_lock(&s->lock);
    e->at = s->recorded++ % TD__CUDA_EVENTS;
    td__cuda_check(stream, td__cu.cuEventRecord(s->events[e->at], s->stream), "event");
    pthread_mutex_unlock(&s->lock);
}

void td__cuda_wait(td_stream *s, const td_event *e)
{
    td__cuda_enter(s->device);
    if (e->stream->device == s->device)
        td__cuda_check(s, td__cu.cuStreamWaitEvent(of(s)->stream, of(e->stream)->events[e->at], 0),
                       "event");
    else if (!e->stream->at_once && /* of another device: the host waits */
             !e->stream->device->ops->done(e, td__deadline_in_ms(TD__DEVICE_TIMEOUT_MS)))
        td__stream_fail(s, TD_ETIMEDOUT, "timed out waiting for work on device %s",
                        e->stream->device->ops->name);
}

/* The driver has no wait with a deadline. Steps take milliseconds, and a thread that waits has
 * nothing else to do: it asks again and again, and lets others run in between. */
bool td__cuda_done(const td_event *e, td__deadline until)
{
    td__cuda_enter(e->stream->device);
    CUevent event = of(e->stream)->events[e->at];
    for (unsigned i = 1;; i++) {
        CUresult r = td__cu.cuEventQuery(event);
        if (r != CUDA_ERROR_NOT_READY) {
            td__cuda_check(e->stream, r, "a kernel failed");
            return true;
        }
        if (i % 64 == 0 && td__deadline_passed(until))
            return false;
        if (i % 16 == 0)
            sched_yield();
    }
}
