/* batch_norm.cu -- batch norm of images that lie as NHWC in whole lots: sums over columns in parts,
 * the statistics of them, and one pass over the elements (columns.cuh). Others are in channels.cu.
 *
 * Where pixels are short, a warp has several at once. In the passes over elements every thread
 * keeps to its channels: the planner's grids move by whole pixels.
 *
 * Squares are summed around the first pixel of each channel, so that little is lost where the mean
 * is large. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/columns.cuh"

static __device__ inline long long pixels(const td__channels_args &a)
{
    return a.x.dim[0] * a.x.dim[2] * a.x.dim[3];
}

/* The pixels of a lane, one every `step`, and the first of its channels. */
struct share {
    long long k, end, step, c;
};
template <class T> static __device__ inline share share_of(const td__channels_args &a)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at_once = 32 / a.lanes;
    long long m = pixels(a);
    share s;
    s.k = blockIdx.y * a.per_split + warp * at_once + lane / a.lanes;
    s.end = (blockIdx.y + 1) * a.per_split < m ? (blockIdx.y + 1) * a.per_split : m;
    s.step = WARPS * at_once;
    s.c = ((long long)blockIdx.x * 32 + lane % a.lanes) * lot<T>::N;
    return s;
}

/* Sums of a block's pixels to row blockIdx.y of to (splits, C), in a fixed order. */
template <int N>
static __device__ inline void store_sums(const td__channels_args &a, float v[N], long long c,
                                         void *to)
{
    long long channels = a.x.dim[1];
    for (int half = 16; half >= a.lanes; half /= 2)
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] += __shfl_xor_sync(0xffffffffu, v[i], half);
    store_columns<N>(v, (int)threadIdx.x % 32 < a.lanes ? c : channels, channels,
                     (float *)to + blockIdx.y * channels);
}

template <int N>
static __device__ inline void load_params(float v[N], const void *from, long long c)
{
#pragma unroll
    for (int i = 0; i < N; i += lot<float>::N) {
        lot<float> l = load_lot((const float *)from + c + i);
#pragma unroll
        for (int k = 0; k < lot<float>::N; k++)
            v[i + k] = l.at[k];
    }
}

/* What relu gets; backward asks for its sign again, and must get the same. */
static __device__ inline float before_relu(float x, float scale, float mean, float beta)
{
    return fmaf(scale, x - mean, beta);
}

