/* attention.cu -- attention straight from its definition (ops/op_attention.c), for all shapes and
 * masks: one block per query, or per key for the gradients of keys and values, with the scores of
 * that row in shared memory. Sums have a fixed order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/number.cuh"

/* Of o and do; q and dq; k, v and their gradients. */
static __device__ inline long long row_at(const td__attention_args &a, long long b, long long t,
                                          long long h)
{
    return ((b * a.t + t) * a.h + h) * a.d;
}

static __device__ inline long long query_at(const td__attention_args &a, long long b, long long t,
                                            long long h)
{
    return (b * a.t + t) * a.q_step + h * a.d;
}

static __device__ inline long long key_at(const td__attention_args &a, long long b, long long s,
                                          long long kv)
{
    return (b * a.s + s) * a.kv_step + kv * a.d;
}

static __device__ inline float masked(const td__attention_args &a, float score, long long b,
                                      long long t, long long s)
{
    if (a.causal && s > t)
        return -TD__INFINITY;
    if (a.mask < 0)
        return score;
    long long at = b * a.mask_step + t * a.s + s;
    return score + (a.mask_dtype == TD__IO_F32 ? ((const float *)a.io.in[a.mask])[at]
                                               : get(((const bf16 *)a.io.in[a.mask])[at]));
}

/* x . y, x being in shared memory */
template <class T> static __device__ inline float dot(const float *x, const T *y, long long n)
{
    float sum = 0;
    for (long long i = 0; i < n; i++)
        sum += x[i] * get(y[i]);
    return sum;
}

/* Room of n floats in shared memory: whole loads of 16 bytes. */
static __device__ inline long long padded(long long n)
{
    return (n + 3) / 4 * 4;
}

template <class T> static __device__ inline void load(float *to, const T *from, long long n)
{
    for (long long i = threadIdx.x; i < n; i += THREADS)
        to[i] = get(from[i]);
}

/* -> o, lse; shared: q (D), scores (S) */
template <class T> static __device__ inline void attention(const td__attention_args &a)
{
    TD_DYNAMIC_SHARED(float, shared);
    float *q = shared, *score = shared + padded(a.d);
    long long t = blockIdx.x % a.t, h = blockIdx.x / a.t % a.h, b = blockIdx.x / (a.t * a.h);
    long long kv = h / (a.h / a.hkv), n = a.causal && t + 1 < a.s ? t + 1 : a.s;
    const T *k = (const T *)a.io.in[1], *v = (const T *)a.io.in[2];
    load(q, (const T *)a.io.in[0] + query_at(a, b, t, h), a.d);
    __syncthreads();
    float top = -TD__INFINITY, sum = 0;
    for (long long s = threadIdx.x; s < n; s += THREADS) {
        score[s] = masked(a, a.scale * dot(q, k + key_at(a, b, s, kv), a.d), b, t, s);
        top = fmaxf(top, score[s]);
    }
    top = block_all<largest>(top);
    bool none = !(top > -TD__INFINITY);
    for (long long s = threadIdx.x; s < n; s += THREADS) {
        score[s] = none ? 0 : expf(score[s] - top);
        sum += score[s];
    }
    sum = block_all<add>(sum); /* and all scores are there */
    T *o = (T *)a.io.out[0] + row_at(a, b, t, h);
    for (long long i = threadIdx.x; i < a.d; i += THREADS) {
        float x = 0;
        for (long long s = 0; s < n; s++)
            x += score[s] * get(v[key_at(a, b, s, kv) + i]);
        put(o + i, none ? 0 : x / sum);
    }
    if (threadIdx.x == 0)
        ((float *)a.io.out[1])[blockIdx.x] = none ? -TD__INFINITY : top + logf(sum);
}
TD_KERNELS(attention, td__attention_args)

