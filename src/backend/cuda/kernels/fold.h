/* fold.h -- arguments of the kernels that fold images, for C and CUDA.
 *
 * A convolution of stride 2 over few channels, as first layers have, is one of stride 1 over four
 * times as many: two by two pixels become one, and so do those of the filters, which are shifted
 * so that the padding is even and lies in the folded image. cuDNN has no fast kernels for the
 * former. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_FOLD_H
#define TD_BACKEND_CUDA_KERNELS_FOLD_H

#include "backend/cuda/kernels/io.h"

typedef struct td__fold_args {
    td__io io;
    long long n, c, h, w; /* of the image */
    long long h2, w2, c2; /* of the folded one: c2 is 4 c or more, whole lots, zeros behind */
    long long o, k[2], folded[2]; /* filters: their number and sizes */
    int pad[2], shift[2];         /* even; of a filter within the folded one */
} td__fold_args;

#endif
