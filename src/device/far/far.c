/* far.c -- the memory of the far device; see far.h.
 *
 * Address space for all of it is reserved at once, so that the alias of an address is one addition
 * away; pages are taken when a stream thread writes them. Blocks are found first-fit in a list of
 * those in use, in order of addresses; a block that is freed leaves a hole in the file, which reads
 * as zeros. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/far/far.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

static const size_t RESERVED = (size_t)64 << 30;
enum { PAGE = 4096 };

typedef struct block {
    struct block *next;
    size_t begin, end; /* bytes of the file; whole pages */
} block;

typedef struct far {
    td_device base;
    int fd;
    char *at, *alias;
    pthread_mutex_t lock; /* of the following */
    block *first;
    td__device_counters count;
} far;

static td_status map(int fd, int protection, char **out)
{
    *out = mmap(NULL, RESERVED, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (*out == MAP_FAILED) {
        *out = NULL;
        return TD_FAIL(TD_ENOMEM, "device far: cannot map %zu bytes: %s", RESERVED,
                       strerror(errno));
    }
    madvise(*out, RESERVED, MADV_DONTDUMP);
    return TD_OK;
}

static td_status make(far *f)
{
    f->fd = memfd_create("tandem-far", MFD_CLOEXEC);
    if (f->fd < 0 || ftruncate(f->fd, (off_t)RESERVED) != 0)
        return TD_FAIL(TD_ENOMEM, "device far: cannot make a file of %zu bytes in memory: %s",
                       RESERVED, strerror(errno));
    TD_TRY(map(f->fd, PROT_NONE, &f->at));
    return map(f->fd, PROT_READ | PROT_WRITE, &f->alias);
}

static void far_close(td_device *d)
{
    far *f = (far *)d;
    TD_ASSERT(!f->first, "memory of device far is still in use");
    if (f->at)
        munmap(f->at, RESERVED);
    if (f->alias)
        munmap(f->alias, RESERVED);
    if (f->fd >= 0)
        close(f->fd);
    pthread_mutex_destroy(&f->lock);
    td__free(f);
}

static td_status far_open(int number, td_device **out)
{
    *out = NULL;
    if (number)
        return TD_FAIL(TD_EINVAL, "there is one device far, and no far:%d", number);
    far *f = td__calloc(1, sizeof *f);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory for device far");
    pthread_mutex_init(&f->lock, NULL);
    td_status st = make(f);
    if (st) {
        far_close(&f->base);
        return st;
    }
    *out = &f->base;
    return TD_OK;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static td_status take(far *f, td_mem *m)
{
    size_t nbytes = td__align_up(m->nbytes, PAGE), at = 0;
    block *b = td__malloc(sizeof *b), **to = &f->first;
    if (!b)
        return TD_FAIL(TD_ENOMEM, "device far: no memory");
    pthread_mutex_lock(&f->lock);
    for (; *to && (*to)->begin - at < nbytes; to = &(*to)->next)
        at = (*to)->end;
    bool fits = nbytes <= RESERVED - at;
    if (fits) {
        *b = (block){*to, at, at + nbytes};
        *to = b;
        m->at = f->at + at;
        f->count.requests++;
        f->count.used += nbytes;
        f->count.peak = f->count.used > f->count.peak ? f->count.used : f->count.peak;
    }
    pthread_mutex_unlock(&f->lock);
    if (fits)
        return TD_OK;
    td__free(b);
    return TD_FAIL(TD_ENOMEM, "device far: no memory for %zu bytes", m->nbytes);
}

static void punch(far *f, size_t begin, size_t end)
{
    int rc = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                       (off_t)(end - begin));
    if (rc != 0)
        memset(f->alias + begin, 0, end - begin); /* what it must read as */
}

static void give(far *f, const td_mem *m)
{
    size_t at = (size_t)((char *)m->at - f->at);
    pthread_mutex_lock(&f->lock);
    block **b = &f->first, *gone;
    while (*b && (*b)->begin != at)
        b = &(*b)->next;
    TD_ASSERT(*b, "device far: %zu is not the beginning of a block", at);
    gone = *b;
    *b = gone->next;
    punch(f, gone->begin, gone->end); /* before anybody takes it again */
    f->count.released++;
    f->count.used -= gone->end - gone->begin;
    pthread_mutex_unlock(&f->lock);
    td__free(gone);
}

static td_status far_alloc(td_device *d, td_mem *m)
{
    if (m->kind != TD_MEM_PINNED)
        return take((far *)d, m);
    m->at = td__alloc_block(m->nbytes);
    return m->at ? TD_OK
                 : TD_FAIL(TD_ENOMEM, "device far: no %zu bytes of the host's memory", m->nbytes);
}

static void far_free(td_mem *m)
{
    if (m->kind == TD_MEM_PINNED)
        td__free_block(m->at, m->nbytes);
    else
        give((far *)m->device, m);
}

static void far_discard(const td_mem *m, size_t begin, size_t nbytes)
{
    far *f = (far *)m->device;
    size_t at = (size_t)((char *)m->at - f->at);
    size_t from = td__align_up(at + begin, PAGE), to = (at + begin + nbytes) / PAGE * PAGE;
    if (from < to)
        punch(f, from, to);
}

static td__device_counters far_count(td_device *d)
{
    far *f = (far *)d;
    pthread_mutex_lock(&f->lock);
    td__device_counters c = f->count;
    pthread_mutex_unlock(&f->lock);
    return c;
}

static void *far_local(const td_device *d, const void *at)
{
    const far *f = (const far *)d;
    uintptr_t offset = (uintptr_t)at - (uintptr_t)f->at;
    return offset < RESERVED ? f->alias + offset : (void *)(uintptr_t)at;
}

const td_device_ops td__far_device = {
    .name = "far",
    .open = far_open,
    .close = far_close,
    .alloc = far_alloc,
    .free = far_free,
    .discard = far_discard,
    .count = far_count,
    .stream = td__far_stream_create,
    .stream_destroy = td__far_stream_destroy,
    .launch = td__far_launch,
    .record = td__far_record,
    .wait = td__far_wait,
    .done = td__far_done,
    .arith = &td__arith_host,
    .local = far_local,
};
