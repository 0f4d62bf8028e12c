/* lookup.cu -- embeddings. Gradients of rows are added up in the order of the ids' positions, and
 * one block adds up what belongs to one row. Of few ids each finds its place in the sorted order by
 * counting those before it. Many are first put into their rows' places, in any order, and then
 * count within their row. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/lookup.h"
#include "backend/cuda/kernels/number.cuh"

static __device__ inline void store(int dtype, void *p, long long i, float v)
{
    if (dtype == TD__IO_F32)
        ((float *)p)[i] = v;
    else
        ((bf16 *)p)[i] = to_bf16(v);
}

/* The same for rows of whole eights. */
template <class T> static __device__ inline void embedding_8(const td__lookup_args &a)
{
    unsigned per = (unsigned)(a.width / 8), n = (unsigned)(a.n * per);
    for (unsigned e = (unsigned)td__thread(); e < n; e += (unsigned)td__threads()) {
        unsigned row = e / per;
        long long id = get_id(a.ids, a.io.in[0], row);
        float v[8];
        for (int i = 0; i < 8; i++)
            v[i] = id < 0 ? 0 : TD__NAN;
        if (id >= 0 && id < a.rows)
            get_8(v, (const T *)a.io.in[1] + id * a.width + (e - row * per) * 8);
        if (a.out_dtype == TD__IO_F32)
            put_8((float *)a.io.out[0] + (long long)e * 8, v);
        else
            put_8((bf16 *)a.io.out[0] + (long long)e * 8, v);
    }
}

/* ids, table -> (n, D) */
template <class T> static __device__ inline void embedding(const td__lookup_args &a)
{
    const T *table = (const T *)a.io.in[1];
    if (a.width % 8 == 0 && a.n * a.width < 1ll << 31) {
        embedding_8<T>(a);
        return;
    }
    for (long long e = td__thread(); e < a.n * a.width; e += td__threads()) {
        long long id = get_id(a.ids, a.io.in[0], e / a.width);
        float v = id < 0 ? 0 : id < a.rows ? get(table[id * a.width + e % a.width]) : TD__NAN;
        store(a.out_dtype, a.io.out[0], e, v);
    }
}
TD_KERNELS(embedding, td__lookup_args)

/* An id as a key of sorting: those outside of the table come last. */
static __device__ inline int key_of(const td__lookup_args &a, long long i)
{
    long long id = get_id(a.ids, a.io.in[0], i);
    return id >= 0 && id < a.rows ? (int)id : 0x7fffffff;
}

/* ids -> out[0] (n) i32: the positions in the order of their ids, out[1] (n): those ids. Each
 * thread counts how many come before its own, a block's share of the ids at a time. */
TD_KERNEL(lookup_sort, td__lookup_args)
{
    __shared__ int keys[THREADS];
    long long i = td__thread(), before = 0;
    int mine = i < a.n ? key_of(a, i) : 0;
    for (long long begin = 0; begin < a.n; begin += THREADS) {
        __syncthreads();
        if (begin + threadIdx.x < a.n)
            keys[threadIdx.x] = key_of(a, begin + threadIdx.x);
        __syncthreads();
        int count = a.n - begin < THREADS ? (int)(a.n - begin) : (int)THREADS, less = 0;
        for (int j = 0; j < count; j++)
            less += keys[j] < mine || (keys[j] == mine && begin + j < i);
        before += less;
    }
    if (i >= a.n)
        return;
    ((int *)a.io.out[0])[before] = (int)i;
    ((int *)a.io.out[1])[before] = mine;
}

/* The row of an id; of those outside of the table, the one behind it. */
static __device__ inline int row_of(const td__lookup_args &a, long long i)
{
    long long id = get_id(a.ids, a.io.in[0], i);
    return (int)(id >= 0 && id < a.rows ? id : a.rows);
}

/* ids -> out[0] (rows + 1), zeros before: how many each row has. */
TD_KERNEL(lookup_count, td__lookup_args)
{
    long long i = td__thread();
    if (i < a.n)
        atomicAdd((int *)a.io.out[0] + row_of(a, i), 1);
}

/* in[0] (rows + 1): counts -> out[0], out[1]: where each row's ids begin. One block. */
TD_KERNEL(lookup_begins, td__lookup_args)
{
    __shared__ int sums[THREADS];
    const int *counts = (const int *)a.io.in[0];
    long long all = a.rows + 1, each = (all + THREADS - 1) / THREADS;
    long long begin = threadIdx.x * each, end = begin + each < all ? begin + each : all;
    int sum = 0, before = 0;
#pragma unroll 8
    for (long long i = begin; i < end; i++)
        sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int j = 0; j < (int)threadIdx.x; j++)
        before += sums[j];
#pragma unroll 8
    for (long long i = begin; i < end; i++) {
        ((int *)a.io.out[0])[i] = ((int *)a.io.out[1])[i] = before;
        before += counts[i];
    }
}

/* ids, and in out[0] (rows + 1) where rows begin, which moves on -> out[1] (n): positions by row,
 * in any order within a row. */
TD_KERNEL(lookup_scatter, td__lookup_args)
{
    long long i = td__thread();
    if (i < a.n)
        ((int *)a.io.out[1])[atomicAdd((int *)a.io.out[0] + row_of(a, i), 1)] = (int)i;
}

/* ids, where rows begin (in[1]), positions by row (in[2]) -> what lookup_sort gives. */
TD_KERNEL(lookup_order, td__lookup_args)
{
    const int *begins = (const int *)a.io.in[1], *places = (const int *)a.io.in[2];
    long long p = td__thread();
    if (p >= a.n)
        return;
    int i = places[p], row = row_of(a, i), begin = begins[row], before = 0;
    int end = row < a.rows ? begins[row + 1] : (int)a.n;
#pragma unroll 8
    for (int q = begin; q < end; q++)
        before += places[q] < i;
    ((int *)a.io.out[0])[begin + before] = i;
    ((int *)a.io.out[1])[begin + before] = row < a.rows ? row : 0x7fffffff;
}

