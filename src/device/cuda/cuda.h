/* cuda.h -- the NVIDIA GPUs that the process sees (CUDA_VISIBLE_DEVICES), as devices.
 *
 * Memory comes from the driver through the pool that releases late; pinned memory is the host's,
 * and kernels reach it at the same addresses. A stream is a CUstream: what is launched on it is
 * called at once and puts kernels there (td__cuda_launch). A tape is a CUDA graph.
 *
 * Kernels are compiled by nvcc into images that the library holds (cmake/cuda.cmake). A kernel has
 * one argument, a struct that C and CUDA code share, and is found by its name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_CUDA_H
#define TD_DEVICE_CUDA_CUDA_H

#include "device/cuda/describe.h"
#include "device/cuda/driver.h"
#include "device/cuda/images.h"
#include "device/device.h"

/* The following are for a device of this kind and its streams. */
const td__cuda_kind *td__cuda_kind_of(const td_device *d);
CUstream td__cuda_stream(const td_stream *s);
/* The calling thread works with the device from now on; calls below do so by themselves. */
void td__cuda_enter(const td_device *d);

/* A kernel of the images, which lives as long as the device. */
TD_NODISCARD td_status td__cuda_find(td_device *d, const char *name, CUfunction *out);

typedef struct td__cuda_grid {
    unsigned x, y, z; /* blocks; 0 stands for 1 */
    unsigned threads; /* of a block */
    unsigned shared;  /* bytes of dynamic shared memory */
} td__cuda_grid;
/* What the driver says of it; of td__cuda_launch() it becomes the stream's failure. */
TD_NODISCARD CUresult td__cuda_start(td_stream *s, CUfunction kernel, td__cuda_grid g,
                                     const void *args);
/* args: the kernel's one argument. Nothing is launched if a dimension is 0 blocks wide (x). */
void td__cuda_launch(td_stream *s, CUfunction kernel, td__cuda_grid g, const void *args);
/* nbytes of the device's memory become zero. */
void td__cuda_zero(td_stream *s, void *at, size_t nbytes);

/* Is this the device's memory, or the host's that kernels reach? */
bool td__cuda_reaches(const void *at);

#endif
