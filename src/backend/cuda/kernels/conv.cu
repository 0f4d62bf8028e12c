/* conv.cu -- convolutions of our own: one thread per element of y or dx, one block per element of
 * dw. Straight from the definition, for all strides, groups and layouts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/conv.h"
#include "backend/cuda/kernels/number.cuh"

struct at4 {
    long long n, c, h, w;
};

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

static __device__ inline void store(int dtype, void *p, long long i, float v)
{
    if (dtype == TD__IO_F32)
        ((float *)p)[i] = v;
    else
        ((bf16 *)p)[i] = to_bf16(v);
}

/* x, w, b? -> y */
template <class T> static __device__ inline void conv(const td__conv_args &a)
{
    const T *x = (const T *)a.io.in[0];
    const float *w = (const float *)a.io.in[1];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.y, e);
        long long c0 = p.c / (a.w[0] / a.groups) * a.w[1];
        float sum = a.has_bias ? ((const float *)a.io.in[2])[p.c] : 0;
        for (long long c = 0; c < a.w[1]; c++)
            for (long long i = 0; i < a.w[2]; i++)
                for (long long j = 0; j < a.w[3]; j++) {
                    long long h = p.h * a.stride[0] + i * a.dilation[0] - a.pad[0];
                    long long v = p.w * a.stride[1] + j * a.dilation[1] - a.pad[1];
                    if (inside(a.x, h, v))
                        sum += w[((p.c * a.w[1] + c) * a.w[2] + i) * a.w[3] + j] *
                               get(x[place(a.x, p.n, c0 + c, h, v)]);
                }
        store(a.out_dtype, a.io.out[0], place(a.y, p.n, p.c, p.h, p.w),
              a.relu && !(sum > 0) ? 0 : sum);
    }
}
TD_KERNELS(conv, td__conv_args)

/* dy, w -> dx */
template <class T> static __device__ inline void conv_back_data(const td__conv_args &a)
{
    const T *dy = (const T *)a.io.in[0];
    const float *w = (const float *)a.io.in[1];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        at4 p = index_of(a.x, e);
        long long per = a.w[0] / a.groups, group = p.c / a.w[1], c = p.c % a.w[1];
        float sum = 0;
        for (long long o = group * per; o < (group + 1) * per; o++)
            for (long long i = 0; i < a.w[2]; i++)
                for (long long j = 0; j < a.w[3]; j++) {
                    long long h = p.h + a.pad[0] - i * a.dilation[0];
                    long long v = p.w + a.pad[1] - j * a.dilation[1];
                    if (h < 0 || v < 0 || h % a.stride[0] || v % a.stride[1])
                        continue;
                    h /= a.stride[0];
                    v /= a.stride[1];
                    if (inside(a.y, h, v))
                        sum += w[((o * a.w[1] + c) * a.w[2] + i) * a.w[3] + j] *
                               get(dy[place(a.y, p.n, o, h, v)]);
                }
        store(a.out_dtype, a.io.out[0], place(a.x, p.n, p.c, p.h, p.w), sum);
    }
}
TD_KERNELS(conv_back_data, td__conv_args)

/* The share of element e of dw that pixels first, first + step, ... of y have. */
template <class T>
static __device__ inline float weight_share(const td__conv_args &a, long long e, long long first,
                                            long long step)
{
    const T *dy = (const T *)a.io.in[0], *x = (const T *)a.io.in[1];
    long long j = e % a.w[3], i = e / a.w[3] % a.w[2];
    long long c = e / (a.w[3] * a.w[2]) % a.w[1], o = e / (a.w[3] * a.w[2] * a.w[1]);
    long long c0 = o / (a.w[0] / a.groups) * a.w[1];
    long long image = a.y.dim[2] * a.y.dim[3], pixels = a.y.dim[0] * image;
    float sum = 0;
    for (long long p = first; p < pixels; p += step) {
        long long n = p / image, q = p % image / a.y.dim[3], r = p % a.y.dim[3];
        long long h = q * a.stride[0] + i * a.dilation[0] - a.pad[0];
        long long v = r * a.stride[1] + j * a.dilation[1] - a.pad[1];
        if (inside(a.x, h, v))
            sum += get(dy[place(a.y, n, o, q, r)]) * get(x[place(a.x, n, c0 + c, h, v)]);
    }
    return sum;
}