/* x -> out[0], out[1] (splits, C): sums of x - x0 and of its square; grid (channels, splits) */
template <class T> static __device__ inline void nhwc_sums(const td__channels_args &a)
{
    enum { N = lot<T>::N, AHEAD = 4 };
    long long channels = a.x.dim[1];
    share s = share_of<T>(a);
    const T *x = (const T *)a.io.in[0] + s.c;
    float sum[N] = {}, squares[N] = {};
    if (s.c < channels) {
        lot<T> first = load_lot(x);
        for (long long k = s.k; k < s.end; k += AHEAD * s.step) {
            lot<T> l[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (k + j * s.step < s.end)
                    l[j] = load_lot(x + (k + j * s.step) * channels);
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
#pragma unroll
                for (int i = 0; i < N && k + j * s.step < s.end; i++) {
                    float d = get(l[j].at[i]) - get(first.at[i]);
                    sum[i] += d;
                    squares[i] += d * d;
                }
        }
    }
    store_sums<N>(a, sum, s.c, a.io.out[0]);
    store_sums<N>(a, squares, s.c, a.io.out[1]);
}
TD_KERNELS(nhwc_sums, td__channels_args)

/* Those parts (in[0], in[1]) and x (in[2]) -> mean, rstd, var; a block for 32 channels */
template <class T> static __device__ inline void nhwc_stats(const td__channels_args &a)
{
    long long channels = a.x.dim[1], c = (long long)blockIdx.x * 32 + threadIdx.x % 32,
              m = pixels(a);
    const float *part[2] = {(const float *)a.io.in[0], (const float *)a.io.in[1]};
    float sum[2];
    sums_of_parts<2>(part, a.splits, channels, c, sum);
    if (c >= channels || threadIdx.x >= 32)
        return;
    float count = (float)m, off = sum[0] / count, squares = sum[1] - off * sum[0];
    squares = squares > 0 ? squares : 0;
    ((float *)a.io.out[0])[c] = get(((const T *)a.io.in[2])[c]) + off;
    ((float *)a.io.out[1])[c] = 1 / sqrtf(squares / count + a.eps);
    ((float *)a.io.out[2])[c] = squares / (m > 1 ? count - 1 : 1);
}
TD_KERNELS(nhwc_stats, td__channels_args)

/* x, gamma, beta, mean (in[3]), rstd (in[4]), residual? (in[5]) -> y */
template <class T> static __device__ inline void nhwc_apply(const td__channels_args &a)
{
    enum { N = lot<T>::N, AHEAD = 2 };
    long long channels = a.x.dim[1], n = pixels(a) * channels / N, step = td__threads();
    long long c = td__thread() * N % channels;
    float scale[N], rstd[N], mean[N], beta[N];
    load_params<N>(scale, a.io.in[1], c);
    load_params<N>(beta, a.io.in[2], c);
    load_params<N>(mean, a.io.in[3], c);
    load_params<N>(rstd, a.io.in[4], c);
#pragma unroll
    for (int i = 0; i < N; i++)
        scale[i] *= rstd[i];
    for (long long e = td__thread(); e < n; e += AHEAD * step) {
        lot<T> x[AHEAD], r[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (e + j * step < n) {
                x[j] = load_lot((const T *)a.io.in[0] + (e + j * step) * N);
                if (a.residual >= 0)
                    r[j] = load_lot((const T *)a.io.in[5] + (e + j * step) * N);
            }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (e + j * step >= n)
                continue;
            lot<T> y;
#pragma unroll
            for (int i = 0; i < N; i++) {
                float z = before_relu(get(x[j].at[i]), scale[i], mean[i], beta[i]);
                z += a.residual >= 0 ? get(r[j].at[i]) : 0;
                put(&y.at[i], a.relu && !(z > 0) ? 0 : z);
            }
            store_lot((T *)a.io.out[0] + (e + j * step) * N, y);
        }
    }
}
TD_KERNELS(nhwc_apply, td__channels_args)

/* Which of these the backward of a batch norm meets: y, if any, tells where relu stopped; beta
 * tells it; dy is the sum of two. */
enum back_kind { BY_Y, BY_BETA, WITH_MORE };

/* What the backward knows of a lot of channels. */
template <int N, back_kind K> struct channel_params {
    float scale[N], mean[N], rstd[N], beta[K == BY_BETA ? N : 1]; /* scale: gamma times rstd */
    __device__ inline void load(const td__channels_args &a, long long c)
    {
        load_params<N>(scale, a.io.in[2], c);
        load_params<N>(mean, a.io.in[3], c);
        load_params<N>(rstd, a.io.in[4], c);
#pragma unroll
        for (int i = 0; i < N; i++)
            scale[i] *= rstd[i];
        if constexpr (K == BY_BETA)
            load_params<N>(beta, a.io.in[5], c);
    }
};

/* A lot of the gradient before relu. Two that are added are rounded as their sum would be. */
template <class T, back_kind K> struct gradient {
    enum { N = lot<T>::N };
    lot<T> d, more, y;
    __device__ inline void load(const td__channels_args &a, long long at)
    {
        d = load_lot((const T *)a.io.in[0] + at);
        if (K == WITH_MORE)
            more = load_lot((const T *)a.io.in[6] + at);
        if (K != BY_BETA && a.y >= 0)
            y = load_lot((const T *)a.io.in[5] + at);
    }
    __device__ inline void settle(const td__channels_args &a, const lot<T> &x,
                                  const channel_params<N, K> &p)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool passed = true;
            if constexpr (K == BY_BETA)
                passed = before_relu(get(x.at[i]), p.scale[i], p.mean[i], p.beta[i]) > 0;
            else if (a.y >= 0)
                passed = get(y.at[i]) > 0;
            if (K == WITH_MORE)
                put(&d.at[i], get(d.at[i]) + get(more.at[i]));
            if (!passed)
                put(&d.at[i], 0);
        }
    }
};

