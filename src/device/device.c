/* device.c -- the table of open devices, memory, and how the host sees it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "device/device_impl.h"

static const td_device_ops *const DEVICES[] = {
#define TD_DEVICE(name) &td__##name##_device,
#include "device/devices.def"
#undef TD_DEVICE
};

/* A device is a thing of the process: params of one program are read by kernels of another. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* of the following, and `holders` */
enum { NUMBERS = 64 };
static td_device *open_devices[TD_LEN(DEVICES)][NUMBERS];

/* ---- Devices --------------------------------------------------------------------------------- */

static td_status open_first(const td_device_ops *ops, int number, td_device **out)
{
    TD_TRY(ops->open(number, out));
    (*out)->ops = ops;
    td_status st = ops->stream(*out, &(*out)->stream);
    if (st) {
        ops->close(*out);
        *out = NULL;
    }
    return st;
}

/* "cuda" is number 0, "cuda:1" number 1; -1: it is no number. */
static int number_of(const char *after_name)
{
    char *end;
    if (!*after_name)
        return 0;
    long n = strtol(after_name + 1, &end, 10);
    return after_name[1] >= '0' && after_name[1] <= '9' && !*end && n < NUMBERS ? (int)n : -1;
}

td_status td__device_open(const char *name, td_device **out)
{
    size_t kind = strcspn(name, ":");
    int number = number_of(name + kind);
    *out = NULL;
    for (int i = 0; number >= 0 && i < TD_LEN(DEVICES); i++) {
        if (strlen(DEVICES[i]->name) != kind || strncmp(DEVICES[i]->name, name, kind) != 0)
            continue;
        td_device **at = &open_devices[i][number];
        pthread_mutex_lock(&open_lock);
        td_status st = *at ? TD_OK : open_first(DEVICES[i], number, at);
        if (!st) {
            *out = *at;
            (*out)->holders++;
        }
        pthread_mutex_unlock(&open_lock);
        return st;
    }
    return TD_FAIL(TD_EINVAL, "no device named \"%s\"", name);
}

td_device *td__device_retain(td_device *d)
{
    pthread_mutex_lock(&open_lock);
    d->holders++;
    pthread_mutex_unlock(&open_lock);
    return d;
}

void td__device_release(td_device *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&open_lock);
    if (--d->holders == 0) {
        for (int i = 0; i < TD_LEN(DEVICES); i++)
            for (int n = 0; n < NUMBERS; n++)
                if (open_devices[i][n] == d)
                    open_devices[i][n] = NULL;
        d->ops->stream_destroy(d->stream);
        d->ops->close(d);
    }
    pthread_mutex_unlock(&open_lock);
}

const char *td__device_name(const td_device *d)
{
    return d->ops->name;
}

bool td__device_host_reads(const td_device *d)
{
    return d->ops->host_reads;
}

void *td__device_local(const td_device *d, const void *at)
{
    return d->ops->local(d, at);
}

td_status td__device_processor(const td_device *d, unsigned char out[16])
{
    memset(out, 0, 16);
    return d->ops->processor ? d->ops->processor(d, out)
                             : TD_FAIL(TD_ENOTSUP, "device %s has no number", d->ops->name);
}

td_stream *td__device_stream(td_device *d)
{
    return d->stream;
}

td__device_counters td__device_count(td_device *d)
{
    return d->ops->count(d);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The memory as its owner gets it, if it was had. */
static td_status hand_out(td_device *d, td_status st, td_mem *out)
{
    if (st) {
        memset(out, 0, sizeof *out);
        return st;
    }
    td__device_retain(d);
    return TD_OK;
}

td_status td__mem_alloc(td_device *d, td_mem_kind kind, size_t nbytes, td_mem *out)
{
    if (kind == TD_MEM_PEER && !d->ops->handle) {
        memset(out, 0, sizeof *out);
        return TD_FAIL(TD_ENOTSUP, "device %s: other processes cannot open its memory",
                       d->ops->name);
    }
    *out = (td_mem){.device = d, .kind = kind, .nbytes = nbytes ? nbytes : 1};
    return hand_out(d, d->ops->alloc(d, out), out);
}

void td__mem_free(td_mem *m)
{
    td_device *d = m->device;
    if (!d)
        return;
    d->ops->free(m);
    memset(m, 0, sizeof *m);
    td__device_release(d);
}

td_status td__mem_handle(const td_mem *m, td__mem_ticket *out)
{
    memset(out, 0, sizeof *out);
    if (m->kind != TD_MEM_PEER)
        return TD_FAIL(TD_EINVAL, "memory of device %s is not for other processes",
                       m->device->ops->name);
    return m->device->ops->handle(m, out);
}

td_status td__mem_open(td_device *d, const td__mem_ticket *t, size_t nbytes, td_mem *out)
{
    *out = (td_mem){.device = d, .kind = TD_MEM_OPENED, .nbytes = nbytes};
    td_status st =
        d->ops->open_peer
            ? d->ops->open_peer(out, t)
            : TD_FAIL(TD_ENOTSUP, "device %s: it opens no memory of other processes", d->ops->name);
    return hand_out(d, st, out);
}

void td__mem_thin(const td_mem *m)
{
    if (m->device && m->device->ops->thin)
        m->device->ops->thin(m);
}

void td__mem_discard(const td_mem *m, size_t begin, size_t nbytes)
{
    TD_ASSERT(m->kind == TD_MEM_OWN && begin + nbytes <= m->nbytes, "[%zu, %zu) of %zu bytes",
              begin, begin + nbytes, m->nbytes);
    m->device->ops->discard(m, begin, nbytes);
}

static td_status copy(td_device *d, void *to, const void *from, size_t nbytes)
{
    if (!nbytes)
        return TD_OK;
    if (d->ops->host_reads) {
        memcpy(to, from, nbytes);
        return TD_OK;
    }
    td__stream_copy(d->stream, to, from, nbytes);
    return td__stream_sync(d->stream);
}

td_status td__mem_read(td_device *d, void *to, const void *from, size_t nbytes)
{
    return copy(d, to, from, nbytes);
}

td_status td__mem_write(td_device *d, void *to, const void *from, size_t nbytes)
{
    return copy(d, to, from, nbytes);
}

td_status td__mem_map(td_device *d, const void *of, size_t nbytes, td__map_use use,
                      td__mapping *out)
{
    *out = (td__mapping){.device = d, .of = (void *)(uintptr_t)of, .nbytes = nbytes, .use = use};
    out->at = out->of;
    if (d->ops->host_reads || !of)
        return TD_OK;
    out->at = td__alloc_block(nbytes);
    td_status st = TD_OK;
    if (!out->at)
        st = TD_FAIL(TD_ENOMEM, "no memory for a copy of %zu bytes of device %s", nbytes,
                     d->ops->name);
    else if (use & TD_MAP_READ)
        st = td__mem_read(d, out->at, of, nbytes);
    if (st)
        td__mem_map_drop(out);
    return st;
}

td_status td__mem_unmap(td__mapping *m)
{
    td_status st = TD_OK;
    if (m->at != m->of && (m->use & TD_MAP_WRITE))
        st = td__mem_write(m->device, m->of, m->at, m->nbytes);
    td__mem_map_drop(m);
    return st;
}

void td__mem_map_drop(td__mapping *m)
{
    if (m->at != m->of)
        td__free_block(m->at, m->nbytes);
    memset(m, 0, sizeof *m);
}
