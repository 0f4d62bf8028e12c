/* host.c -- the processor that runs this program. Streams carry out work at once on the calling
 * thread; memory is the process's, from a pool that releases late. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "device/device_impl.h"
#include "device/pool.h"

/* Idle memory that is kept: enough for the blocks of a program whose batch changes its size. */
enum { IDLE_KEPT = 64 << 20 };

typedef struct host {
    td_device base;
    td__pool_blocks *pool;
} host;

static td_status host_open(int number, td_device **out)
{
    *out = NULL;
    if (number)
        return TD_FAIL(TD_EINVAL, "there is one device host, and no host:%d", number);
    host *h = td__calloc(1, sizeof *h);
    if (!h)
        return TD_FAIL(TD_ENOMEM, "no memory for device host");
    td_status st = td__pool_blocks_create(IDLE_KEPT, &td__pool_host, NULL, &h->pool);
    if (st) {
        td__free(h);
        return st;
    }
    *out = &h->base;
    return TD_OK;
}

static void host_close(td_device *d)
{
    td__pool_blocks_destroy(((host *)d)->pool);
    td__free(d);
}

static td_status host_alloc(td_device *d, td_mem *m)
{
    m->at = td__pool_blocks_take(((host *)d)->pool, m->nbytes);
    return m->at ? TD_OK : TD_FAIL(TD_ENOMEM, "device host: no memory for %zu bytes", m->nbytes);
}

static void host_free(td_mem *m)
{
    td__pool_blocks_give(((host *)m->device)->pool, m->at, m->nbytes);
}

static void host_thin(const td_mem *m)
{
    td__block_thin(m->at, m->nbytes);
}

static void host_discard(const td_mem *m, size_t begin, size_t nbytes)
{
    td__block_give_back((char *)m->at + begin, nbytes);
}

static td__device_counters host_count(td_device *d)
{
    return td__pool_blocks_count(((host *)d)->pool);
}

static td_status host_stream(td_device *d, td_stream **out)
{
    td_stream *s = *out = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a stream of device host");
    td__stream_init(s, d, true);
    return TD_OK;
}

static void host_stream_destroy(td_stream *s)
{
    td__stream_fini(s);
    td__free(s);
}

static void *host_local(const td_device *d, const void *at)
{
    (void)d;
    return (void *)(uintptr_t)at;
}

/* Streams work at once, so that nothing is launched, recorded or waited for here. */
const td_device_ops td__host_device = {
    .name = "host",
    .host_reads = true,
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .free = host_free,
    .thin = host_thin,
    .discard = host_discard,
    .count = host_count,
    .stream = host_stream,
    .stream_destroy = host_stream_destroy,
    .arith = &td__arith_host,
    .local = host_local,
};
