/* gpus.cpp -- the GPUs of the stand-in for the driver, and their contexts; see driver.cpp. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <map>
#include <mutex>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utility>
#include <vector>

thread_local CUcontext emulated_context;

/* The GPUs that this process sees, by their own numbers: EMULATED_GPUS of them (one), as
 * CUDA_VISIBLE_DEVICES says; none on ranks other than EMULATED_RANK. */
static std::vector<int> visible()
{
    const char *all = getenv("EMULATED_GPUS"), *list = getenv("CUDA_VISIBLE_DEVICES");
    const char *only = getenv("EMULATED_RANK"), *rank = getenv("TANDEM_RANK");
    int n = all ? atoi(all) : 1;
    std::vector<int> seen;
    if (only && rank && atoi(only) != atoi(rank))
        return seen;
    for (int i = 0; !list && i < n; i++)
        seen.push_back(i);
    for (char *end; list && *list >= '0' && *list <= '9'; list = *end ? end + 1 : end) {
        int i = (int)strtol(list, &end, 10);
        if (i >= n) /* as the driver: those after it are not seen either */
            break;
        seen.push_back(i);
    }
    return seen;
}

EXPORT cuDeviceGetCount(int *n)
{
    *n = (int)visible().size();
    return CUDA_SUCCESS;
}
EXPORT cuDeviceGet(CUdevice *d, int i)
{
    std::vector<int> all = visible();
    if (i < 0 || i >= (int)all.size())
        return CUDA_ERROR_INVALID_DEVICE;
    *d = all[(size_t)i];
    return CUDA_SUCCESS;
}
EXPORT cuDeviceGetName(char *to, int room, CUdevice)
{
    const char *name = getenv("EMULATED_GPU"); /* what tests call it */
    strncpy(to, name ? name : "emulated GPU", (size_t)room);
    return CUDA_SUCCESS;
}
EXPORT cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice)
{
    const char *capability = getenv("EMULATED_CAPABILITY"); /* "7.5" */
    *out = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
               ? (capability ? atoi(capability) : 9)
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR && capability
               ? atoi(strchr(capability, '.') + 1)
           : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 2
                                                               : 0;
    return CUDA_SUCCESS;
}
EXPORT cuDeviceGetUuid_v2(CUuuid *out, CUdevice d)
{
    memcpy(out->bytes, "emulated GPU 0..", 16);
    out->bytes[13] = (char)('0' + d);
    return CUDA_SUCCESS;
}
EXPORT cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice)
{
    *can = !getenv("EMULATED_APART"); /* tests take the link between GPUs away */
    return CUDA_SUCCESS;
}
EXPORT cuDeviceTotalMem_v2(size_t *n, CUdevice)
{
    *n = (size_t)8 << 30;
    return CUDA_SUCCESS;
}
EXPORT cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    *c = (CUcontext)(uintptr_t)(1 + d);
    return CUDA_SUCCESS;
}
EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice)
{
    return CUDA_SUCCESS;
}
EXPORT cuCtxSetCurrent(CUcontext c)
{
    CALLED
    emulated_context = c;
    return CUDA_SUCCESS;
}
/* Between the contexts of two GPUs, once. */
EXPORT cuCtxEnablePeerAccess(CUcontext of, unsigned)
{
    CALLED
    static std::mutex lock;
    static std::map<std::pair<CUcontext, CUcontext>, bool> enabled;
    std::lock_guard<std::mutex> hold(lock);
    if (getenv("EMULATED_APART") || of == emulated_context)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    bool &is = enabled[{emulated_context, of}];
    CUresult r = is ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
    is = true;
    return r;
}
