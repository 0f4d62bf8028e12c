/* conv_first.h -- convolutions of images with few channels (the first layer), direct, in f32.
 *
 * A tap row is kw x c neighbouring elements of an NHWC line: with so few channels that is the sum
 * to unroll over, and the vectors run over output channels. The image is padded first, and
 * widened. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_CONV_FIRST_H
#define TD_BACKEND_CPU_KERNELS_CONV_FIRST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct td__first {
    int64_t h, w, c, oh, ow, o; /* o is a multiple of 16 */
    int64_t kh, kw;
    int64_t stride[2], pad[2];
    int64_t line; /* elements of a padded line: (w + 2 pad) c */
    bool bf16;    /* activations, else f32 */
} td__first;

typedef struct td__first_kernels {
    /* to (h + 2 pad, line): one image, with its border of zeros. */
    void (*widen)(const td__first *g, float *to, const void *x);
    /* y (oh, ow, o) of one padded image; w (kh kw c, o), bias (o) or NULL. */
    void (*forward)(const td__first *g, void *y, const float *x, const float *w, const float *bias,
                    bool relu);
    /* dw (kh kw c, o) += of one image; only where `weight_sizes` says so. */
    void (*weight)(const td__first *g, float *dw, const float *x, const void *dy);
} td__first_kernels;

/* 3x3 over 1 or 3 channels: then all taps have their accumulators in registers. */
static inline bool td__first_weight_sizes(int64_t kh, int64_t kw, int64_t c)
{
    return kh == 3 && kw == 3 && (c == 1 || c == 3);
}

extern const td__first_kernels td__first_scalar, td__first_avx2, td__first_avx512;

#endif
