/* cuda.c -- the device itself: its context, memory and kernels; see cuda.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "device/cuda/cuda_impl.h"

/* Idle memory that is kept: activations of a program whose batch changes its size. */
static const size_t IDLE_KEPT = (size_t)4 << 30, IDLE_PINNED = (size_t)512 << 20;
enum { PAGE = 4096 };

/* ---- Which GPUs there are -------------------------------------------------------------------- */

/* Devices that each GPU counts as: more than one lets tests drive several with one GPU. */
static int split(void)
{
    const char *text = td__env_get(TD_ENV_CUDA_SPLIT);
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 1;
    return text && !*end && n > 1 && n <= 8 ? (int)n : 1;
}

td_status td__cuda_count(int *out)
{
    *out = 0;
    TD_TRY(td__cuda_load());
    TD_TRY(td__cuda_status(td__cu.cuDeviceGetCount(out), "cuDeviceGetCount"));
    *out *= split();
    return TD_OK;
}

/* The GPU that device number `index` is. */
static td_status gpu_of(int index, CUdevice *out)
{
    return td__cuda_status(td__cu.cuDeviceGet(out, index / split()), "cuDeviceGet");
}

static td_status attribute(CUdevice device, CUdevice_attribute which, int *out)
{
    return td__cuda_status(td__cu.cuDeviceGetAttribute(out, which, device), "cuDeviceGetAttribute");
}

td_status td__cuda_describe(int index, td__cuda_kind *out)
{
    CUdevice device;
    memset(out, 0, sizeof *out);
    TD_TRY(td__cuda_load());
    TD_TRY(gpu_of(index, &device));
    TD_TRY(td__cuda_status(td__cu.cuDeviceGetName(out->name, sizeof out->name, device),
                           "cuDeviceGetName"));
    TD_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &out->major));
    TD_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &out->minor));
    TD_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->processors));
    TD_TRY(td__cuda_status(td__cu.cuDriverGetVersion(&out->driver), "cuDriverGetVersion"));
    return td__cuda_status(td__cu.cuDeviceTotalMem_v2(&out->memory, device), "cuDeviceTotalMem");
}

/* The images hold PTX for Ampere, which is 8.0, and later. */
td_status td__cuda_runs_on(const td__cuda_kind *kind)
{
    if (kind->major >= 8)
        return TD_OK;
    return TD_FAIL(
        TD_ENOTSUP,
        "device cuda: %s has compute capability %d.%d; the kernels of this build are for "
        "8.0 and later",
        kind->name, kind->major, kind->minor);
}

const td__cuda_kind *td__cuda_kind_of(const td_device *d)
{
    return &((const td__cuda_gpu *)d)->kind;
}

/* What the calling thread works with, so that the driver is told when it changes; a context that
 * was let go of counts as none. */
static _Thread_local struct {
    CUcontext context;
    unsigned age;
} current;
static atomic_uint contexts_closed;

void td__cuda_enter(const td_device *d)
{
    CUcontext context = ((const td__cuda_gpu *)d)->context;
    unsigned age = atomic_load_explicit(&contexts_closed, memory_order_relaxed);
    if (current.context == context && current.age == age)
        return;
    if (td__cu.cuCtxSetCurrent(context) == CUDA_SUCCESS) {
        current.context = context;
        current.age = age;
    }
}

/* ---- Blocks from the driver ------------------------------------------------------------------ */

static bool source_zero(void *user, void *at, size_t nbytes)
{
    td_stream *s = ((td__cuda_gpu *)user)->base.stream;
    td__cuda_enter(user);
    CUstream on = td__cuda_stream(s);
    return td__cu.cuMemsetD8Async((CUdeviceptr)at, 0, nbytes, on) == CUDA_SUCCESS &&
           td__cu.cuStreamSynchronize(on) == CUDA_SUCCESS;
}

static void source_free(void *user, void *at, size_t nbytes)
{
    (void)nbytes;
    td__cuda_enter(user);
    td__cu.cuMemFree_v2((CUdeviceptr)at);
}

static void *source_alloc(void *user, size_t nbytes)
{
    CUdeviceptr at = 0;
    td__cuda_enter(user);
    if (td__cu.cuMemAlloc_v2(&at, nbytes) != CUDA_SUCCESS)
        return NULL;
    if (source_zero(user, (void *)at, nbytes))
        return (void *)at;
    source_free(user, (void *)at, nbytes);
    return NULL;
}

static const td__pool_source SOURCE = {
    .alloc = source_alloc, .free = source_free, .zero = source_zero};

