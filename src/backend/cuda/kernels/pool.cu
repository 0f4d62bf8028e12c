/* pool.cu -- pools of images of either layout. Forward one thread makes an element of y; backward
 * one of dx, from all windows that it is in, in their order. Where channels lie side by side in
 * whole lots, a thread makes a lot of them (the kernels _lots). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/pool.h"

struct at4 {
    long long n, c, h, w;
};

/* Element i of an image in the order in which it lies; NHWC has a step of 1 along C. */
static __device__ inline at4 index_of(const td__image &x, long long i)
{
    at4 p;
    if (x.step[1] == 1) {
        p.c = i % x.dim[1];
        i /= x.dim[1];
        p.w = i % x.dim[3];
        i /= x.dim[3];
        p.h = i % x.dim[2];
        p.n = i / x.dim[2];
    } else {
        p.w = i % x.dim[3];
        i /= x.dim[3];
        p.h = i % x.dim[2];
        i /= x.dim[2];
        p.c = i % x.dim[1];
        p.n = i / x.dim[1];
    }
    return p;
}

static __device__ inline long long place(const td__image &x, long long n, long long c, long long h,
                                         long long w)
{
    return n * x.step[0] + c * x.step[1] + h * x.step[2] + w * x.step[3];
}

static __device__ inline bool inside(const td__image &x, long long h, long long w)
{
    return h >= 0 && h < x.dim[2] && w >= 0 && w < x.dim[3];
}

template <class T> static __device__ inline void max_pool(const td__pool_args &a)
{
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.y, e);
        float best = -TD__INFINITY;
        int where = 0;
        bool found = false;
        for (int i = 0; i < a.size[0]; i++)
            for (int j = 0; j < a.size[1]; j++) {
                long long h = p.h * a.stride[0] + i - a.pad[0];
                long long w = p.w * a.stride[1] + j - a.pad[1];
                if (!inside(a.x, h, w))
                    continue;
                float v = get(((const T *)a.io.in[0])[place(a.x, p.n, p.c, h, w)]);
                if (found && !(v > best))
                    continue;
                found = true;
                best = v;
                where = i * a.size[1] + j;
            }
        long long to = place(a.y, p.n, p.c, p.h, p.w);
        put((T *)a.io.out[0] + to, best);
        ((unsigned char *)a.io.out[1])[to] = (unsigned char)where;
    }
}
TD_KERNELS(max_pool, td__pool_args)

template <class T> static __device__ inline void avg_pool(const td__pool_args &a)
{
    float window = (float)a.size[0] * (float)a.size[1];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.y, e);
        float sum = 0;
        for (int i = 0; i < a.size[0]; i++)
            for (int j = 0; j < a.size[1]; j++) {
                long long h = p.h * a.stride[0] + i - a.pad[0];
                long long w = p.w * a.stride[1] + j - a.pad[1];
                if (inside(a.x, h, w))
                    sum += get(((const T *)a.io.in[0])[place(a.x, p.n, p.c, h, w)]);
            }
        put((T *)a.io.out[0] + place(a.y, p.n, p.c, p.h, p.w), sum / window);
    }
}
TD_KERNELS(avg_pool, td__pool_args)

/* The sum over the windows of y that element (h, w) of x is in; MAX: those that chose it. */
template <class T, bool MAX>
static __device__ inline float windows_of(const td__pool_args &a, const at4 &p)
{
    float sum = 0;
    for (int i = a.size[0] - 1; i >= 0; i--)
        for (int j = a.size[1] - 1; j >= 0; j--) {
            long long h = p.h + a.pad[0] - i, w = p.w + a.pad[1] - j;
            if (h % a.stride[0] || w % a.stride[1] || h < 0 || w < 0)
                continue;
            h /= a.stride[0];
            w /= a.stride[1];
            if (!inside(a.y, h, w))
                continue;
            long long at = place(a.y, p.n, p.c, h, w);
            if (!MAX || ((const unsigned char *)a.io.in[1])[at] == i * a.size[1] + j)
                sum += get(((const T *)a.io.in[0])[at]);
        }
    return sum;
}

template <class T> static __device__ inline void max_pool_back(const td__pool_args &a)
{
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.x, e);
        put((T *)a.io.out[0] + place(a.x, p.n, p.c, p.h, p.w), windows_of<T, true>(a, p));
    }
}
TD_KERNELS(max_pool_back, td__pool_args)

template <class T> static __device__ inline void avg_pool_back(const td__pool_args &a)
{
    float window = (float)a.size[0] * (float)a.size[1];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.x, e);
        put((T *)a.io.out[0] + place(a.x, p.n, p.c, p.h, p.w), windows_of<T, false>(a, p) / window);
    }
}
TD_KERNELS(avg_pool_back, td__pool_args)

