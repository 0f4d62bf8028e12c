/* metrics.cu -- accuracy and the largest k of each row. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/metrics.h"
#include "backend/cuda/kernels/number.cuh"

/* logits, target -> out[0] (rows): was the target among the first k? One block per row. */
template <class T> static __device__ inline void hits(const td__metric_args &a)
{
    const T *x = (const T *)a.io.in[0] + blockIdx.x * a.width;
    long long target = get_id(a.ids, a.io.in[1], blockIdx.x);
    bool valid = target >= 0 && target < a.width && !(a.use_ignore && target == a.ignore);
    float mine = valid ? get(x[target]) : 0, before = 0;
    for (long long i = threadIdx.x; valid && i < a.width; i += THREADS) {
        float v = get(x[i]);
        before += v > mine || (v == mine && i < target);
    }
    before = block_all<add>(before);
    if (threadIdx.x == 0)
        ((float *)a.io.out[0])[blockIdx.x] = valid && before < (float)a.k;
}
TD_KERNELS(hits, td__metric_args)

/* in[0] (rows), targets -> the mean over rows that count; one block */
TD_KERNEL(hits_mean, td__metric_args)
{
    float sum = 0, counted = 0;
    for (long long r = threadIdx.x; r < a.rows; r += THREADS) {
        sum += ((const float *)a.io.in[0])[r];
        counted += !(a.use_ignore && get_id(a.ids, a.io.in[1], r) == a.ignore);
    }
    sum = block_all<add>(sum);
    counted = block_all<add>(counted);
    if (threadIdx.x == 0)
        *(float *)a.io.out[0] = counted > 0 ? sum / counted : 0;
}

/* x -> values (rows, k), indices; one thread per row: insertion into a sorted list of at most k */
template <class T> static __device__ inline void top_k(const td__metric_args &a)
{
    for (long long r = td__thread(); r < a.rows; r += td__threads()) {
        const T *x = (const T *)a.io.in[0] + r * a.width;
        T *value = (T *)a.io.out[0] + r * a.k;
        int *where = (int *)a.io.out[1] + r * a.k;
        int found = 0;
        for (long long i = 0; i < a.width; i++) {
            float v = get(x[i]);
            int at = found;
            while (at > 0 && v > get(value[at - 1]))
                at--;
            if (at == a.k)
                continue;
            found += found < a.k;
            for (int j = found - 1; j > at; j--) {
                value[j] = value[j - 1];
                where[j] = where[j - 1];
            }
            value[at] = x[i];
            where[at] = (int)i;
        }
    }
}
TD_KERNELS(top_k, td__metric_args)
