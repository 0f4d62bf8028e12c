/* channels.h -- arguments of the kernels over channels of images (batch norm, group norm), for C
 * and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_CHANNELS_H
#define TD_BACKEND_CUDA_KERNELS_CHANNELS_H

#include "backend/cuda/kernels/io.h"

typedef struct td__channels_args {
    td__io io;
    td__image x; /* all images of a node lie alike */
    float eps;
    int relu, groups;
    int residual, y; /* indices of these inputs; -1: none */
    int beta, more;  /* the same, of batch_norm_back: what tells the sign of y; more of dy */
    int d_residual;  /* index of this output; -1: none */
    int splits;      /* batch_norm.cu: parts that sums are made of, and pixels of each */
    int lanes;       /* batch_norm.cu: of a warp, that have a pixel */
    long long per_split;
} td__channels_args;

#endif
