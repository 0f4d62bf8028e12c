/* convert.cu -- f32 rounded to bf16, a lot at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/convert.h"
#include "backend/cuda/kernels/number.cuh"

TD_KERNEL(to_bf16s, td__convert_args)
{
    enum { N = lot<bf16>::N, HALF = lot<float>::N };
    const float *from = (const float *)a.io.in[0];
    bf16 *to = (bf16 *)a.io.out[0];
    for (long long i = td__thread(); i < a.n / N; i += td__threads()) {
        lot<float> low = load_lot(from + i * N), high = load_lot(from + i * N + HALF);
        lot<bf16> v;
#pragma unroll
        for (int k = 0; k < HALF; k++) {
            v.at[k] = to_bf16(low.at[k]);
            v.at[HALF + k] = to_bf16(high.at[k]);
        }
        store_lot(to + i * N, v);
    }
    long long rest = a.n / N * N + td__thread();
    if (rest < a.n)
        to[rest] = to_bf16(from[rest]);
}
