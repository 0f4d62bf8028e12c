/* device.h -- CUDA device code as C++ for the processor: included before every .cu file when the
 * emulated driver is built. Only what the kernels of this project use.
 *
 * Threads of a block are fibers of one thread of the system (fibers.cpp); __shared__ is memory of
 * that thread, so that one block runs at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_EMULATOR_DEVICE_H
#define TD_TESTS_EMULATOR_DEVICE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct emulated_dim {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

extern thread_local emulated_dim emulated_thread, emulated_block, emulated_block_dim,
    emulated_grid_dim;
#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_dim
#define gridDim emulated_grid_dim

#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static thread_local

/* All threads of the block, or of the warp, have come here. */
void emulated_block_barrier();
void emulated_warp_barrier();
/* Bytes that all lanes of this thread's warp see: one of two places in turn, so that a lane may
 * write for the next exchange while another still reads. */
enum { EMULATED_WARP_BYTES = 32 * 64 };
char *emulated_warp_memory();
extern thread_local char *emulated_dynamic_shared;
#define TD_DYNAMIC_SHARED(type, name) type *name = (type *)emulated_dynamic_shared

static inline void __syncthreads()
{
    emulated_block_barrier();
}
/* One block runs at a time, and in it one thread. */
static inline int atomicAdd(int *to, int v)
{
    int before = *to;
    *to += v;
    return before;
}
static inline void __syncwarp()
{
    emulated_warp_barrier();
}
static inline unsigned emulated_lane()
{
    return threadIdx.x % 32;
}

template <class T> static inline T emulated_shuffle(T v, unsigned from)
{
    T *all = (T *)emulated_warp_memory();
    all[emulated_lane()] = v;
    emulated_warp_barrier();
    return all[from];
}
template <class T> static inline T __shfl_sync(unsigned, T v, int from, int width = 32)
{
    unsigned lane = emulated_lane();
    return emulated_shuffle(v, lane / width * width + from % width);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask, int width = 32)
{
    unsigned lane = emulated_lane(), to = lane ^ mask;
    return emulated_shuffle(v, to / width == lane / width ? to : lane);
}
template <class T> static inline T __shfl_down_sync(unsigned, T v, int by, int width = 32)
{
    unsigned lane = emulated_lane(), to = lane + by;
    return emulated_shuffle(v, to / width == lane / width ? to : lane);
}

static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
#define __expf expf
static inline float __fdividef(float a, float b)
{
    return a / b;
}

/* f16: through the nearest multiple of the last place, which the sum with a large number rounds
 * to. */
static inline float emulated_from_f16(unsigned short h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float v = e == 31 ? (m ? NAN : INFINITY)
              : e     ? ldexpf((float)(m + 1024), e - 25)
                      : ldexpf((float)m, -24);
    return h >> 15 ? -v : v;
}
static inline unsigned short emulated_to_f16(float v)
{
    unsigned short sign = (unsigned short)(__float_as_uint(v) >> 16 & 0x8000);
    float a = fabsf(v);
    if (!(a < 65520.0f))
        return (unsigned short)(sign | (a != a ? 0x7e00 : 0x7c00));
    int e = a < 6.103515625e-05f ? -14 : ilogbf(a);
    int m = (int)nearbyintf(ldexpf(a, 10 - e)); /* 1024 up to 2048 of a normal number */
    return (unsigned short)(sign | (((e + 14) << 10) + m));
}

/* mma.m16n8k16 of bf16, with the operands where a warp's lanes have them. */
static inline void emulated_mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    struct operands {
        unsigned a[4], b[2];
    } *all = (operands *)emulated_warp_memory();
    unsigned lane = emulated_lane(), g = lane / 4, t = lane % 4;
    all[lane] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulated_warp_barrier();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = g + i / 2 * 8, col = 2 * t + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            unsigned from = k % 8 / 2, half = k % 2 * 16;
            unsigned x = all[row % 8 * 4 + from].a[row / 8 + k / 8 * 2] >> half;
            unsigned y = all[col * 4 + from].b[k / 8] >> half;
            c[i] += __uint_as_float(x << 16) * __uint_as_float(y << 16);
        }
    }
}

/* ldmatrix.x4, and with .trans. */
static inline void emulated_load_matrices(unsigned r[4], const void *row, bool turned)
{
    const unsigned short **all = (const unsigned short **)emulated_warp_memory();
    unsigned lane = emulated_lane(), g = lane / 4, t = lane % 4;
    all[lane] = (const unsigned short *)row;
    emulated_warp_barrier();
    for (unsigned i = 0; i < 4; i++) {
        const unsigned short *const *m = all + i * 8;
        unsigned low = turned ? m[2 * t][g] : m[g][2 * t];
        unsigned high = turned ? m[2 * t + 1][g] : m[g][2 * t + 1];
        r[i] = high << 16 | low;
    }
}

/* Kernels are found by name. */
struct emulated_kernel {
    void (*fn)(const void *args);
    size_t nbytes; /* of the argument */
    emulated_kernel(const char *name, void (*f)(const void *), size_t n);
};
#define TD_KERNEL(name, args)                                                             \
    static void name(const args &a);                                                      \
    static emulated_kernel name##_entry(                                                  \
        #name, [](const void *p) { name(*static_cast<const args *>(p)); }, sizeof(args)); \
    static void name(const args &a)

#endif
