/* pool.h -- the argument of the kernels of pools, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_POOL_H
#define TD_BACKEND_CUDA_KERNELS_POOL_H

#include "backend/cuda/kernels/io.h"

typedef struct td__pool_args {
    td__io io;
    td__image x, y;
    int size[2], stride[2], pad[2];
    long long n; /* threads: elements of y, or of x in the backs */
} td__pool_args;

#endif
