/* channels.cu -- batch norm and group norm over images of either layout: one block per channel, or
 * per group of an image. gamma, beta and the statistics are f32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/number.cuh"

/* Element i of channel c, over all images. */
static __device__ inline long long in_channel(const td__image &x, long long c, long long i)
{
    long long w = i % x.dim[3], h = i / x.dim[3] % x.dim[2], n = i / (x.dim[3] * x.dim[2]);
    return n * x.step[0] + c * x.step[1] + h * x.step[2] + w * x.step[3];
}

template <class T>
static __device__ inline float before_act(const td__channels_args &a, long long at, float z)
{
    if (a.residual >= 0)
        z += get(((const T *)a.io.in[a.residual])[at]);
    return a.relu && !(z > 0) ? 0 : z;
}

/* x, gamma, beta, ... -> y, mean, rstd, var */
template <class T> static __device__ inline void batch_norm(const td__channels_args &a)
{
    const T *x = (const T *)a.io.in[0];
    long long c = blockIdx.x, m = a.x.dim[0] * a.x.dim[2] * a.x.dim[3];
    float count = m > 0 ? (float)m : 1, mean = 0, squares = 0;
    for (long long i = threadIdx.x; i < m; i += THREADS)
        mean += get(x[in_channel(a.x, c, i)]);
    mean = block_all<add>(mean) / count;
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        float d = get(x[in_channel(a.x, c, i)]) - mean;
        squares += d * d;
    }
    squares = block_all<add>(squares);
    float rstd = 1 / sqrtf(squares / count + a.eps);
    float gamma = ((const float *)a.io.in[1])[c], beta = ((const float *)a.io.in[2])[c];
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_channel(a.x, c, i);
        float z = gamma * (get(x[at]) - mean) * rstd + beta;
        put((T *)a.io.out[0] + at, before_act<T>(a, at, z));
    }
    if (threadIdx.x != 0)
        return;
    ((float *)a.io.out[1])[c] = mean;
    ((float *)a.io.out[2])[c] = rstd;
    ((float *)a.io.out[3])[c] = squares / (m > 1 ? count - 1 : 1);
}
TD_KERNELS(batch_norm, td__channels_args)

/* x, gamma, beta, mean, var, residual? -> y */
template <class T> static __device__ inline void batch_norm_eval(const td__channels_args &a)
{
    const T *x = (const T *)a.io.in[0];
    long long c = blockIdx.x, m = a.x.dim[0] * a.x.dim[2] * a.x.dim[3];
    float gamma = ((const float *)a.io.in[1])[c], beta = ((const float *)a.io.in[2])[c];
    float mean = ((const float *)a.io.in[3])[c];
    float root = sqrtf(((const float *)a.io.in[4])[c] + a.eps);
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_channel(a.x, c, i);
        float z = gamma * (get(x[at]) - mean) / root + beta;
        put((T *)a.io.out[0] + at, before_act<T>(a, at, z));
    }
}
TD_KERNELS(batch_norm_eval, td__channels_args)

/* The gradient before relu; `off` is x less its mean there, times gamma. Two that are added are
 * rounded as their sum would be. */
template <class T>
static __device__ inline float through(const td__channels_args &a, long long at, float off,
                                       float rstd, float beta)
{
    bool stopped = a.y >= 0 && !(get(((const T *)a.io.in[a.y])[at]) > 0);
    if (a.beta >= 0)
        stopped = !(off * rstd + beta > 0);
    T d = ((const T *)a.io.in[0])[at];
    if (a.more >= 0)
        put(&d, get(d) + get(((const T *)a.io.in[a.more])[at]));
    return stopped ? 0 : get(d);
}

/* dy, x, gamma, mean, rstd, y or beta?, more? -> dx, dgamma, dbeta, dresidual? */
template <class T> static __device__ inline void batch_norm_back(const td__channels_args &a)
{
    const T *x = (const T *)a.io.in[1];
    long long c = blockIdx.x, m = a.x.dim[0] * a.x.dim[2] * a.x.dim[3];
    float gamma = ((const float *)a.io.in[2])[c];
    float mean = ((const float *)a.io.in[3])[c], rstd = ((const float *)a.io.in[4])[c];
    float beta = a.beta >= 0 ? ((const float *)a.io.in[a.beta])[c] : 0;
    float sum = 0, dot = 0, count = (float)m;
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_channel(a.x, c, i);
        float off = get(x[at]) - mean, d = through<T>(a, at, gamma * off, rstd, beta);
        sum += d;
        dot += d * off * rstd;
    }
    sum = block_all<add>(sum);
    dot = block_all<add>(dot);
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_channel(a.x, c, i);
        float off = get(x[at]) - mean, z = off * rstd;
        float d = through<T>(a, at, gamma * off, rstd, beta);
        put((T *)a.io.out[0] + at, gamma * rstd * (d - sum / count - z * dot / count));
        if (a.d_residual >= 0)
            put((T *)a.io.out[a.d_residual] + at, d);
    }
    if (threadIdx.x != 0)
        return;
    ((float *)a.io.out[1])[c] = dot;
    ((float *)a.io.out[2])[c] = sum;
}
TD_KERNELS(batch_norm_back, td__channels_args)

