/* lookup.h -- arguments of the kernels of embeddings, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_LOOKUP_H
#define TD_BACKEND_CUDA_KERNELS_LOOKUP_H

#include "backend/cuda/kernels/io.h"

typedef struct td__lookup_args {
    td__io io;
    long long n, rows, width; /* ids; rows of the table */
    int ids, offsets;         /* types */
    int out_dtype;
    long long bags;
    int mean;
} td__lookup_args;

#endif
