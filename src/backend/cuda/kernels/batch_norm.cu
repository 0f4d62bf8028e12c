/* batch_norm.cu -- batch norm of images that lie as NHWC in whole lots: sums over columns in parts,
 * the statistics of them, and one pass over the elements (columns.cuh). Others are in channels.cu.
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

/* x -> out[0], out[1] (splits, C): sums of x - x0 and of its square; grid (channels, splits) */
template <class T> static __device__ inline void nhwc_sums(const td__channels_args &a)
{
    enum { N = lot<T>::N };
    long long channels = a.x.dim[1], c = first_column<T>(), m = pixels(a);
    long long k = blockIdx.y * a.per_split + threadIdx.x / 32, end = (blockIdx.y + 1) * a.per_split;
    const T *x = (const T *)a.io.in[0] + c;
    float sum[N] = {}, squares[N] = {};
    end = end < m ? end : m;
    if (c < channels) {
        lot<T> first = load_lot(x);
#pragma unroll 4
        for (; k < end; k += WARPS) {
            lot<T> l = load_lot(x + k * channels);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float d = get(l.at[i]) - get(first.at[i]);
                sum[i] += d;
                squares[i] += d * d;
            }
        }
    }
    store_columns<N>(sum, c, channels, (float *)a.io.out[0] + blockIdx.y * channels);
    store_columns<N>(squares, c, channels, (float *)a.io.out[1] + blockIdx.y * channels);
}
TD_KERNELS(nhwc_sums, td__channels_args)

/* Those parts (in[0], in[1]) and x (in[2]) -> mean, rstd, var; a block for 32 channels */
template <class T> static __device__ inline void nhwc_stats(const td__channels_args &a)
{
    long long channels = a.x.dim[1], c = (long long)blockIdx.x * 32 + threadIdx.x % 32,
              m = pixels(a);
    float sum = sum_of_parts((const float *)a.io.in[0], a.splits, channels, c);
    float squares = sum_of_parts((const float *)a.io.in[1], a.splits, channels, c);
    if (c >= channels || threadIdx.x >= 32)
        return;
    float count = (float)m, off = sum / count;
    squares -= off * sum;
    squares = squares > 0 ? squares : 0;
    ((float *)a.io.out[0])[c] = get(((const T *)a.io.in[2])[c]) + off;
    ((float *)a.io.out[1])[c] = 1 / sqrtf(squares / count + a.eps);
    ((float *)a.io.out[2])[c] = squares / (m > 1 ? count - 1 : 1);
}
TD_KERNELS(nhwc_stats, td__channels_args)

/* x, gamma, beta, mean (in[3]), rstd (in[4]), residual? (in[5]) -> y */
template <class T> static __device__ inline void nhwc_apply(const td__channels_args &a)
{
    enum { N = lot<T>::N };
    long long channels = a.x.dim[1], n = pixels(a) * channels / N;
    for (long long e = td__thread(); e < n; e += td__threads()) {
        int c = (int)(e * N % channels);
        lot<T> x = load_lot((const T *)a.io.in[0] + e * N), y, r;
        if (a.residual >= 0)
            r = load_lot((const T *)a.io.in[5] + e * N);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float gamma = ((const float *)a.io.in[1])[c + i],
                  beta = ((const float *)a.io.in[2])[c + i];
            float mean = ((const float *)a.io.in[3])[c + i],
                  rstd = ((const float *)a.io.in[4])[c + i];
            float z = gamma * (get(x.at[i]) - mean) * rstd + beta;
            z += a.residual >= 0 ? get(r.at[i]) : 0;
            put(&y.at[i], a.relu && !(z > 0) ? 0 : z);
        }
        store_lot((T *)a.io.out[0] + e * N, y);
    }
}
TD_KERNELS(nhwc_apply, td__channels_args)

/* dy, x, mean (in[2]), rstd (in[3]), y? (in[4]) -> out[0], out[1] (splits, C): sums of the gradient
 * before relu, and of it times the normalised x */
template <class T> static __device__ inline void nhwc_back_sums(const td__channels_args &a)
{
    enum { N = lot<T>::N };
    long long channels = a.x.dim[1], c = first_column<T>(), m = pixels(a);
    long long k = blockIdx.y * a.per_split + threadIdx.x / 32, end = (blockIdx.y + 1) * a.per_split;
    float sum[N] = {}, dot[N] = {};
    end = end < m ? end : m;
    if (c < channels) {
        float mean[N], rstd[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            mean[i] = ((const float *)a.io.in[2])[c + i];
            rstd[i] = ((const float *)a.io.in[3])[c + i];
        }
#pragma unroll 2
        for (; k < end; k += WARPS) {
            lot<T> d = load_lot((const T *)a.io.in[0] + k * channels + c), y;
            lot<T> x = load_lot((const T *)a.io.in[1] + k * channels + c);
            if (a.y >= 0)
                y = load_lot((const T *)a.io.in[4] + k * channels + c);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float g = a.y >= 0 && !(get(y.at[i]) > 0) ? 0 : get(d.at[i]);
                sum[i] += g;
                dot[i] += g * (get(x.at[i]) - mean[i]) * rstd[i];
            }
        }
    }
    store_columns<N>(sum, c, channels, (float *)a.io.out[0] + blockIdx.y * channels);
    store_columns<N>(dot, c, channels, (float *)a.io.out[1] + blockIdx.y * channels);
}
TD_KERNELS(nhwc_back_sums, td__channels_args)

/* dy, x, gamma, mean, rstd, y? as the operator has them; dgamma and dbeta in out[1], out[2] -> dx,
 * dresidual? (out[3]) */
template <class T> static __device__ inline void nhwc_back(const td__channels_args &a)
{
    enum { N = lot<T>::N };
    long long channels = a.x.dim[1], n = pixels(a) * channels / N;
    float count = (float)pixels(a);
    for (long long e = td__thread(); e < n; e += td__threads()) {
        int c = (int)(e * N % channels);
        lot<T> d = load_lot((const T *)a.io.in[0] + e * N), y, dx, dr;
        lot<T> x = load_lot((const T *)a.io.in[1] + e * N);
        if (a.y >= 0)
            y = load_lot((const T *)a.io.in[5] + e * N);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float gamma = ((const float *)a.io.in[2])[c + i],
                  mean = ((const float *)a.io.in[3])[c + i];
            float rstd = ((const float *)a.io.in[4])[c + i];
            float dot = ((const float *)a.io.out[1])[c + i],
                  sum = ((const float *)a.io.out[2])[c + i];
            float g = a.y >= 0 && !(get(y.at[i]) > 0) ? 0 : get(d.at[i]);
            float z = (get(x.at[i]) - mean) * rstd;
            put(&dx.at[i], gamma * rstd * (g - sum / count - z * dot / count));
            put(&dr.at[i], g);
        }
        store_lot((T *)a.io.out[0] + e * N, dx);
        if (a.d_residual >= 0)
            store_lot((T *)a.io.out[3] + e * N, dr);
    }
}
TD_KERNELS(nhwc_back, td__channels_args)
