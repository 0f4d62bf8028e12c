/* softmax.cu -- softmax and its logarithm over rows, with their gradients: one block per row. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/softmax.cuh"

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

/* The row's lse, and its share of the loss before it is divided: valid in thread 0. */
template <class T>
static __device__ inline float row_loss(const td__xent_args &a, const T *x, long long t,
                                        float *loss_of)
{
    float lse = row_lse(x, a.classes), mean = 0;
    if (a.smoothing > 0)
        mean = row_total(x, a.classes) / (float)a.classes;
    if (threadIdx.x == 0) {
        float hit = t >= 0 && t < a.classes ? get(x[t]) : TD__NAN;
        float loss = (1 - a.smoothing) * (lse - hit);
        if (a.smoothing > 0)
            loss += a.smoothing * (lse - mean);
        *loss_of = counts(a, t) ? loss : 0;
    }
    return lse;
}

/* out[0] (rows): each row's share of the loss, before it is divided; out[1]: lse. */
template <class T> static __device__ inline void xent_rows(const td__xent_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.classes;
    long long t = get_id(a.ids, a.io.in[1], blockIdx.x);
    float lse = row_loss(a, x, t, (float *)a.io.out[0] + blockIdx.x);
    if (threadIdx.x == 0)
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

template <class T>
static __device__ inline void row_back(const td__xent_args &a, const T *x, long long t, float lse,
                                       float scale, T *dx)
{
    bool live = counts(a, t) && t >= 0 && t < a.classes;
    float each = a.smoothing / (float)a.classes, shift = live ? -each * scale : 0;
    enum { N = lot<T>::N, AHEAD = 4 };
    bool lots = a.classes % N == 0 && a.classes < 1 << 30;
    int hit = live ? (int)t : -1, width = (int)a.classes;
    float factor = live ? scale : 0;
    for (int c = (int)threadIdx.x * N; lots && c < width; c += AHEAD * THREADS * N) {
        lot<T> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c + j * THREADS * N < width)
                v[j] = load_lot(x + c + j * THREADS * N);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int at = c + j * THREADS * N;
            lot<T> w;
            if (at >= width)
                continue;
#pragma unroll
            for (int i = 0; i < N; i++)
                put(&w.at[i], exp_of<T>(get(v[j].at[i]) - lse) * factor + shift);
            if (hit >= at && hit < at + N) /* rounded once, as the others */
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (at + i == hit)
                        put(&w.at[i],
                            (exp_of<T>(get(v[j].at[i]) - lse) - (1 - a.smoothing)) * factor +
                                shift);
            store_lot(dx + at, w);
        }
    }
    for (long long i = threadIdx.x; !lots && i < a.classes; i += THREADS) {
        float p = expf(get(x[i]) - lse) - each;
        if (i == t)
            p -= 1 - a.smoothing;
        put(dx + i, live ? p * scale : 0);
    }
}

/* logits, target, lse, dloss -> dlogits; scratch: how many rows count. */
template <class T> static __device__ inline void xent_back(const td__xent_args &a)
{
    long long at = blockIdx.x * a.classes, t = get_id(a.ids, a.io.in[1], blockIdx.x);
    float lse = ((const float *)a.io.in[2])[blockIdx.x];
    float scale = *(const float *)a.io.in[3] / *(const float *)a.io.scratch;
    row_back(a, (const T *)a.io.in[0] + at, t, lse, scale, (T *)a.io.out[0] + at);
}
TD_KERNELS(xent_back, td__xent_args)

/* logits, target, dloss (in[2]), how many rows count (in[3]) -> dlogits, lse (out[1]), each row's
 * share of the loss (out[2]). dlogits may lie where the logits do. */
template <class T> static __device__ inline void xent_both(const td__xent_args &a)
{
    long long at = blockIdx.x * a.classes, t = get_id(a.ids, a.io.in[1], blockIdx.x);
    const T *x = (const T *)a.io.in[0] + at;
    float lse = row_loss(a, x, t, (float *)a.io.out[2] + blockIdx.x);
    if (threadIdx.x == 0)
        ((float *)a.io.out[1])[blockIdx.x] = lse;
    __syncthreads(); /* the loss has been read from the row */
    float scale = *(const float *)a.io.in[2] / *(const float *)a.io.in[3];
    row_back(a, x, t, lse, scale, (T *)a.io.out[0] + at);
}
TD_KERNELS(xent_both, td__xent_args)
