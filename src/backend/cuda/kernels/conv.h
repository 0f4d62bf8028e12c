/* conv.h -- the argument of the convolutions of our own, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_CONV_H
#define TD_BACKEND_CUDA_KERNELS_CONV_H

#include "backend/cuda/kernels/io.h"

typedef struct td__conv_args {
    td__io io;
    td__image x, y;
    long long w[4]; /* (O, C / groups, KH, KW); plain, f32 */
    int stride[2], pad[2], dilation[2], groups;
    int has_bias, relu, out_dtype;
    long long n; /* elements of the result */
    /* The gathered form: rows of patches (pixels of y, C KH KW), for a product. */
    long long first, rows; /* which pixels, as n OH OW + oh OW + ow */
} td__conv_args;

/* in (O, C, P) -> out (O, P, C), P being the pixels of a filter, zeros behind C; or back. in_dtype
 * and out_dtype are f32 or bf16. */
typedef struct td__filter_args {
    td__io io;
    long long o, c, p;
    long long c_there; /* channels of the NHWC side, C or more */
    int to_nhwc, in_dtype, out_dtype;
} td__filter_args;

/* in (rows, c) bf16 -> out (rows, c_out), zeros behind c */
typedef struct td__widen_args {
    td__io io;
    long long rows, c, c_out;
} td__widen_args;

#endif