/* dy, x -> dw (O, C / groups, KH, KW); a block per element, or a thread where pixels are few */
template <class T> static __device__ inline void conv_back_weight(const td__conv_args &a)
{
    float sum = block_all<add>(weight_share<T>(a, blockIdx.x, threadIdx.x, THREADS));
    if (threadIdx.x == 0)
        store(a.out_dtype, a.io.out[0], blockIdx.x, sum);
}
TD_KERNELS(conv_back_weight, td__conv_args)

template <class T> static __device__ inline void conv_back_weight_few(const td__conv_args &a)
{
    const T *dy = (const T *)a.io.in[0], *x = (const T *)a.io.in[1];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        long long j = e % a.w[3], i = e / a.w[3] % a.w[2];
        long long c = e / (a.w[3] * a.w[2]) % a.w[1], o = e / (a.w[3] * a.w[2] * a.w[1]);
        c += o / (a.w[0] / a.groups) * a.w[1];
        float sum = 0;
        for (long long n = 0; n < a.y.dim[0]; n++)
            for (long long q = 0; q < a.y.dim[2]; q++)
                for (long long r = 0; r < a.y.dim[3]; r++) {
                    long long h = q * a.stride[0] + i * a.dilation[0] - a.pad[0];
                    long long v = r * a.stride[1] + j * a.dilation[1] - a.pad[1];
                    if (inside(a.x, h, v))
                        sum += get(dy[place(a.y, n, o, q, r)]) * get(x[place(a.x, n, c, h, v)]);
                }
        store(a.out_dtype, a.io.out[0], e, sum);
    }
}
TD_KERNELS(conv_back_weight_few, td__conv_args)

/* dy -> db (O), in out[1]; one block per channel */
template <class T> static __device__ inline void conv_back_bias(const td__conv_args &a)
{
    const T *dy = (const T *)a.io.in[0];
    long long image = a.y.dim[2] * a.y.dim[3], pixels = a.y.dim[0] * image;
    float sum = 0;
    for (long long p = threadIdx.x; p < pixels; p += THREADS)
        sum += get(dy[place(a.y, p / image, blockIdx.x, p % image / a.y.dim[3], p % a.y.dim[3])]);
    sum = block_all<add>(sum);
    if (threadIdx.x == 0)
        store(a.out_dtype, a.io.out[1], blockIdx.x, sum);
}
TD_KERNELS(conv_back_bias, td__conv_args)

/* A thread has all pixels of a channel: neighbours lie side by side in the NHWC side. */
TD_KERNEL(conv_filter, td__filter_args)
{
    unsigned wide = (unsigned)(a.to_nhwc ? a.c_there : a.c);
    for (long long e = td__thread(); e < a.o * wide; e += td__threads()) {
        long long o = (unsigned)e / wide, c = (unsigned)e % wide;
        long long plain = (o * a.c + c) * a.p, nhwc = o * a.p * a.c_there + c;
        for (long long p = 0; p < a.p; p++) {
            long long from = a.to_nhwc ? plain + p : nhwc + p * a.c_there;
            float v = 0;
            if (c < a.c)
                v = a.in_dtype == TD__IO_F32 ? ((const float *)a.io.in[0])[from]
                                             : get(((const bf16 *)a.io.in[0])[from]);
            store(a.out_dtype, a.io.out[0], a.to_nhwc ? nhwc + p * a.c_there : plain + p, v);
        }
    }
}

/* A thread makes a lot of a pixel. */
TD_KERNEL(conv_widen, td__widen_args)
{
    enum { N = lot<bf16>::N };
    long long lots = a.c_out / N;
    for (long long e = td__thread(); e < a.rows * lots; e += td__threads()) {
        long long r = lots == 1 ? e : e / lots, c = lots == 1 ? 0 : e % lots * N;
        lot<bf16> v = {};
        for (int i = 0; i < N && c + i < a.c; i++)
            v.at[i] = ((const bf16 *)a.io.in[0])[r * a.c + c + i];
        store_lot((bf16 *)a.io.out[0] + r * a.c_out + c, v);
    }
}

/* y (rows, C) = act(y + bias (C)?), in place; in[1]: the bias */
template <class T> static __device__ inline void conv_finish(const td__conv_args &a)
{
    T *y = (T *)a.io.out[0];
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        float v = get(y[e]) + (a.has_bias ? ((const float *)a.io.in[1])[e % a.w[0]] : 0);
        put(y + e, a.relu && v < 0 ? 0 : v);
    }
}
TD_KERNELS(conv_finish, td__conv_args)
