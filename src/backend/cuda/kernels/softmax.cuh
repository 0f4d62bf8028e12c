/* softmax.cuh -- sums of exponentials over a row, for a block of threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_SOFTMAX_CUH
#define TD_BACKEND_CUDA_KERNELS_SOFTMAX_CUH

#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/rows.h"

/* The largest element, and the sum of exp(x - it). */
template <class T>
static __device__ inline float row_sum(const T *x, long long width, float *largest_of)
{
    float top = largest::none(), sum = 0;
    for (long long i = threadIdx.x; i < width; i += THREADS)
        top = fmaxf(top, get(x[i]));
    top = block_all<largest>(top);
    for (long long i = threadIdx.x; i < width; i += THREADS)
        sum += expf(get(x[i]) - top);
    *largest_of = top;
    return block_all<add>(sum);
}

/* exp, as exact as the elements deserve */
template <class T> static __device__ inline float exp_of(float x)
{
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

/* Both in one pass over rows of whole lots, with a maximum of each thread's own. */
template <class T>
static __device__ inline float lot_sum(const T *x, long long width, float *largest_of)
{
    enum { N = lot<T>::N, AHEAD = 4 }; /* lots on their way */
    float top = -TD__INFINITY, sum = 0;
    lot<T> none;
#pragma unroll
    for (int i = 0; i < N; i++)
        put(&none.at[i], -TD__INFINITY);
    for (int c = (int)threadIdx.x * N; c < width; c += AHEAD * THREADS * N) {
        lot<T> v[AHEAD];
        float high = top;
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            v[j] = c + j * THREADS * N < width ? load_lot(x + c + j * THREADS * N) : none;
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int i = 0; i < N; i++)
                high = fmaxf(high, get(v[j].at[i])); /* a NaN is seen in the sum */
        float base = high > -TD__INFINITY ? high : 0;
        sum *= exp_of<T>(top - base);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int i = 0; i < N; i++)
                sum += exp_of<T>(get(v[j].at[i]) - base);
        top = high;
    }
    *largest_of = block_all<largest>(top);
    float scale = top > -TD__INFINITY ? expf(top - *largest_of) : 0;
    return block_all<add>(sum == sum ? sum * scale : sum);
}

/* log sum exp of a row */
template <class T> static __device__ inline float row_lse(const T *x, long long width)
{
    bool lots = width % lot<T>::N == 0 && width < 1 << 30;
    float top, sum = lots ? lot_sum(x, width, &top) : row_sum(x, width, &top);
    return top + logf(sum);
}

template <class T> static __device__ inline float row_total(const T *x, long long width)
{
    float sum = 0;
    for (long long i = threadIdx.x; i < width; i += THREADS)
        sum += get(x[i]);
    return block_all<add>(sum);
}

static __device__ inline bool counts(const td__xent_args &a, long long target)
{
    return !(a.use_ignore && target == a.ignore);
}

#endif
