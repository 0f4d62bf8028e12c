/* cuda_peer.c -- memory of a GPU that several processes see (CUDA IPC), or several devices of one:
 * ranks that share a GPU, or whose GPUs reach each other's memory (NVLink, or PCIe where the driver
 * allows it), add up their gradients there, instead of through memory of the host.
 *
 * A ticket has the GPU's own number, which two processes see alike whatever CUDA_VISIBLE_DEVICES
 * says, and the driver's handle. The driver opens no handle in the process that made it: there the
 * address is used as it is. Such memory is not the pool's: the driver hands out whole pages of
 * 2 MiB, and a handle is good for all of one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/fail.h"
#include "device/cuda/cuda_impl.h"

static const size_t PEER_PAGE = (size_t)2 << 20;

td_status td__cuda_peer_alloc(td_mem *m)
{
    CUdeviceptr at = 0;
    td__cuda_enter(m->device);
    TD_TRY(td__cuda_status(td__cu.cuMemAlloc_v2(&at, td__align_up(m->nbytes, PEER_PAGE)),
                           "memory for other processes"));
    CUstream on = td__cuda_stream(m->device->stream);
    CUresult r = td__cu.cuMemsetD8Async(at, 0, m->nbytes, on);
    if (r == CUDA_SUCCESS)
        r = td__cu.cuStreamSynchronize(on);
    if (r != CUDA_SUCCESS)
        td__cu.cuMemFree_v2(at);
    m->at = (void *)at;
    return td__cuda_status(r, "memory for other processes");
}

void td__cuda_peer_free(const td_mem *m)
{
    td__cuda_enter(m->device);
    if (m->kind == TD_MEM_PEER)
        td__cu.cuMemFree_v2((CUdeviceptr)m->at);
    else
        td__cu.cuIpcCloseMemHandle((CUdeviceptr)m->at);
}

td_status td__cuda_processor(const td_device *d, unsigned char out[16])
{
    CUuuid id;
    TD_TRY(td__cuda_status(td__cu.cuDeviceGetUuid_v2(&id, ((const td__cuda_gpu *)d)->device),
                           "cuDeviceGetUuid"));
    memcpy(out, id.bytes, 16);
    return TD_OK;
}

/* A number of this process alone: process ids of two containers may be the same. */
static unsigned char process[16];
static bool process_known;

static void draw_process(void)
{
    process_known = getrandom(process, sizeof process, 0) == (ssize_t)sizeof process;
}

static bool of_this_process(const td__mem_ticket *t)
{
    return process_known && memcmp(t->process, process, sizeof process) == 0;
}

/* Within a process a context is told of the memory that it may reach. */
static td_status reach(const td_device *d, CUdevice other)
{
    CUcontext context;
    TD_TRY(td__cuda_status(td__cu.cuDevicePrimaryCtxRetain(&context, other),
                           "cuDevicePrimaryCtxRetain"));
    td__cuda_enter(d);
    CUresult r = td__cu.cuCtxEnablePeerAccess(context, 0);
    td__cu.cuDevicePrimaryCtxRelease_v2(other); /* its device holds it */
    return r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
               ? TD_OK
               : td__cuda_status(r, "cuCtxEnablePeerAccess");
}

/* May this GPU's kernels work on memory of the one with that number? It must be visible here. */
static td_status check_reach(const td_device *d, const td__mem_ticket *t)
{
    CUdevice own = ((const td__cuda_gpu *)d)->device, other;
    CUuuid id;
    int n = 0, can = 0;

    TD_TRY(td__cuda_status(td__cu.cuDeviceGetCount(&n), "cuDeviceGetCount"));
    for (int i = 0; i < n; i++) {
        TD_TRY(td__cuda_status(td__cu.cuDeviceGet(&other, i), "cuDeviceGet"));
        TD_TRY(td__cuda_status(td__cu.cuDeviceGetUuid_v2(&id, other), "cuDeviceGetUuid"));
        if (memcmp(id.bytes, t->processor, 16) != 0)
            continue;
        if (other == own)
            return TD_OK;
        TD_TRY(td__cuda_status(td__cu.cuDeviceCanAccessPeer(&can, own, other),
                               "cuDeviceCanAccessPeer"));
        if (can)
            return of_this_process(t) ? reach(d, other) : TD_OK;
        return TD_FAIL(TD_ENOTSUP, "device cuda: the GPU does not reach the memory of GPU %d", i);
    }
    return TD_FAIL(TD_ENOTSUP, "device cuda: the other process works with a GPU that is not "
                               "visible here");
}

td_status td__cuda_handle(const td_mem *m, td__mem_ticket *out)
{
    CUipcMemHandle h;
    _Static_assert(sizeof h.reserved == sizeof out->handle, "the driver's handle");
    td__cuda_enter(m->device);
    TD_TRY(td__cuda_status(td__cu.cuIpcGetMemHandle(&h, (CUdeviceptr)m->at), "cuIpcGetMemHandle"));
    memcpy(out->handle, h.reserved, sizeof out->handle);
    memcpy(out->address, &m->at, sizeof out->address);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_process);
    memcpy(out->process, process, sizeof out->process);
    return td__cuda_processor(m->device, out->processor);
}

td_status td__cuda_open_peer(td_mem *m, const td__mem_ticket *t)
{
    CUipcMemHandle h;
    CUdeviceptr at = 0;
    TD_TRY(check_reach(m->device, t));
    if (of_this_process(t)) {
        m->kind = TD_MEM_LENT;
        memcpy(&m->at, t->address, sizeof m->at);
        return TD_OK;
    }
    td__cuda_enter(m->device);
    memcpy(h.reserved, t->handle, sizeof h.reserved);
    TD_TRY(td__cuda_status(td__cu.cuIpcOpenMemHandle_v2(&at, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                           "memory of another process"));
    m->at = (void *)at;
    return TD_OK;
}
