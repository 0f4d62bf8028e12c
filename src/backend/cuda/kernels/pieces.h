/* pieces.h -- arguments of the kernels of tensors in pieces, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_PIECES_H
#define TD_BACKEND_CUDA_KERNELS_PIECES_H

#include "backend/cuda/kernels/rows.h"

typedef struct td__pieces_args {
    td__io io;
    long long n;
    int n_in;
    long long first, rows; /* piece_ids */
    int last, ids;
    float by; /* sync_mean: of an unbiased variance */
} td__pieces_args;

/* Stats are (3, R): lse, hit, sum; those of all pieces (W, 3, R). */
typedef struct td__xent_piece_args {
    td__xent_args x;      /* classes: of this piece, or in the joins of all */
    long long first, all; /* class of the first logit; classes of all pieces */
    long long pieces;
} td__xent_piece_args;

#endif
