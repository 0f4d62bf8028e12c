/* mma.cuh -- products of small tiles on tensor cores. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_MMA_CUH
#define TD_BACKEND_CUDA_KERNELS_MMA_CUH

#include "backend/cuda/kernels/number.cuh"

/* c (16, 8) += a (16, 16) b (16, 8), spread over a warp as mma.m16n8k16 has it. */
static __device__ inline void mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    emulated_mma(c, a, b0, b1);
#endif
}

/* Two numbers as bf16, the first in the lower half. */
static __device__ inline unsigned pack(float low, float high)
{
#ifdef __CUDACC__
    unsigned v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
#else
    return (unsigned)to_bf16(high).bits << 16 | to_bf16(low).bits;
#endif
}

#endif
