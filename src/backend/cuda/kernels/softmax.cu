/* softmax.cu -- softmax and its logarithm over rows, with their gradients: one block per row. */
/* SPDX-License-Identifier: Apache-2.0 */
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
    for (long long c = (long long)threadIdx.x * N; c < width; c += AHEAD * THREADS * N) {
        lot<T> v[AHEAD];
        float high = top;
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c + j * THREADS * N < width)
                v[j] = load_lot(x + c + j * THREADS * N);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (c + j * THREADS * N < width)
                    high = largest::of(high, get(v[j].at[i]));
        float base = high > -TD__INFINITY || high != high ? high : 0;
        sum *= exp_of<T>(top - base);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (c + j * THREADS * N < width)
                    sum += exp_of<T>(get(v[j].at[i]) - base);
        top = high;
    }
    *largest_of = block_all<largest>(top);
    return block_all<add>(top > -TD__INFINITY ? sum * expf(top - *largest_of) : 0);
}

template <class T> static __device__ inline void softmax(const td__rows_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.width;
    T *y = (T *)a.io.out[0] + blockIdx.x * a.width;
    float top, sum = row_sum(x, a.width, &top);
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        put(y + i, expf(get(x[i]) - top) / sum);
}
TD_KERNELS(softmax, td__rows_args)

template <class T> static __device__ inline void log_softmax(const td__rows_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.width;
    T *y = (T *)a.io.out[0] + blockIdx.x * a.width;
    float top, sum = row_sum(x, a.width, &top), log_sum = logf(sum);
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        put(y + i, get(x[i]) - top - log_sum);
}
TD_KERNELS(log_softmax, td__rows_args)

template <class T> static __device__ inline void softmax_back(const td__rows_args &a)
{
    const T *y = (const T *)a.io.in[0] + blockIdx.x * a.width;
    const T *dy = (const T *)a.io.in[1] + blockIdx.x * a.width;
    T *dx = (T *)a.io.out[0] + blockIdx.x * a.width;
    float dot = 0;
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        dot += get(y[i]) * get(dy[i]);
    dot = block_all<add>(dot);
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        put(dx + i, get(y[i]) * (get(dy[i]) - dot));
}
TD_KERNELS(softmax_back, td__rows_args)

template <class T> static __device__ inline void log_softmax_back(const td__rows_args &a)
{
    const T *y = (const T *)a.io.in[0] + blockIdx.x * a.width;
    const T *dy = (const T *)a.io.in[1] + blockIdx.x * a.width;
    T *dx = (T *)a.io.out[0] + blockIdx.x * a.width;
    float sum = 0;
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        sum += get(dy[i]);
    sum = block_all<add>(sum);
    for (long long i = threadIdx.x; i < a.width; i += THREADS)
        put(dx + i, get(dy[i]) - expf(get(y[i])) * sum);
}
TD_KERNELS(log_softmax_back, td__rows_args)

/* ---- Cross entropy --------------------------------------------------------------------------- */

static __device__ inline bool counts(const td__xent_args &a, long long target)
{
    return !(a.use_ignore && target == a.ignore);
}

/* out[0] (rows): each row's share of the loss, before it is divided; out[1]: lse. */
template <class T> static __device__ inline void xent_rows(const td__xent_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.classes;
    bool lots = a.classes % lot<T>::N == 0;
    float top, sum = lots ? lot_sum(x, a.classes, &top) : row_sum(x, a.classes, &top);
    float lse = top + logf(sum), mean = 0;
    if (a.smoothing > 0) {
        for (long long i = threadIdx.x; i < a.classes; i += THREADS)
            mean += get(x[i]);
        mean = block_all<add>(mean) / (float)a.classes;
    }
    if (threadIdx.x != 0)
        return;
    long long t = get_id(a.ids, a.io.in[1], blockIdx.x);
    float hit = t >= 0 && t < a.classes ? get(x[t]) : TD__NAN;
    float loss = (1 - a.smoothing) * (lse - hit);
    if (a.smoothing > 0)
        loss += a.smoothing * (lse - mean);
    ((float *)a.io.out[0])[blockIdx.x] = counts(a, t) ? loss : 0;
    ((float *)a.io.out[1])[blockIdx.x] = lse;
}
TD_KERNELS(xent_rows, td__xent_args)

/* out[0] (2): the number of rows that count, and the mean of in[0] (rows) over them. */
TD_KERNEL(xent_finish, td__xent_args)
{
    float counted = 0, sum = 0;
    for (long long r = threadIdx.x; r < a.rows; r += THREADS) {
        counted += counts(a, get_id(a.ids, a.io.in[1], r));
        sum += a.io.in[0] ? ((const float *)a.io.in[0])[r] : 0;
    }
    counted = block_all<add>(counted);
    sum = block_all<add>(sum);
    if (threadIdx.x != 0)
        return;
    if (a.io.out[0])
        *(float *)a.io.out[0] = counted > 0 ? sum / counted : 0;
    if (a.io.out[1])
        *(float *)a.io.out[1] = counted;
}

/* logits, target, lse, dloss -> dlogits; scratch: how many rows count. */
template <class T> static __device__ inline void xent_back(const td__xent_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.classes;
    T *dx = (T *)a.io.out[0] + blockIdx.x * a.classes;
    long long t = get_id(a.ids, a.io.in[1], blockIdx.x);
    bool live = counts(a, t) && t >= 0 && t < a.classes;
    float lse = ((const float *)a.io.in[2])[blockIdx.x];
    float scale = *(const float *)a.io.in[3] / *(const float *)a.io.scratch;
    float each = a.smoothing / (float)a.classes;
    enum { N = lot<T>::N };
    bool lots = a.classes % N == 0;
    for (long long c = (long long)threadIdx.x * N; lots && c < a.classes; c += THREADS * N) {
        lot<T> v = load_lot(x + c), w;
        for (int i = 0; i < N; i++) {
            float p = expf(get(v.at[i]) - lse) - each - (c + i == t ? 1 - a.smoothing : 0);
            put(&w.at[i], live ? p * scale : 0);
        }
        store_lot(dx + c, w);
    }
    for (long long i = threadIdx.x; !lots && i < a.classes; i += THREADS) {
        float p = expf(get(x[i]) - lse) - each;
        if (i == t)
            p -= 1 - a.smoothing;
        put(dx + i, live ? p * scale : 0);
    }
}
TD_KERNELS(xent_back, td__xent_args)
