/* rows.h -- arguments of the kernels over rows (softmax, losses, norms), for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_ROWS_H
#define TD_BACKEND_CUDA_KERNELS_ROWS_H

#include "backend/cuda/kernels/io.h"

typedef struct td__rows_args {
    td__io io;
    long long rows, width;
    float eps;
    int plain; /* norms: rms, without mean and beta */
    int added; /* back: in[5] is added to dx */
    long long per_split;
} td__rows_args;

typedef struct td__xent_args {
    td__io io;
    long long rows, classes, ignore;
    int use_ignore, ids;
    float smoothing;
} td__xent_args;

#endif
