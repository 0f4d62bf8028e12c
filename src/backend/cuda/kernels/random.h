/* random.h -- the arguments of dropout and of rotary positions, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_RANDOM_H
#define TD_BACKEND_CUDA_KERNELS_RANDOM_H

#include "backend/cuda/kernels/io.h"

typedef struct td__dropout_args {
    td__io io;
    long long n;
    unsigned stream, threshold;
    float scale;
} td__dropout_args;

typedef struct td__rope_args {
    td__io io;
    long long n; /* pairs */
    long long steps, heads, width;
    double base;
    int first, inverse;
} td__rope_args;

#endif