/* ---- Group norm ------------------------------------------------------------------------------ */

/* Element i of group g of an image; *c: its channel. */
static __device__ inline long long in_group(const td__channels_args &a, long long i, long long *c)
{
    long long per = a.x.dim[1] / a.groups, n = blockIdx.x / a.groups, g = blockIdx.x % a.groups;
    long long hw = a.x.dim[2] * a.x.dim[3];
    *c = g * per + i / hw;
    return n * a.x.step[0] + *c * a.x.step[1] + i % hw / a.x.dim[3] * a.x.step[2] +
           i % hw % a.x.dim[3] * a.x.step[3];
}

/* x, gamma, beta -> y, mean, rstd (N, G) */
template <class T> static __device__ inline void group_norm(const td__channels_args &a)
{
    const T *x = (const T *)a.io.in[0];
    long long m = a.x.dim[1] / a.groups * a.x.dim[2] * a.x.dim[3], c;
    float mean = 0, squares = 0, count = m > 0 ? (float)m : 1;
    for (long long i = threadIdx.x; i < m; i += THREADS)
        mean += get(x[in_group(a, i, &c)]);
    mean = block_all<add>(mean) / count;
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        float d = get(x[in_group(a, i, &c)]) - mean;
        squares += d * d;
    }
    float rstd = 1 / sqrtf(block_all<add>(squares) / count + a.eps);
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_group(a, i, &c);
        put((T *)a.io.out[0] + at, ((const float *)a.io.in[1])[c] * (get(x[at]) - mean) * rstd +
                                       ((const float *)a.io.in[2])[c]);
    }
    if (threadIdx.x == 0) {
        ((float *)a.io.out[1])[blockIdx.x] = mean;
        ((float *)a.io.out[2])[blockIdx.x] = rstd;
    }
}
TD_KERNELS(group_norm, td__channels_args)

/* dy, x, gamma, mean, rstd -> dx */
template <class T> static __device__ inline void group_norm_back(const td__channels_args &a)
{
    const T *dy = (const T *)a.io.in[0], *x = (const T *)a.io.in[1];
    const float *gamma = (const float *)a.io.in[2];
    float mean = ((const float *)a.io.in[3])[blockIdx.x];
    float rstd = ((const float *)a.io.in[4])[blockIdx.x];
    long long m = a.x.dim[1] / a.groups * a.x.dim[2] * a.x.dim[3], c;
    float sum = 0, dot = 0;
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_group(a, i, &c);
        float h = gamma[c] * get(dy[at]);
        sum += h;
        dot += h * (get(x[at]) - mean) * rstd;
    }
    sum = block_all<add>(sum) / (float)m;
    dot = block_all<add>(dot) / (float)m;
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_group(a, i, &c);
        float h = gamma[c] * get(dy[at]), z = (get(x[at]) - mean) * rstd;
        put((T *)a.io.out[0] + at, rstd * (h - sum - z * dot));
    }
}
TD_KERNELS(group_norm_back, td__channels_args)

/* The same inputs -> dgamma (out[1]), dbeta (out[2]); one block per channel */
template <class T> static __device__ inline void group_norm_sums(const td__channels_args &a)
{
    const T *dy = (const T *)a.io.in[0], *x = (const T *)a.io.in[1];
    const float *mean = (const float *)a.io.in[3], *rstd = (const float *)a.io.in[4];
    long long c = blockIdx.x, hw = a.x.dim[2] * a.x.dim[3], m = a.x.dim[0] * hw;
    long long g = c / (a.x.dim[1] / a.groups);
    float dgamma = 0, dbeta = 0;
    for (long long i = threadIdx.x; i < m; i += THREADS) {
        long long at = in_channel(a.x, c, i), stat = i / hw * a.groups + g;
        float d = get(dy[at]);
        dbeta += d;
        dgamma += d * (get(x[at]) - mean[stat]) * rstd[stat];
    }
    dgamma = block_all<add>(dgamma);
    dbeta = block_all<add>(dbeta);
    if (threadIdx.x == 0) {
        ((float *)a.io.out[1])[c] = dgamma;
        ((float *)a.io.out[2])[c] = dbeta;
    }
}
TD_KERNELS(group_norm_sums, td__channels_args)
