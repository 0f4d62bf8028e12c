/* driver.cpp -- a stand-in for libcuda.so.1: the functions of device/cuda/driver.def, with the
 * processor as the GPU. Work is done when it is launched; recording a graph keeps it for later.
 *
 * Tests load it through TANDEM_CUDA_DRIVER, so that the CUDA device and backend are run on machines
 * without a GPU, kernels included. Memory of this GPU is the process's: the far device tells who
 * touches memory that is not the host's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>

#include <fcntl.h>
#include <map>
#include <mutex>
#include <stdlib.h>
#include <string>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "device.h"
#include "fibers.h"
#include "graphs.h"

namespace
{

std::map<std::string, emulated_kernel *> &kernels()
{
    static std::map<std::string, emulated_kernel *> all;
    return all;
}

struct event {
    double ms = 0; /* when it was recorded */
    stream *recorded = nullptr;
};

thread_local CUcontext current; /* what a thread works with */

std::mutex blocks_lock;
std::map<uintptr_t, size_t> blocks; /* what kernels may touch: begin, bytes */
struct file {
    int fd; /* -1: another process's */
    size_t nbytes;
};
std::map<uintptr_t, file> files; /* of them those that other processes see */

void *remember(void *p, size_t nbytes)
{
    std::lock_guard<std::mutex> hold(blocks_lock);
    blocks[(uintptr_t)p] = nbytes;
    return p;
}

void forget(const void *p)
{
    std::lock_guard<std::mutex> hold(blocks_lock);
    blocks.erase((uintptr_t)p);
}

void *aligned(size_t nbytes)
{
    void *p = aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
    if (p)
        memset(p, 0xA5, nbytes);
    return p ? remember(p, nbytes) : nullptr;
}

} // namespace

bool elsewhere(CUstream on)
{
    return !current || (on && ((stream *)on)->context != current);
}

CUresult do_or_record(CUstream on, std::function<void()> work)
{
    stream *s = (stream *)on;
    if (s && s->recording)
        s->tape.push_back(new node{work});
    else
        work();
    return CUDA_SUCCESS;
}

emulated_kernel::emulated_kernel(const char *name, void (*f)(const void *), size_t n)
    : fn(f), nbytes(n)
{
    kernels()[name] = this;
}

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

/* What tests look at and ask for (tests/support/emulated.h): calls so far, by name of the function,
 * and which call is to fail. */
static std::mutex calls_lock; /* of the following */
static std::map<std::string, unsigned long> calls;
static std::string failing;
static unsigned long failing_in; /* calls of it; 0: none */
static CUresult failing_with;

CUresult called(const char *name)
{
    std::lock_guard<std::mutex> hold(calls_lock);
    calls[name]++;
    bool fails = failing_in && failing == name && --failing_in == 0;
    return fails ? failing_with : CUDA_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) void emulated_fail(const char *name,
                                                                     unsigned long nth, int result)
{
    std::lock_guard<std::mutex> hold(calls_lock);
    failing = name;
    failing_in = nth;
    failing_with = (CUresult)result;
}

extern "C" __attribute__((visibility("default"))) unsigned long emulated_calls(const char *name)
{
    std::lock_guard<std::mutex> hold(calls_lock);
    unsigned long n = 0;
    for (auto &c : calls)
        n += !name || c.first == name ? c.second : 0;
    return n;
}

