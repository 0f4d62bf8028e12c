/* norms.cu -- layer norm and rms norm: one block per row, or one warp where rows are short and made
 * of whole lots; the gradients of gamma and beta by columns, in parts that sums.h puts together.
 * gamma, beta and the statistics are f32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/rows.h"

/* x, gamma, beta -> y, mean, rstd; rms: x, gamma -> y, rstd */
template <class T> static __device__ inline void row_norm(const td__rows_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.width;
    const float *gamma = (const float *)a.io.in[1], *beta = (const float *)a.io.in[2];
    T *y = (T *)a.io.out[0] + blockIdx.x * a.width;
    float mean = 0, squares = 0, count = a.width > 0 ? (float)a.width : 1;
    if (!a.plain) {
        for (long long i = threadIdx.x; i < a.width; i += THREADS)
            mean += get(x[i]);
        mean = block_all<add>(mean) / count;
    }
    for (long long i = threadIdx.x; i < a.width; i += THREADS) {
        float d = get(x[i]) - mean;
        squares += d * d;
    }
    float rstd = 1 / sqrtf(block_all<add>(squares) / count + a.eps);
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        put(y + i, gamma[i] * (get(x[i]) - mean) * rstd + (a.plain ? 0 : beta[i]));
    if (threadIdx.x != 0)
        return;
    if (!a.plain)
        ((float *)a.io.out[1])[blockIdx.x] = mean;
    ((float *)a.io.out[a.plain ? 1 : 2])[blockIdx.x] = rstd;
}
TD_KERNELS(row_norm, td__rows_args)

/* dy, x, gamma, mean, rstd -> dx; rms: dy, x, gamma, rstd -> dx */
template <class T> static __device__ inline void row_norm_back(const td__rows_args &a)
{
    const T *dy = (const T *)a.io.in[0] + blockIdx.x * a.width;
    const T *x = (const T *)a.io.in[1] + blockIdx.x * a.width;
    const float *gamma = (const float *)a.io.in[2];
    float mean = a.plain ? 0 : ((const float *)a.io.in[3])[blockIdx.x];
    float rstd = ((const float *)a.io.in[a.plain ? 3 : 4])[blockIdx.x];
    T *dx = (T *)a.io.out[0] + blockIdx.x * a.width;
    float sum = 0, dot = 0;
    for (long long i = threadIdx.x; i < a.width; i += THREADS) {
        float h = gamma[i] * get(dy[i]);
        sum += h;
        dot += h * (get(x[i]) - mean) * rstd;
    }
    sum = a.plain ? 0 : block_all<add>(sum) / (float)a.width;
    dot = block_all<add>(dot) / (float)a.width;
    for (long long i = threadIdx.x; i < a.width; i += THREADS) {
        float h = gamma[i] * get(dy[i]), z = (get(x[i]) - mean) * rstd;
        put(dx + i, rstd * (h - sum - z * dot));
    }
}
TD_KERNELS(row_norm_back, td__rows_args)

/* The same inputs -> out[0] (splits, width): parts of dgamma, out[1]: of dbeta */
template <class T> static __device__ inline void row_norm_columns(const td__rows_args &a)
{
    long long i = td__thread(), r = blockIdx.y * a.per_split;
    long long end = r + a.per_split < a.rows ? r + a.per_split : a.rows;
    if (i >= a.width)
        return;
    const T *dy = (const T *)a.io.in[0] + i, *x = (const T *)a.io.in[1] + i;
    const float *mean = (const float *)a.io.in[2], *rstd = (const float *)a.io.in[3];
    float dgamma = 0, dbeta = 0;
    for (; r < end; r++) {
        float d = get(dy[r * a.width]);
        dgamma += d * (get(x[r * a.width]) - (a.plain ? 0 : mean[r])) * rstd[r];
        dbeta += d;
    }
    ((float *)a.io.out[0])[blockIdx.y * a.width + i] = dgamma;
    if (!a.plain)
        ((float *)a.io.out[1])[blockIdx.y * a.width + i] = dbeta;
}
TD_KERNELS(row_norm_columns, td__rows_args)

/* ---- One warp per row ------------------------------------------------------------------------ */

template <class T> static __device__ inline void short_norm(const td__rows_args &a)
{
    enum { N = lot<T>::N };
    long long r = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    if (r >= a.rows)
        return; /* the whole warp */
    const T *x = (const T *)a.io.in[0] + r * a.width;
    const float *gamma = (const float *)a.io.in[1], *beta = (const float *)a.io.in[2];
    T *y = (T *)a.io.out[0] + r * a.width;
    int lane = threadIdx.x % 32, width = (int)a.width;
    float mean = 0, squares = 0, count = (float)width;
    for (int c = lane * N; c < width && !a.plain; c += 32 * N) {
        lot<T> v = load_lot(x + c);
        for (int i = 0; i < N; i++)
            mean += get(v.at[i]);
    }
    mean = warp_all<add>(mean) / count;
    for (int c = lane * N; c < width; c += 32 * N) {
        lot<T> v = load_lot(x + c);
        for (int i = 0; i < N; i++) {
            float d = get(v.at[i]) - mean;
            squares += d * d;
        }
    }
    float rstd = 1 / sqrtf(warp_all<add>(squares) / count + a.eps);
    for (int c = lane * N; c < width; c += 32 * N) {
        lot<T> v = load_lot(x + c), w;
        for (int i = 0; i < N; i++)
            put(&w.at[i],
                gamma[c + i] * (get(v.at[i]) - mean) * rstd + (a.plain ? 0 : beta[c + i]));
        store_lot(y + c, w);
    }
    if (lane != 0)
        return;
    if (!a.plain)
        ((float *)a.io.out[1])[r] = mean;
    ((float *)a.io.out[a.plain ? 1 : 2])[r] = rstd;
}
TD_KERNELS(short_norm, td__rows_args)

template <class T> static __device__ inline void short_norm_back(const td__rows_args &a)
{
    enum { N = lot<T>::N };
    long long r = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    if (r >= a.rows)
        return; /* the whole warp */
    const T *dy = (const T *)a.io.in[0] + r * a.width, *x = (const T *)a.io.in[1] + r * a.width;
    const float *gamma = (const float *)a.io.in[2];
    float mean = a.plain ? 0 : ((const float *)a.io.in[3])[r];
    float rstd = ((const float *)a.io.in[a.plain ? 3 : 4])[r];
    T *dx = (T *)a.io.out[0] + r * a.width;
    int lane = threadIdx.x % 32, width = (int)a.width;
    float sum = 0, dot = 0;
    for (int c = lane * N; c < width; c += 32 * N) {
        lot<T> d = load_lot(dy + c), v = load_lot(x + c);
        for (int i = 0; i < N; i++) {
            float h = gamma[c + i] * get(d.at[i]);
            sum += h;
            dot += h * (get(v.at[i]) - mean) * rstd;
        }
    }
    sum = a.plain ? 0 : warp_all<add>(sum) / (float)width;
    dot = warp_all<add>(dot) / (float)width;
    for (int c = lane * N; c < width; c += 32 * N) {
        lot<T> d = load_lot(dy + c), v = load_lot(x + c), w;
        for (int i = 0; i < N; i++) {
            float h = gamma[c + i] * get(d.at[i]), z = (get(v.at[i]) - mean) * rstd;
            put(&w.at[i], rstd * (h - sum - z * dot));
        }
        store_lot(dx + c, w);
    }
}
TD_KERNELS(short_norm_back, td__rows_args)