/* do, o (in[4]) -> delta (B, H, T) in scratch; one warp per query */
template <class T> static __device__ inline void attention_delta(const td__attention_args &a)
{
    long long i = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    bool in = i < a.b * a.h * a.t;
    long long at = in ? row_at(a, i / (a.t * a.h), i % a.t, i / a.t % a.h) : 0;
    float sum = 0;
    for (long long c = threadIdx.x % 32; in && c < a.d; c += 32)
        sum += get(((const T *)a.io.in[0])[at + c]) * get(((const T *)a.io.in[4])[at + c]);
    for (int half = 16; half > 0; half /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (in && threadIdx.x % 32 == 0)
        ((float *)a.io.scratch)[i] = sum;
}
TD_KERNELS(attention_delta, td__attention_args)

/* -> dq; shared: q (D), do (D), ds (S) */
template <class T> static __device__ inline void attention_back_q(const td__attention_args &a)
{
    TD_DYNAMIC_SHARED(float, shared);
    float *q = shared, *dout = q + padded(a.d), *ds = dout + padded(a.d);
    long long t = blockIdx.x % a.t, h = blockIdx.x / a.t % a.h, b = blockIdx.x / (a.t * a.h);
    long long kv = h / (a.h / a.hkv), n = a.causal && t + 1 < a.s ? t + 1 : a.s;
    long long at = query_at(a, b, t, h);
    const T *k = (const T *)a.io.in[2], *v = (const T *)a.io.in[3];
    float lse = ((const float *)a.io.in[5])[blockIdx.x];
    float delta = ((const float *)a.io.scratch)[blockIdx.x];
    load(q, (const T *)a.io.in[1] + at, a.d);
    load(dout, (const T *)a.io.in[0] + row_at(a, b, t, h), a.d);
    __syncthreads();
    for (long long s = threadIdx.x; s < n; s += THREADS) {
        long long from = key_at(a, b, s, kv);
        float score = masked(a, a.scale * dot(q, k + from, a.d), b, t, s);
        float p = score > -TD__INFINITY ? expf(score - lse) : 0;
        ds[s] = p * (dot(dout, v + from, a.d) - delta) * a.scale;
        ds[s] = score > -TD__INFINITY ? ds[s] : 0;
    }
    __syncthreads();
    for (long long i = threadIdx.x; i < a.d; i += THREADS) {
        float x = 0;
        for (long long s = 0; s < n; s++)
            x += ds[s] * get(k[key_at(a, b, s, kv) + i]);
        put((T *)a.io.out[0] + at + i, x);
    }
}
TD_KERNELS(attention_back_q, td__attention_args)

/* -> dk, dv; shared: k (D), v (D), dk (D), dv (D), p (T), ds (T); one block per key */
template <class T> static __device__ inline void attention_back_kv(const td__attention_args &a)
{
    TD_DYNAMIC_SHARED(float, shared);
    float *k = shared, *v = k + padded(a.d), *dk = v + padded(a.d), *dv = dk + padded(a.d);
    float *p = dv + padded(a.d), *ds = p + padded(a.t);
    long long s = blockIdx.x % a.s, kv = blockIdx.x / a.s % a.hkv, b = blockIdx.x / (a.s * a.hkv);
    long long at = key_at(a, b, s, kv), each = a.h / a.hkv, first = a.causal ? s : 0;
    const T *q = (const T *)a.io.in[1], *dout = (const T *)a.io.in[0];
    load(k, (const T *)a.io.in[2] + at, a.d);
    load(v, (const T *)a.io.in[3] + at, a.d);
    for (long long i = threadIdx.x; i < a.d; i += THREADS)
        dk[i] = dv[i] = 0;
    for (long long h = kv * each; h < (kv + 1) * each; h++) {
        __syncthreads();
        for (long long t = first + threadIdx.x; t < a.t; t += THREADS) {
            long long row = (b * a.h + h) * a.t + t, from = query_at(a, b, t, h);
            float score = masked(a, a.scale * dot(k, q + from, a.d), b, t, s);
            bool seen = score > -TD__INFINITY;
            p[t] = seen ? expf(score - ((const float *)a.io.in[5])[row]) : 0;
            float g = dot(v, dout + row_at(a, b, t, h), a.d) - ((const float *)a.io.scratch)[row];
            ds[t] = seen ? p[t] * g * a.scale : 0;
        }
        __syncthreads();
        for (long long i = threadIdx.x; i < a.d; i += THREADS) {
            float x = dk[i], y = dv[i];
            for (long long t = first; t < a.t; t++) {
                x += ds[t] * get(q[query_at(a, b, t, h) + i]);
                y += p[t] * get(dout[row_at(a, b, t, h) + i]);
            }
            dk[i] = x;
            dv[i] = y;
        }
    }
    for (long long i = threadIdx.x; i < a.d; i += THREADS) { /* each thread its own elements */
        put((T *)a.io.out[1] + at + i, dk[i]);
        put((T *)a.io.out[2] + at + i, dv[i]);
    }
}
TD_KERNELS(attention_back_kv, td__attention_args)
