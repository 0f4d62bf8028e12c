/* convert.h -- the argument of conversions between types, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_CONVERT_H
#define TD_BACKEND_CUDA_KERNELS_CONVERT_H

#include "backend/cuda/kernels/io.h"

/* in[0] f32 -> out[0] bf16 */
typedef struct td__convert_args {
    td__io io;
    long long n;
} td__convert_args;

#endif
