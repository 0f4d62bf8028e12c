/* kernel.cuh -- what every CUDA kernel here begins with.
 *
 * A kernel has one argument, `a`, a struct that the C code which launches it includes as well:
 *
 *     TD_KERNEL(blocks_scale, td__blocks_scale) { ... a.to ... }
 *
 * TD_KERNEL is also defined by the emulator of the tests, which runs kernels on the processor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_KERNELS_KERNEL_CUH
#define TD_DEVICE_CUDA_KERNELS_KERNEL_CUH

#ifndef TD_KERNEL
#define TD_KERNEL(name, args) extern "C" __global__ void name(const args a)
/* As many bytes as the launch has asked for. */
#define TD_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

/* This thread's place in a grid of one dimension. */
static __device__ inline long long td__thread()
{
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline long long td__threads()
{
    return (long long)gridDim.x * blockDim.x;
}

#endif