EXPORT cuInit(unsigned)
{
    return CUDA_SUCCESS;
}
EXPORT cuDriverGetVersion(int *v)
{
    *v = CUDA_VERSION;
    return CUDA_SUCCESS;
}
EXPORT cuGetErrorName(CUresult r, const char **name)
{
    *name = r == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : r == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                              : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
EXPORT cuGetErrorString(CUresult r, const char **text)
{
    *text = r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "error";
    return CUDA_SUCCESS;
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
    const char *bytes = getenv("EMULATED_MEMORY"); /* of a small one, for tests */
    *n = bytes ? strtoull(bytes, nullptr, 10) : (size_t)8 << 30;
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
    current = c;
    return CUDA_SUCCESS;
}
/* Between the contexts of two GPUs, once. */
EXPORT cuCtxEnablePeerAccess(CUcontext of, unsigned)
{
    CALLED
    static std::mutex lock;
    static std::map<std::pair<CUcontext, CUcontext>, bool> enabled;
    std::lock_guard<std::mutex> hold(lock);
    if (getenv("EMULATED_APART") || of == current)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    bool &is = enabled[{current, of}];
    CUresult r = is ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
    is = true;
    return r;
}

/* Whole pages of the driver's size can be opened by other processes. */
EXPORT cuMemAlloc_v2(CUdeviceptr *at, size_t nbytes)
{
    CALLED
    const size_t page = (size_t)2 << 20;
    *at = 0;
    int fd = nbytes && nbytes % page == 0 ? memfd_create("emulated", MFD_CLOEXEC) : -1;
    if (fd < 0) {
        *at = (CUdeviceptr)aligned(nbytes);
        return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *p = ftruncate(fd, (off_t)nbytes)
                  ? MAP_FAILED
                  : mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *at = (CUdeviceptr)remember(p, nbytes);
    std::lock_guard<std::mutex> hold(blocks_lock);
    files[(uintptr_t)p] = {fd, nbytes};
    return CUDA_SUCCESS;
}
EXPORT cuMemFree_v2(CUdeviceptr at)
{
    CALLED
    forget((void *)at);
    std::lock_guard<std::mutex> hold(blocks_lock);
    auto f = files.find((uintptr_t)at);
    if (f == files.end()) {
        free((void *)at);
        return CUDA_SUCCESS;
    }
    munmap((void *)at, f->second.nbytes);
    if (f->second.fd >= 0)
        close(f->second.fd);
    files.erase(f);
    return CUDA_SUCCESS;
}
/* A handle is the file in memory that the block is: its owner's process and descriptor. */
struct ipc_handle {
    pid_t owner;
    int fd;
    size_t nbytes;
};
EXPORT cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr at)
{
    std::lock_guard<std::mutex> hold(blocks_lock);
    auto f = files.find((uintptr_t)at);
    if (f == files.end())
        return CUDA_ERROR_INVALID_VALUE;
    ipc_handle h = {getpid(), f->second.fd, f->second.nbytes};
    memset(out, 0, sizeof *out);
    memcpy(out->reserved, &h, sizeof h);
    return CUDA_SUCCESS;
}
EXPORT cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned)
{
    ipc_handle h;
    memcpy(&h, handle.reserved, sizeof h);
    if (h.owner == getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* as the driver does */
    std::string path = "/proc/" + std::to_string(h.owner) + "/fd/" + std::to_string(h.fd);
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void *p =
        fd < 0 ? MAP_FAILED : mmap(nullptr, h.nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return CUDA_ERROR_MAP_FAILED;
    *at = (CUdeviceptr)remember(p, h.nbytes);
    std::lock_guard<std::mutex> hold(blocks_lock);
    files[(uintptr_t)p] = {-1, h.nbytes};
    return CUDA_SUCCESS;
}
EXPORT cuIpcCloseMemHandle(CUdeviceptr at)
{
    return cuMemFree_v2(at);
}
EXPORT cuMemHostAlloc(void **at, size_t nbytes, unsigned)
{
    CALLED
    *at = aligned(nbytes);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT cuMemFreeHost(void *at)
{
    CALLED
    forget(at);
    free(at);
    return CUDA_SUCCESS;
}
EXPORT cuPointerGetAttribute(void *out, CUpointer_attribute, CUdeviceptr at)
{
    CALLED
    std::lock_guard<std::mutex> hold(blocks_lock);
    auto after = blocks.upper_bound((uintptr_t)at);
    if (after == blocks.begin() || (--after)->first + after->second <= (uintptr_t)at)
        return CUDA_ERROR_INVALID_VALUE;
    *(CUmemorytype *)out = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}
EXPORT cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream on)
{
    CALLED
    if (elsewhere(on))
        return CUDA_ERROR_INVALID_CONTEXT;
    return do_or_record(on, [=] { memcpy((void *)to, (void *)from, nbytes); });
}
EXPORT cuMemsetD8Async(CUdeviceptr at, unsigned char v, size_t nbytes, CUstream on)
{
    CALLED
    stream *s = (stream *)on;
    if (elsewhere(on))
        return CUDA_ERROR_INVALID_CONTEXT;
    do_or_record(on, [=] { memset((void *)at, v, nbytes); });
    if (s && s->recording) {
        s->tape.back()->fills = true;
        s->tape.back()->fill = {at, 0, v, 1, nbytes, 1};
    }
    return CUDA_SUCCESS;
}

EXPORT cuStreamCreate(CUstream *s, unsigned)
{
    stream *made = new stream;
    made->context = current;
    *s = (CUstream)made;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
EXPORT cuStreamDestroy_v2(CUstream s)
{
    delete (stream *)s;
    return CUDA_SUCCESS;
}
EXPORT cuStreamSynchronize(CUstream)
{
    CALLED
    return CUDA_SUCCESS;
}
EXPORT cuStreamWaitEvent(CUstream on, CUevent of, unsigned)
{
    CALLED
    stream *s = (stream *)on, *from = ((event *)of)->recorded;
    if (elsewhere(on))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!from || !from->recording)
        return s->recording ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_SUCCESS;
    stream *origin = from->origin ? from->origin : from;
    if (!s->recording) { /* a fork */
        s->recording = true;
        s->origin = origin;
        origin->branches.push_back(s);
    } else if (s == origin && from != s) { /* a join */
        s->tape.insert(s->tape.end(), from->tape.begin(), from->tape.end());
        from->tape.clear();
    }
    return CUDA_SUCCESS;
}
EXPORT cuEventCreate(CUevent *e, unsigned)
{
    *e = (CUevent) new event;
    return CUDA_SUCCESS;
}
EXPORT cuEventDestroy_v2(CUevent e)
{
    delete (event *)e;
    return CUDA_SUCCESS;
}
EXPORT cuEventRecord(CUevent of, CUstream on)
{
    CALLED
    event *e = (event *)of;
    struct timespec t;
    if (elsewhere(on))
        return CUDA_ERROR_INVALID_CONTEXT;
    e->recorded = on && ((stream *)on)->recording ? (stream *)on : nullptr;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->ms = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
    return CUDA_SUCCESS;
}
EXPORT cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to)
{
    *ms = (float)(((event *)to)->ms - ((event *)from)->ms);
    return CUDA_SUCCESS;
}
EXPORT cuEventQuery(CUevent)
{
    CALLED
    return CUDA_SUCCESS;
}

EXPORT cuModuleLoadData(CUmodule *m, const void *)
{
    *m = (CUmodule)1;
    return CUDA_SUCCESS;
}
EXPORT cuModuleUnload(CUmodule)
{
    return CUDA_SUCCESS;
}
EXPORT cuModuleGetFunction(CUfunction *f, CUmodule, const char *name)
{
    CALLED
    auto found = kernels().find(name);
    *f = found == kernels().end() ? nullptr : (CUfunction)found->second;
    return *f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORT cuFuncSetAttribute(CUfunction, CUfunction_attribute, int)
{
    return CUDA_SUCCESS;
}
EXPORT cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                      unsigned, unsigned shared, CUstream on, void **params, void **)
{
    CALLED
    const emulated_kernel *k = (const emulated_kernel *)f;
    const char *args = (const char *)params[0];
    if (threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (elsewhere(on))
        return CUDA_ERROR_INVALID_CONTEXT;
    std::vector<char> kept(args, args + k->nbytes);
    return do_or_record(on, [=] {
        const unsigned grid[3] = {x, y, z};
        emulated_run(k->fn, kept.data(), grid, threads, shared);
    });
}
