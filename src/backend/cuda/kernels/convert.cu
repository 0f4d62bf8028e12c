/* convert.cu -- weights rounded to bf16, for products. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/convert.h"
#include "backend/cuda/kernels/number.cuh"

TD_KERNEL(to_bf16s, td__convert_args)
{
    const float *from = (const float *)a.io.in[0];
    bf16 *to = (bf16 *)a.io.out[0];
    for (long long i = td__thread(); i < a.n; i += td__threads())
        to[i] = to_bf16(from[i]);
}
