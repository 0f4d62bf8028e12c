/* reduce.cu -- sums and maxima over axes, in a fixed order.
 *
 * reduce_rows has one block per result. reduce_columns has one thread per result and part of it,
 * where results lie side by side, and reduce_wide one for a lot of them; the parts are put together
 * by reduce_finish. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/reduce.h"

static __device__ inline long long place(long long i, int n, const long long *dim,
                                         const long long *step)
{
    long long at = 0;
    if (n == 1)
        return i * step[0];
    for (int d = n - 1; d >= 0; d--) {
        at += i % dim[d] * step[d];
        i /= dim[d];
    }
    return at;
}

static __device__ inline void store(int dtype, void *p, long long i, float v)
{
    if (dtype == TD__IO_F32)
        ((float *)p)[i] = v;
    else
        ((bf16 *)p)[i] = to_bf16(v);
}

template <class T> static __device__ inline void reduce_rows(const td__reduce_args &a)
{
    const T *x = (const T *)a.io.in[0] + place(blockIdx.x, a.n_kept, a.kept, a.kept_step);
    float v = a.op == TD__REDUCE_MAX ? largest::none() : 0;
    for (long long k = threadIdx.x; k < a.count; k += THREADS) {
        float e = get(x[place(k, a.n_reduced, a.reduced, a.reduced_step)]);
        v = a.op == TD__REDUCE_MAX ? largest::of(v, e) : v + e;
    }
    v = a.op == TD__REDUCE_MAX ? block_all<largest>(v) : block_all<add>(v) * a.scale;
    if (threadIdx.x == 0)
        store(a.out_dtype, a.io.out[0], blockIdx.x, v);
}
TD_KERNELS(reduce_rows, td__reduce_args)

template <class T> static __device__ inline void reduce_columns(const td__reduce_args &a)
{
    long long r = td__thread(), k = blockIdx.y * a.per_split;
    long long end = k + a.per_split < a.count ? k + a.per_split : a.count;
    if (r >= a.results)
        return;
    const T *x = (const T *)a.io.in[0] + place(r, a.n_kept, a.kept, a.kept_step);
    float v = a.op == TD__REDUCE_MAX ? largest::none() : 0;
    for (; k < end; k++) {
        float e = get(x[place(k, a.n_reduced, a.reduced, a.reduced_step)]);
        v = a.op == TD__REDUCE_MAX ? largest::of(v, e) : v + e;
    }
    ((float *)a.io.out[0])[blockIdx.y * a.results + r] = v;
}
TD_KERNELS(reduce_columns, td__reduce_args)

/* Sums of columns that lie side by side in whole lots (columns.cuh); grid (columns, splits). */
template <class T> static __device__ inline void reduce_wide(const td__reduce_args &a)
{
    enum { N = lot<T>::N, AHEAD = 4 };
    long long c = first_column<T>(), k = blockIdx.y * a.per_split + threadIdx.x / 32;
    long long end =
        (blockIdx.y + 1) * a.per_split < a.count ? (blockIdx.y + 1) * a.per_split : a.count;
    const T *x = (const T *)a.io.in[0] + c;
    float v[N] = {};
    if (c < a.results)
        for (; k < end; k += AHEAD * WARPS) {
            lot<T> l[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (k + j * WARPS < end)
                    l[j] = load_lot(x + (k + j * WARPS) * a.results);
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    v[i] += k + j * WARPS < end ? get(l[j].at[i]) : 0;
        }
    store_columns<N>(v, c, a.results, (float *)a.io.out[0] + blockIdx.y * a.results);
}
TD_KERNELS(reduce_wide, td__reduce_args)

/* One block for 32 results; blockIdx.y: of which array. */
TD_KERNEL(reduce_finish, td__finish_args)
{
    const float *part = (const float *)a.io.in[blockIdx.y];
    long long r = (long long)blockIdx.x * 32 + threadIdx.x % 32;
    float v = 0;
    if (a.op == TD__REDUCE_MAX) {
        v = r < a.results ? part[r] : 0;
        for (int s = 1; s < a.splits && r < a.results; s++)
            v = largest::of(v, part[s * a.results + r]);
    } else {
        sums_of_parts<1>(&part, a.splits, a.results, r, &v);
        v *= a.scale;
    }
    if (r < a.results && threadIdx.x < 32)
        store(a.out_dtype, a.io.out[blockIdx.y], r, v);
}

/* x, y, dy -> dx: shared evenly among equal maxima. */
template <class T> static __device__ inline void max_back(const td__reduce_args &a)
{
    const T *y = (const T *)a.io.in[1], *dy = (const T *)a.io.in[2];
    long long first = place(blockIdx.x, a.n_kept, a.kept, a.kept_step);
    const T *x = (const T *)a.io.in[0] + first;
    T *dx = (T *)a.io.out[0] + first;
    float top = get(y[blockIdx.x]), equal = 0;
    for (long long k = threadIdx.x; k < a.count; k += THREADS)
        equal += get(x[place(k, a.n_reduced, a.reduced, a.reduced_step)]) == top;
    equal = block_all<add>(equal);
    float share = get(dy[blockIdx.x]) / equal;
    for (long long k = threadIdx.x; k < a.count; k += THREADS) {
        long long at = place(k, a.n_reduced, a.reduced, a.reduced_step);
        put(dx + at, get(x[at]) == top ? share : 0);
    }
}
TD_KERNELS(max_back, td__reduce_args)

template <class T> static __device__ inline void argmax(const td__argmax_args &a)
{
    for (long long r = td__thread(); r < a.outer * a.inner; r += td__threads()) {
        const T *x = (const T *)a.io.in[0] + r / a.inner * a.size * a.inner + r % a.inner;
        float best = get(x[0]);
        int at = 0;
        for (long long k = 1; k < a.size; k++) {
            float v = get(x[k * a.inner]);
            if (v > best || (v != v && best == best)) {
                best = v;
                at = (int)k;
            }
        }
        ((int *)a.io.out[0])[r] = at;
    }
}
TD_KERNELS(argmax, td__argmax_args)
