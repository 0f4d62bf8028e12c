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

static __device__ inline float low_of(unsigned pair)
{
    return __uint_as_float(pair << 16);
}
static __device__ inline float high_of(unsigned pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* Four 8 x 8 matrices of bf16 from shared memory: lane l names row l % 8 of matrix l / 8, and gets
 * of each the elements (g, 2 t) and (g, 2 t + 1), with g = l / 4 and t = l % 4; `turned`: (2 t, g)
 * and (2 t + 1, g). */
template <bool turned> static __device__ inline void load_matrices(unsigned r[4], const bf16 *row)
{
#ifdef __CUDACC__
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
#else
    emulated_load_matrices(r, row, turned);
#endif
}

/* 16 bytes from global to shared memory, which are there after wait_for_copies(); zeros if `in` is
 * false. */
static __device__ inline void copy_16(void *to, const void *from, bool in)
{
#ifdef __CUDACC__
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    int bytes = in ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
#else
    if (in)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
#endif
}
/* The copies of this thread since the last call are a group. */
static __device__ inline void end_of_copies()
{
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* All groups of this thread but the newest `but` are there. */
template <int but> static __device__ inline void wait_for_copies()
{
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(but) : "memory");
#endif
}

/* 2 to the x, to about 2 units in the last place */
static __device__ inline float power_of_2(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

#endif