/* Where the run of equal keys that begins at `first` ends. */
static __device__ inline long long run_end(const int *keys, long long first, long long n)
{
    long long low = first + 1, high = n;
    while (low < high) {
        long long middle = (low + high) / 2;
        if (keys[middle] > keys[first])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* in[0]: positions, in[1]: their ids, both in order; in[2]: dy (n, D) -> the sum of the run that
 * begins at this block's place, into row `to` of out. */
template <class T> static __device__ inline void add_run(const td__lookup_args &a, long long to)
{
    const int *positions = (const int *)a.io.in[0], *keys = (const int *)a.io.in[1];
    const T *dy = (const T *)a.io.in[2];
    long long first = blockIdx.x, end = run_end(keys, first, a.n);
    for (long long c = threadIdx.x; c < a.width; c += THREADS) {
        float sum = 0;
#pragma unroll 8
        for (long long s = first; s < end; s++)
            sum += get(dy[positions[s] * a.width + c]);
        store(a.out_dtype, a.io.out[0], to * a.width + c, sum);
    }
}

static __device__ inline bool begins_run(const int *keys, long long i)
{
    return keys[i] != 0x7fffffff && (i == 0 || keys[i] != keys[i - 1]);
}

/* -> dtable (V, D), which is zero before */
template <class T> static __device__ inline void embedding_back(const td__lookup_args &a)
{
    const int *keys = (const int *)a.io.in[1];
    if (begins_run(keys, blockIdx.x))
        add_run<T>(a, keys[blockIdx.x]);
}
TD_KERNELS(embedding_back, td__lookup_args)

/* keys (n) in in[1] -> rows (n) in out[0]: sorted, unique, then -1; and in out[1] (n) each place's
 * number among the unique ones. One block. */
TD_KERNEL(lookup_unique, td__lookup_args)
{
    __shared__ int begins[THREADS];
    const int *keys = (const int *)a.io.in[1];
    int *rows = (int *)a.io.out[0], *number = (int *)a.io.out[1];
    int base = 0;
    for (long long i = threadIdx.x; i < a.n; i += THREADS)
        rows[i] = -1;
    for (long long begin = 0; begin < a.n; begin += THREADS) {
        long long i = begin + threadIdx.x;
        __syncthreads();
        begins[threadIdx.x] = i < a.n && begins_run(keys, i);
        __syncthreads();
        int before = 0, all = 0;
        for (int j = 0; j < THREADS; j++) {
            before += j < (int)threadIdx.x ? begins[j] : 0;
            all += begins[j];
        }
        if (i < a.n) {
            number[i] = base + before;
            if (begins[threadIdx.x])
                rows[base + before] = keys[i];
        }
        base += all;
    }
}

/* -> values (n, D), which are zero before; in[3]: each place's number */
template <class T> static __device__ inline void embedding_rows(const td__lookup_args &a)
{
    if (begins_run((const int *)a.io.in[1], blockIdx.x))
        add_run<T>(a, ((const int *)a.io.in[3])[blockIdx.x]);
}
TD_KERNELS(embedding_rows, td__lookup_args)

/* ---- Bags ------------------------------------------------------------------------------------ */

/* Where bag g begins, within [0, n]. */
static __device__ inline long long bag_begin(const td__lookup_args &a, long long g)
{
    if (g >= a.bags)
        return a.n;
    long long at = get_id(a.offsets, a.io.in[1], g);
    return at < 0 ? 0 : at > a.n ? a.n : at;
}

static __device__ inline float bag_share(const td__lookup_args &a, long long begin, long long end)
{
    float live = 0;
    for (long long i = begin; a.mean && i < end; i++)
        live += get_id(a.ids, a.io.in[0], i) >= 0;
    return a.mean && live > 0 ? 1 / live : 1;
}

/* ids, offsets, table -> (B, D); one block per bag */
template <class T> static __device__ inline void embedding_bag(const td__lookup_args &a)
{
    const T *table = (const T *)a.io.in[2];
    long long begin = bag_begin(a, blockIdx.x), end = bag_begin(a, blockIdx.x + 1);
    float share = bag_share(a, begin, end);
    for (long long c = threadIdx.x; c < a.width; c += THREADS) {
        float sum = 0;
        for (long long i = begin; i < end; i++) {
            long long id = get_id(a.ids, a.io.in[0], i);
            if (id >= 0)
                sum += share * (id < a.rows ? get(table[id * a.width + c]) : TD__NAN);
        }
        store(a.out_dtype, a.io.out[0], blockIdx.x * a.width + c, sum);
    }
}
TD_KERNELS(embedding_bag, td__lookup_args)

/* ids, offsets, dy (B, D) -> (n, D), one block per id; bags may overlap */
template <class T> static __device__ inline void embedding_bag_spread(const td__lookup_args &a)
{
    const T *dy = (const T *)a.io.in[2];
    long long i = blockIdx.x;
    bool live = get_id(a.ids, a.io.in[0], i) >= 0;
    for (long long c = threadIdx.x; c < a.width; c += THREADS) {
        float sum = 0;
        for (long long g = 0; live && g < a.bags; g++) {
            long long begin = bag_begin(a, g), end = bag_begin(a, g + 1);
            if (i >= begin && i < end)
                sum += bag_share(a, begin, end) * get(dy[g * a.width + c]);
        }
        store(a.out_dtype, a.io.out[0], i * a.width + c, sum);
    }
}
TD_KERNELS(embedding_bag_spread, td__lookup_args)
