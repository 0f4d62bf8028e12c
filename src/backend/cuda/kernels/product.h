/* product.h -- the argument of the matrix product of our own, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_PRODUCT_H
#define TD_BACKEND_CUDA_KERNELS_PRODUCT_H

#include "backend/cuda/kernels/io.h"

/* c (m, n) = act(a (m, k) b (k, n) + bias (n)) + residual, rows of c after each other; pre: before
 * act. With `slope_at`, which lies as c does: times the slope of act there, instead of act.
 * Element (i, j) of a lies at i a_row + j a_col. For each index of a batch (blockIdx.z) a and b
 * move on by steps along its axes, c by m n. Bias has c's type. */
typedef struct td__product_args {
    const void *a, *b;
    void *c, *pre;
    const void *bias, *residual, *slope_at;
    long long m, n, k;
    long long a_row, a_col, b_row, b_col;
    int n_batch;
    long long batch[TD__IO_DIMS], a_step[TD__IO_DIMS], b_step[TD__IO_DIMS];
    int in_dtype, out_dtype, act; /* td_act */
} td__product_args;

#endif
