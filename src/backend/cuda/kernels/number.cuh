/* number.cuh -- elements as the kernels compute with them: f32 whatever they are stored as; sums of
 * a block in a fixed order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_NUMBER_CUH
#define TD_BACKEND_CUDA_KERNELS_NUMBER_CUH

#include "backend/cuda/kernels/io.h"
#include "device/cuda/kernels/kernel.cuh"

#define TD__INFINITY __uint_as_float(0x7f800000u)
#define TD__NAN __uint_as_float(0x7fc00000u)

struct bf16 {
    unsigned short bits;
};

static __device__ inline float get(float v)
{
    return v;
}
static __device__ inline float get(bf16 v)
{
    return __uint_as_float((unsigned)v.bits << 16);
}

static __device__ inline bf16 to_bf16(float v)
{
    bf16 b;
#ifdef __CUDACC__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b.bits) : "f"(v));
#else
    unsigned u = __float_as_uint(v);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    b.bits = nan ? (unsigned short)(u >> 16 | 0x40)
                 : (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
#endif
    return b;
}

/* f16, of which only its bits are used. */
static __device__ inline float from_f16(unsigned short bits)
{
#ifdef __CUDACC__
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
#else
    return emulated_from_f16(bits);
#endif
}
static __device__ inline unsigned short to_f16(float v)
{
#ifdef __CUDACC__
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
#else
    return emulated_to_f16(v);
#endif
}

static __device__ inline void put(float *to, float v)
{
    *to = v;
}
static __device__ inline void put(bf16 *to, float v)
{
    *to = to_bf16(v);
}

/* Sixteen bytes of elements at once: f32 4, bf16 8. */
template <class T> struct alignas(16) lot {
    enum { N = 16 / sizeof(T) };
    T at[N];
};
template <class T> static __device__ inline lot<T> load_lot(const T *p)
{
    union {
        uint4 bits;
        lot<T> lot_of;
    } u;
    u.bits = *(const uint4 *)p;
    return u.lot_of;
}
template <class T> static __device__ inline void store_lot(T *p, const lot<T> &v)
{
    union {
        uint4 bits;
        lot<T> lot_of;
    } u;
    u.lot_of = v;
    *(uint4 *)p = u.bits;
}

/* Eight elements that lie side by side, at a multiple of 16 bytes. */
template <class T> static __device__ inline void get_8(float v[8], const T *p)
{
#pragma unroll
    for (int i = 0; i < 8; i += lot<T>::N) {
        lot<T> l = load_lot(p + i);
#pragma unroll
        for (int k = 0; k < lot<T>::N; k++)
            v[i + k] = get(l.at[k]);
    }
}
template <class T> static __device__ inline void put_8(T *p, const float v[8])
{
#pragma unroll
    for (int i = 0; i < 8; i += lot<T>::N) {
        lot<T> l;
#pragma unroll
        for (int k = 0; k < lot<T>::N; k++)
            put(&l.at[k], v[i + k]);
        store_lot(p + i, l);
    }
}

/* Element i of an array of ids: i32, i64 or u8. */
static __device__ inline long long get_id(int dtype, const void *p, long long i)
{
    return dtype == TD__IO_I64   ? ((const long long *)p)[i]
           : dtype == TD__IO_I32 ? ((const int *)p)[i]
                                 : ((const unsigned char *)p)[i];
}

/* One kernel for each type of elements: the template NAME as NAME_f32 and NAME_bf16. */
#define TD_KERNELS(name, args)   \
    TD_KERNEL(name##_f32, args)  \
    {                            \
        name<float>(a);          \
    }                            \
    TD_KERNEL(name##_bf16, args) \
    {                            \
        name<bf16>(a);           \
    }

/* ---- Sums over a block of 256 threads, the same in all of them, in a fixed order ------------- */

enum { THREADS = 256, WARPS = THREADS / 32 };

struct add {
    static __device__ float none()
    {
        return 0;
    }
    static __device__ float of(float a, float b)
    {
        return a + b;
    }
};
struct largest {
    static __device__ float none()
    {
        return -TD__INFINITY;
    }
    static __device__ float of(float a, float b) /* NaN wins */
    {
        return a > b || a != a ? a : b;
    }
};

template <class OP> static __device__ inline float warp_all(float v)
{
    for (int half = 16; half > 0; half /= 2)
        v = OP::of(v, __shfl_xor_sync(0xffffffffu, v, half));
    return v;
}

template <class OP> static __device__ inline float block_all(float v)
{
    __shared__ float part[WARPS];
    v = warp_all<OP>(v);
    __syncthreads(); /* the last use of part is over */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < WARPS; w++)
        v = OP::of(v, part[w]);
    return v;
}

#endif