/* Pinning takes 0.6 ms a MiB, so that these are kept too. */
static void *pinned_alloc(void *user, size_t nbytes)
{
    void *at = NULL;
    td__cuda_enter(user);
    if (td__cu.cuMemHostAlloc(&at, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
        CUDA_SUCCESS)
        return NULL;
    return memset(at, 0, nbytes);
}

static void pinned_free(void *user, void *at, size_t nbytes)
{
    (void)nbytes;
    td__cuda_enter(user);
    td__cu.cuMemFreeHost(at);
}

static bool pinned_zero(void *user, void *at, size_t nbytes)
{
    (void)user;
    memset(at, 0, nbytes);
    return true;
}

static const td__pool_source PINNED = {
    .alloc = pinned_alloc, .free = pinned_free, .zero = pinned_zero};

static td_status cuda_alloc(td_device *d, td_mem *m)
{
    if (m->kind == TD_MEM_PEER)
        return td__cuda_peer_alloc(m);
    if (m->kind != TD_MEM_PINNED) {
        m->at = td__pool_blocks_take(((td__cuda_gpu *)d)->pool, m->nbytes);
        if (m->at)
            return TD_OK;
        td__device_counters c = td__pool_blocks_count(((td__cuda_gpu *)d)->pool);
        return TD_FAIL(TD_ENOMEM,
                       "device cuda: no memory for %zu bytes beside %zu in use (%s has %zu): use "
                       "a smaller batch or more micro-batches",
                       m->nbytes, c.used, td__cuda_kind_of(d)->name, td__cuda_kind_of(d)->memory);
    }
    m->at = td__pool_blocks_take(((td__cuda_gpu *)d)->pinned, m->nbytes);
    return m->at ? TD_OK
                 : TD_FAIL(TD_ENOMEM, "device cuda: no %zu bytes of pinned memory", m->nbytes);
}

static void cuda_free(td_mem *m)
{
    if (m->kind == TD_MEM_PEER || m->kind == TD_MEM_OPENED) {
        td__cuda_peer_free(m);
        return;
    }
    if (m->kind == TD_MEM_LENT)
        return;
    if (m->kind != TD_MEM_PINNED) {
        td__pool_blocks_give(((td__cuda_gpu *)m->device)->pool, m->at, m->nbytes);
        return;
    }
    td__pool_blocks_give(((td__cuda_gpu *)m->device)->pinned, m->at, m->nbytes);
}

/* Pages do not go back, but read as zeros as they must. */
static void cuda_discard(const td_mem *m, size_t begin, size_t nbytes)
{
    uintptr_t at = (uintptr_t)m->at;
    uintptr_t from = td__align_up(at + begin, PAGE), to = (at + begin + nbytes) / PAGE * PAGE;
    if (from < to && !source_zero(m->device, (void *)from, to - from))
        td__stream_fail(m->device->stream, TD_EIO, "device cuda: memory cannot be cleared");
}

bool td__cuda_reaches(const void *at)
{
    CUmemorytype type;
    return td__cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)at) ==
           CUDA_SUCCESS;
}

static td__device_counters cuda_count(td_device *d)
{
    return td__pool_blocks_count(((td__cuda_gpu *)d)->pool);
}

static void *cuda_native(const td_stream *s)
{
    return td__cuda_stream(s);
}

