/* norms.cu -- layer norm and rms norm: one block per row, or one warp where rows are short and made
 * of whole lots, and stay in registers; the gradients of gamma and beta by columns, in parts that
 * sums.h puts together. gamma, beta and the statistics are f32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/columns.cuh"
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

/* dy, x, gamma, mean, rstd, residual? -> dx; rms: dy, x, gamma, rstd -> dx */
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
        float more = a.added ? get(((const T *)a.io.in[5])[blockIdx.x * a.width + i]) : 0;
        put(dx + i, rstd * (h - sum - z * dot) + more);
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

/* ---- One warp per row, which is in registers: LOTS lots a lane ------------------------------- */

template <class T, int LOTS> struct row {
    enum { N = lot<T>::N };
    lot<T> at[LOTS];
    __device__ inline void load(const T *from, int width)
    {
#pragma unroll
        for (int j = 0; j < LOTS; j++) {
            int c = (threadIdx.x % 32 + j * 32) * N;
            if (c < width)
                at[j] = load_lot(from + c);
        }
    }
};

template <int N> static __device__ inline void load_floats(float v[N], const float *from)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        lot<float> l = load_lot(from + i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[i + k] = l.at[k];
    }
}

template <class T, int LOTS> static __device__ inline void short_norm(const td__rows_args &a)
{
    enum { N = lot<T>::N };
    long long r = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    if (r >= a.rows)
        return; /* the whole warp */
    const float *gamma = (const float *)a.io.in[1], *beta = (const float *)a.io.in[2];
    int lane = threadIdx.x % 32, width = (int)a.width;
    float mean = 0, squares = 0, count = (float)width;
    row<T, LOTS> x;
    x.load((const T *)a.io.in[0] + r * a.width, width);
#pragma unroll
    for (int j = 0; j < LOTS; j++)
        if ((lane + j * 32) * N < width && !a.plain)
#pragma unroll
            for (int i = 0; i < N; i++)
                mean += get(x.at[j].at[i]);
    mean = warp_all<add>(mean) / count;
#pragma unroll
    for (int j = 0; j < LOTS; j++)
        if ((lane + j * 32) * N < width)
#pragma unroll
            for (int i = 0; i < N; i++) {
                float d = get(x.at[j].at[i]) - mean;
                squares += d * d;
            }
    float rstd = 1 / sqrtf(warp_all<add>(squares) / count + a.eps);
#pragma unroll
    for (int j = 0; j < LOTS; j++) {
        int c = (lane + j * 32) * N;
        if (c >= width)
            continue;
        float g[N], b[N] = {};
        lot<T> y;
        load_floats<N>(g, gamma + c);
        if (!a.plain)
            load_floats<N>(b, beta + c);
#pragma unroll
        for (int i = 0; i < N; i++)
            put(&y.at[i], g[i] * (get(x.at[j].at[i]) - mean) * rstd + b[i]);
        store_lot((T *)a.io.out[0] + r * a.width + c, y);
    }
    if (lane != 0)
        return;
    if (!a.plain)
        ((float *)a.io.out[1])[r] = mean;
    ((float *)a.io.out[a.plain ? 1 : 2])[r] = rstd;
}

/* dy, x, gamma, mean, rstd (rms: no mean), residual? -> dx (out[0]), and parts of dgamma (out[1])
 * and dbeta (out[2]): (splits, width). A block has the rows of one part. dx may lie where dy or the
 * residual does. */
template <class T, int LOTS, bool ADDED>
static __device__ inline void norm_back(const td__rows_args &a)
{
    enum { N = lot<T>::N };
    long long r = (long long)blockIdx.x * a.per_split + threadIdx.x / 32;
    long long end = (long long)(blockIdx.x + 1) * a.per_split;
    end = end < a.rows ? end : a.rows;
    const float *gamma = (const float *)a.io.in[2];
    int lane = threadIdx.x % 32, width = (int)a.width;
    float dgamma[LOTS][N] = {}, dbeta[LOTS][N] = {};
    for (; r < end; r += WARPS) {
        row<T, LOTS> d, x, more;
        d.load((const T *)a.io.in[0] + r * a.width, width);
        x.load((const T *)a.io.in[1] + r * a.width, width);
        if (ADDED)
            more.load((const T *)a.io.in[5] + r * a.width, width);
        float mean = a.plain ? 0 : ((const float *)a.io.in[3])[r];
        float rstd = ((const float *)a.io.in[a.plain ? 3 : 4])[r];
        float sum = 0, dot = 0;
#pragma unroll
        for (int j = 0; j < LOTS; j++) {
            int c = (lane + j * 32) * N;
            if (c >= width)
                continue;
            float g[N];
            load_floats<N>(g, gamma + c);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float dy = get(d.at[j].at[i]), z = (get(x.at[j].at[i]) - mean) * rstd;
                dgamma[j][i] += dy * z;
                dbeta[j][i] += dy;
                sum += g[i] * dy;
                dot += g[i] * dy * z;
            }
        }
        sum = a.plain ? 0 : warp_all<add>(sum) / (float)width;
        dot = warp_all<add>(dot) / (float)width;
#pragma unroll
        for (int j = 0; j < LOTS; j++) {
            int c = (lane + j * 32) * N;
            if (c >= width)
                continue;
            float g[N];
            lot<T> dx;
            load_floats<N>(g, gamma + c);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float z = (get(x.at[j].at[i]) - mean) * rstd;
                put(&dx.at[i], rstd * (g[i] * get(d.at[j].at[i]) - sum - z * dot) +
                                   (ADDED ? get(more.at[j].at[i]) : 0));
            }
            store_lot((T *)a.io.out[0] + r * a.width + c, dx);
        }
    }
#pragma unroll
    for (int j = 0; j < LOTS; j++) {
        long long c = (lane + j * 32) * N, part = (long long)blockIdx.x * a.width;
        store_columns<N>(dgamma[j], c, width, (float *)a.io.out[1] + part);
        if (!a.plain)
            store_columns<N>(dbeta[j], c, width, (float *)a.io.out[2] + part);
    }
}

template <class T, int LOTS> static __device__ inline void short_norm_back(const td__rows_args &a)
{
    norm_back<T, LOTS, false>(a);
}
template <class T, int LOTS> static __device__ inline void short_norm_added(const td__rows_args &a)
{
    norm_back<T, LOTS, true>(a);
}

#define TD_SHORT(name, lots)                       \
    TD_KERNEL(name##_##lots##_f32, td__rows_args)  \
    {                                              \
        name<float, lots>(a);                      \
    }                                              \
    TD_KERNEL(name##_##lots##_bf16, td__rows_args) \
    {                                              \
        name<bf16, lots>(a);                       \
    }
TD_SHORT(short_norm, 1)
TD_SHORT(short_norm, 3)
TD_SHORT(short_norm, 6)
TD_SHORT(short_norm_back, 1)
TD_SHORT(short_norm_back, 3)
TD_SHORT(short_norm_back, 6)
TD_SHORT(short_norm_added, 1)
TD_SHORT(short_norm_added, 3)
TD_SHORT(short_norm_added, 6)
