/* cuda_timer.c -- times of work on the GPU: events that the driver stamps when they are reached. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "device/cuda/cuda_impl.h"

void td__cuda_timer_destroy(td_device *d, int n, void *timer)
{
    CUevent *events = timer;
    td__cuda_enter(d);
    for (int i = 0; i < n; i++)
        if (events[i])
            td__cu.cuEventDestroy_v2(events[i]);
    td__free(events);
}

td_status td__cuda_timer(td_device *d, int n, void **out)
{
    CUevent *events = td__calloc((size_t)n + 1, sizeof(CUevent));
    CUresult r = CUDA_SUCCESS;
    *out = NULL;
    if (!events)
        return TD_FAIL(TD_ENOMEM, "no memory for %d events", n);
    td__cuda_enter(d);
    for (int i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = td__cu.cuEventCreate(&events[i], CU_EVENT_DEFAULT);
    if (r != CUDA_SUCCESS) {
        td__cuda_timer_destroy(d, n, (void *)events);
        return td__cuda_status(r, "events");
    }
    *out = (void *)events;
    return TD_OK;
}

void td__cuda_timer_mark(td_stream *s, void *timer, int i)
{
    td__cuda_enter(s->device);
    td__cuda_check(s, td__cu.cuEventRecord(((CUevent *)timer)[i], td__cuda_stream(s)), "event");
}

/* The driver's times are multiples of half a microsecond. */
uint64_t td__cuda_timer_ns(td_device *d, void *timer, int from, int to)
{
    CUevent *events = timer;
    float ms = 0;
    td__cuda_enter(d);
    if (td__cu.cuEventElapsedTime_v2(&ms, events[from], events[to]) != CUDA_SUCCESS || !(ms > 0))
        return 0;
    return (uint64_t)((double)ms * 1e6);
}