static void *cuda_local(const td_device *d, const void *at)
{
    (void)d;
    return (void *)(uintptr_t)at;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static td_status load_images(td__cuda_gpu *d)
{
    TD_ASSERT(td__cuda_n_images <= TD__CUDA_MAX_IMAGES, "%d images", td__cuda_n_images);
    for (int i = 0; i < td__cuda_n_images; i++) {
        CUresult r = td__cu.cuModuleLoadData(&d->modules[i], td__cuda_images[i].begin);
        char text[160];
        if (r != CUDA_SUCCESS)
            return TD_FAIL(TD_ENOTSUP,
                           "device cuda: %s (compute capability %d.%d) cannot run the kernels of "
                           "this build (%s): %s",
                           d->kind.name, d->kind.major, d->kind.minor, td__cuda_images[i].name,
                           td__cuda_text(r, text, sizeof text));
    }
    return TD_OK;
}

td_status td__cuda_find(td_device *device, const char *name, CUfunction *out)
{
    td__cuda_gpu *d = (td__cuda_gpu *)device;
    td__cuda_enter(device);
    for (int i = 0; i < td__cuda_n_images; i++)
        if (td__cu.cuModuleGetFunction(out, d->modules[i], name) == CUDA_SUCCESS)
            return TD_OK;
    return TD_FAIL(TD_ENOTSUP, "device cuda: this build has no kernel %s", name);
}

static td_status find_blocks(td__cuda_gpu *d)
{
    static const char *const NAMES[TD__CUDA_BLOCK_KERNELS] = {
        [TD__CUDA_BLEND] = "blocks_blend",     [TD__CUDA_BLENDED] = "blocks_blended",
        [TD__CUDA_SCALE] = "blocks_scale",     [TD__CUDA_MOMENTS] = "blocks_moments",
        [TD__CUDA_SQUARES] = "blocks_squares", [TD__CUDA_COPIES] = "blocks_copies",
        [TD__CUDA_FILL] = "blocks_fill",       [TD__CUDA_SQUARE_CHUNKS] = "blocks_square_chunks",
#define TD_UPDATE(NAME, kernel) [TD__CUDA_UPDATE + TD_UPDATE_##NAME] = "blocks_" #kernel,
#include "device/updates.def"
#undef TD_UPDATE
    };
    for (int i = 0; i < TD__CUDA_BLOCK_KERNELS; i++)
        TD_TRY(td__cuda_find(&d->base, NAMES[i], &d->blocks[i]));
    return TD_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void cuda_close(td_device *device)
{
    td__cuda_gpu *d = (td__cuda_gpu *)device;
    if (d->context) {
        td__cuda_enter(device);
        td__pool_blocks_destroy(d->pool);
        td__pool_blocks_destroy(d->pinned);
        for (int i = 0; i < td__cuda_n_images; i++)
            if (d->modules[i])
                td__cu.cuModuleUnload(d->modules[i]);
        atomic_fetch_add(&contexts_closed, 1);
        td__cu.cuDevicePrimaryCtxRelease_v2(d->device);
    }
    td__free(d);
}

static td_status set_up(td__cuda_gpu *d, int number)
{
    int count;
    TD_TRY(td__cuda_count(&count));
    if (number >= count)
        return TD_FAIL(TD_EINVAL, "device cuda:%d: this process sees %d GPUs (tandem devices)",
                       number, count);
    TD_TRY(td__cuda_describe(number, &d->kind));
    TD_TRY(td__cuda_runs_on(&d->kind));
    TD_TRY(gpu_of(number, &d->device));
    TD_TRY(td__cuda_status(td__cu.cuDevicePrimaryCtxRetain(&d->context, d->device),
                           "cuDevicePrimaryCtxRetain"));
    td__cuda_enter(&d->base);
    TD_TRY(td__pool_blocks_create(IDLE_KEPT, &SOURCE, d, &d->pool));
    TD_TRY(td__pool_blocks_create(IDLE_PINNED, &PINNED, d, &d->pinned));
    TD_TRY(load_images(d));
    TD_TRY(find_blocks(d));
    TD_LOG(DEBUG, BACKEND, "device cuda:%d: %s, compute capability %d.%d, %d multiprocessors",
           number, d->kind.name, d->kind.major, d->kind.minor, d->kind.processors);
    return TD_OK;
}

static td_status cuda_open(int number, td_device **out)
{
    *out = NULL;
    TD_TRY(td__cuda_load());
    td__cuda_gpu *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for device cuda");
    td_status st = set_up(d, number);
    if (st) {
        cuda_close(&d->base);
        return st;
    }
    *out = &d->base;
    return TD_OK;
}

const td_device_ops td__cuda_device = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .discard = cuda_discard,
    .count = cuda_count,
    .stream = td__cuda_stream_create,
    .stream_destroy = td__cuda_stream_destroy,
    .arith = &td__arith_cuda,
    .handle = td__cuda_handle,
    .open_peer = td__cuda_open_peer,
    .processor = td__cuda_processor,
    .native = cuda_native,
    .timer = td__cuda_timer,
    .timer_destroy = td__cuda_timer_destroy,
    .timer_mark = td__cuda_timer_mark,
    .timer_ns = td__cuda_timer_ns,
    .launch = td__cuda_call,
    .copy = td__cuda_copy,
    .tape_begin = td__cuda_tape_begin,
    .tape_end = td__cuda_tape_end,
    .tape_play = td__cuda_tape_play,
    .tape_destroy = td__cuda_tape_destroy,
    .record = td__cuda_record,
    .wait = td__cuda_wait,
    .done = td__cuda_done,
    .local = cuda_local,
};