/* One block per (image, channel). */
template <class T> static __device__ inline void global_pool(const td__pool_args &a)
{
    long long n = blockIdx.x / a.x.dim[1], c = blockIdx.x % a.x.dim[1];
    long long m = a.x.dim[2] * a.x.dim[3];
    float sum = 0;
    for (long long i = threadIdx.x; i < m; i += THREADS)
        sum += get(((const T *)a.io.in[0])[place(a.x, n, c, i / a.x.dim[3], i % a.x.dim[3])]);
    sum = block_all<add>(sum);
    if (threadIdx.x == 0)
        put((T *)a.io.out[0] + blockIdx.x, sum / (float)m);
}
TD_KERNELS(global_pool, td__pool_args)

template <class T> static __device__ inline void global_pool_back(const td__pool_args &a)
{
    float m = (float)(a.x.dim[2] * a.x.dim[3]);
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.x, e);
        put((T *)a.io.out[0] + place(a.x, p.n, p.c, p.h, p.w),
            get(((const T *)a.io.in[0])[p.n * a.x.dim[1] + p.c]) / m);
    }
}
TD_KERNELS(global_pool_back, td__pool_args)

/* ---- NHWC, a lot of channels at a time ------------------------------------------------------- */

/* Sixteen bytes of elements have a byte each that says where they were found. */
template <int N> struct alignas(N) places {
    unsigned char at[N];
};

struct pixel {
    int n, h, w, c; /* c: the first channel of the lot */
};
template <int N> static __device__ inline pixel pixel_of(const td__image &x, long long i)
{
    unsigned e = (unsigned)i, lots = (unsigned)x.dim[1] / N, wide = (unsigned)x.dim[3],
             high = (unsigned)x.dim[2];
    pixel p;
    p.c = (int)(e % lots) * N;
    e /= lots;
    p.w = (int)(e % wide);
    e /= wide;
    p.h = (int)(e % high);
    p.n = (int)(e / high);
    return p;
}

template <class T> static __device__ inline void max_pool_lots(const td__pool_args &a)
{
    enum { N = lot<T>::N };
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        pixel p = pixel_of<N>(a.y, e);
        float best[N];
        places<N> where = {};
        lot<T> y;
        bool found = false;
        for (int i = 0; i < a.size[0]; i++)
            for (int j = 0; j < a.size[1]; j++) {
                int h = p.h * a.stride[0] + i - a.pad[0], w = p.w * a.stride[1] + j - a.pad[1];
                if (!inside(a.x, h, w))
                    continue;
                lot<T> v = load_lot((const T *)a.io.in[0] + place(a.x, p.n, p.c, h, w));
#pragma unroll
                for (int k = 0; k < N; k++) {
                    float f = get(v.at[k]);
                    if (found && !(f > best[k]))
                        continue;
                    best[k] = f;
                    where.at[k] = (unsigned char)(i * a.size[1] + j);
                }
                found = true;
            }
#pragma unroll
        for (int k = 0; k < N; k++)
            put(&y.at[k], found ? best[k] : -TD__INFINITY);
        store_lot((T *)a.io.out[0] + e * N, y);
        *(places<N> *)((unsigned char *)a.io.out[1] + e * N) = where;
    }
}
TD_KERNELS(max_pool_lots, td__pool_args)

template <class T> static __device__ inline void max_pool_back_lots(const td__pool_args &a)
{
    enum { N = lot<T>::N };
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        pixel p = pixel_of<N>(a.x, e);
        float sum[N] = {};
        lot<T> dx;
        /* The windows that it is in, first to last. */
        int top = p.h + a.pad[0], left = p.w + a.pad[1];
        int h = top < a.size[0] ? 0 : (top - a.size[0]) / a.stride[0] + 1;
        int w0 = left < a.size[1] ? 0 : (left - a.size[1]) / a.stride[1] + 1;
        for (; h < a.y.dim[2] && h * a.stride[0] <= top; h++)
            for (int w = w0; w < a.y.dim[3] && w * a.stride[1] <= left; w++) {
                int i = top - h * a.stride[0], j = left - w * a.stride[1];
                long long at = place(a.y, p.n, p.c, h, w);
                lot<T> d = load_lot((const T *)a.io.in[0] + at);
                places<N> where = *(const places<N> *)((const unsigned char *)a.io.in[1] + at);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[k] += where.at[k] == i * a.size[1] + j ? get(d.at[k]) : 0;
            }
#pragma unroll
        for (int k = 0; k < N; k++)
            put(&dx.at[k], sum[k]);
        store_lot((T *)a.io.out[0] + e * N, dx);
    }
}
TD_KERNELS(max_pool_back_lots, td__pool_args)

/* One thread for a lot of channels of an image. */
template <class T> static __device__ inline void global_pool_lots(const td__pool_args &a)
{
    enum { N = lot<T>::N };
    long long channels = a.x.dim[1], lots = channels / N, m = a.x.dim[2] * a.x.dim[3];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        const T *x = (const T *)a.io.in[0] + e / lots * m * channels + e % lots * N;
        float sum[N] = {};
        lot<T> y;
#pragma unroll 8
        for (long long i = 0; i < m; i++) {
            lot<T> v = load_lot(x + i * channels);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += get(v.at[k]);
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            put(&y.at[k], sum[k] / (float)m);
        store_lot((T *)a.io.out[0] + e * N, y);
    }
}
TD_KERNELS(global_pool_lots, td__pool_args)