/* dy, x, gamma, mean, rstd, y or beta? (in[5]), more? (in[6]) -> out[0], out[1] (splits, C): sums
 * of the gradient before relu, and of it times the normalised x; dresidual? (out[2]): that
 * gradient */
template <class T, back_kind K> static __device__ inline void back_sums(const td__channels_args &a)
{
    enum { N = lot<T>::N, AHEAD = K == BY_BETA ? 4 : 2 };
    long long channels = a.x.dim[1];
    share s = share_of<T>(a);
    float sum[N] = {}, dot[N] = {};
    if (s.c < channels) {
        channel_params<N, K> p;
        p.load(a, s.c);
        for (long long k = s.k; k < s.end; k += AHEAD * s.step) {
            gradient<T, K> g[AHEAD];
            lot<T> x[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (k + j * s.step < s.end) {
                    long long at = (k + j * s.step) * channels + s.c;
                    g[j].load(a, at);
                    x[j] = load_lot((const T *)a.io.in[1] + at);
                }
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                if (k + j * s.step >= s.end)
                    continue;
                g[j].settle(a, x[j], p);
#pragma unroll
                for (int i = 0; i < N; i++) {
                    float d = get(g[j].d.at[i]);
                    sum[i] += d;
                    dot[i] += d * (get(x[j].at[i]) - p.mean[i]) * p.rstd[i];
                }
                if (K != BY_BETA && a.d_residual >= 0)
                    store_lot((T *)a.io.out[2] + (k + j * s.step) * channels + s.c, g[j].d);
            }
        }
    }
    store_sums<N>(a, sum, s.c, a.io.out[0]);
    store_sums<N>(a, dot, s.c, a.io.out[1]);
}

/* The same inputs; dgamma, dbeta in out[1], out[2] -> dx */
template <class T, back_kind K> static __device__ inline void back(const td__channels_args &a)
{
    enum { N = lot<T>::N, AHEAD = K == WITH_MORE ? 2 : 4 };
    long long channels = a.x.dim[1], n = pixels(a) * channels / N, step = td__threads();
    long long c = td__thread() * N % channels;
    /* dx = scale (g - even - (x - mean) slope) */
    float even[N], slope[N], count = (float)pixels(a);
    channel_params<N, K> p;
    p.load(a, c);
    load_params<N>(slope, a.io.out[1], c);
    load_params<N>(even, a.io.out[2], c);
#pragma unroll
    for (int i = 0; i < N; i++) {
        even[i] /= count;
        slope[i] *= p.rstd[i] / count;
    }
    for (long long e = td__thread(); e < n; e += AHEAD * step) {
        gradient<T, K> g[AHEAD];
        lot<T> x[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (e + j * step < n) {
                g[j].load(a, (e + j * step) * N);
                x[j] = load_lot((const T *)a.io.in[1] + (e + j * step) * N);
            }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (e + j * step >= n)
                continue;
            g[j].settle(a, x[j], p);
            lot<T> dx;
#pragma unroll
            for (int i = 0; i < N; i++)
                put(&dx.at[i], p.scale[i] * (get(g[j].d.at[i]) - even[i] -
                                             (get(x[j].at[i]) - p.mean[i]) * slope[i]));
            store_lot((T *)a.io.out[0] + (e + j * step) * N, dx);
        }
    }
}

#define TD_BACK(name, what, kind)                                                           \
    template <class T> static __device__ inline void name##what(const td__channels_args &a) \
    {                                                                                       \
        what<T, kind>(a);                                                                   \
    }                                                                                       \
    TD_KERNELS(name##what, td__channels_args)
TD_BACK(nhwc_, back_sums, BY_Y)
TD_BACK(nhwc_, back, BY_Y)
TD_BACK(nhwc_beta_, back_sums, BY_BETA)
TD_BACK(nhwc_beta_, back, BY_BETA)
TD_BACK(nhwc_more_, back_sums, WITH_MORE)
TD_BACK(nhwc_more_, back, WITH_MORE)
