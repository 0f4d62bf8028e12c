/* blocks.h -- arguments of the kernels over blocks (blocks.cu), for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_CUDA_KERNELS_BLOCKS_H
#define TD_DEVICE_CUDA_KERNELS_BLOCKS_H

/* dst = a dst + b src, one after the other for each element. */
enum { TD__BLOCKS_BLENDS = 16 };
typedef struct td__blocks_blend {
    struct {
        float *dst;
        const float *src;
        float a, b;
    } op[TD__BLOCKS_BLENDS];
    int n_ops;
    long long begin, count;
    float *to; /* blended: the result of op[0] */
} td__blocks_blend;

typedef struct td__blocks_scale {
    float *to;
    const float *from;
    float by;
    long long n;
} td__blocks_scale;

/* n bytes, which repeat the four of `word`. */
typedef struct td__blocks_fill {
    unsigned char *to;
    long long n;
    unsigned word;
} td__blocks_fill;

/* The numbers of td__optim_hyper and td__optim_slice (device/kernels/kernels.h). */
typedef struct td__blocks_update {
    float scale, clip, lr, l2, shrink, beta1c, beta2, beta2c, eps, root, unbias, momentum, undamped;
    int nesterov, centered;
    float *p;
    const float *g;
    float *s[3];
    long long n;
    double *sums; /* moments: of each chunk two */
} td__blocks_update;

typedef struct td__blocks_squares {
    const float *x;
    long long n;
    float scale, clip;
    double *by_chunk;
} td__blocks_squares;

/* td__square_chunk of device/device.h. */
typedef struct td__blocks_chunk {
    unsigned long long at, n;
} td__blocks_chunk;

typedef struct td__blocks_square_chunks {
    const float *x;
    const td__blocks_chunk *list;
    long long n;
    float scale, clip; /* 1, infinite */
    double *by_chunk;
} td__blocks_square_chunks;

/* td__copy_piece of device/device.h. */
typedef struct td__blocks_piece {
    void *to;
    const void *from;
    unsigned long long nbytes;
} td__blocks_piece;

typedef struct td__blocks_copies {
    const td__blocks_piece *list;
    long long n;
} td__blocks_copies;

#endif
