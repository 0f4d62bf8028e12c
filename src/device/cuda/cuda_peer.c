/* cuda_peer.c -- memory of a GPU that several processes see (CUDA IPC): ranks that share a GPU, or
 * whose GPUs reach each other's memory (NVLink, or PCIe where the driver allows it), add up their
 * gradients there, instead of through memory of the host.
 *
 * A ticket has the GPU's own number, which two processes see alike whatever CUDA_VISIBLE_DEVICES
 * says, and the driver's handle. Such memory is not the pool's: the driver hands out whole pages of
 * 2 MiB, and a handle is good for all of one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

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

static td_status processor_of(const td_device *d, unsigned char out[16])
{
    CUuuid id;
    TD_TRY(td__cuda_status(td__cu.cuDeviceGetUuid_v2(&id, ((const td__cuda_gpu *)d)->device),
                           "cuDeviceGetUuid"));
    memcpy(out, id.bytes, 16);
    return TD_OK;
}

/* May this GPU's kernels work on memory of the one with that number? It must be visible here. */
static td_status check_reach(const td_device *d, const unsigned char number[16])
{
    CUdevice own = ((const td__cuda_gpu *)d)->device, other;
    CUuuid id;
    int n = 0, can = 0;

    TD_TRY(td__cuda_status(td__cu.cuDeviceGetCount(&n), "cuDeviceGetCount"));
    for (int i = 0; i < n; i++) {
        TD_TRY(td__cuda_status(td__cu.cuDeviceGet(&other, i), "cuDeviceGet"));
        TD_TRY(td__cuda_status(td__cu.cuDeviceGetUuid_v2(&id, other), "cuDeviceGetUuid"));
        if (memcmp(id.bytes, number, 16) != 0)
            continue;
        if (other == own)
            return TD_OK;
        TD_TRY(td__cuda_status(td__cu.cuDeviceCanAccessPeer(&can, own, other),
                               "cuDeviceCanAccessPeer"));
        if (can)
            return TD_OK;
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
    return processor_of(m->device, out->processor);
}

td_status td__cuda_open_peer(td_mem *m, const td__mem_ticket *t)
{
    CUipcMemHandle h;
    CUdeviceptr at = 0;
    TD_TRY(check_reach(m->device, t->processor));
    td__cuda_enter(m->device);
    memcpy(h.reserved, t->handle, sizeof h.reserved);
    TD_TRY(td__cuda_status(td__cu.cuIpcOpenMemHandle_v2(&at, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                           "memory of another process"));
    m->at = (void *)at;
    return TD_OK;
}
