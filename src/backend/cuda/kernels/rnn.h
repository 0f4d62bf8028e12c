/* rnn.h -- the argument of one step of a recurrence, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_RNN_H
#define TD_BACKEND_CUDA_KERNELS_RNN_H

#include "backend/cuda/kernels/io.h"

typedef struct td__rnn_args {
    td__io io;
    long long batch, hidden;
} td__rnn_args;

#endif
