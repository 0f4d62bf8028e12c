/* metrics.h -- arguments of the kernels of metrics, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_METRICS_H
#define TD_BACKEND_CUDA_KERNELS_METRICS_H

#include "backend/cuda/kernels/io.h"

typedef struct td__metric_args {
    td__io io;
    long long rows, width;
    int k, ids;
    int use_ignore; /* rows whose target is `ignore` do not count */
    long long ignore;
} td__metric_args;

#endif
