/* kernels.h -- the optimizers' inner loops: one pass over params, gradients and state.
 *
 * Every function here is compiled once per instruction set (base/isa.h), but without fused
 * products: sums, products, quotients and roots are correctly rounded in all of them, so an element
 * gets the same bits from any set, from a vector's lane or from a loop's tail. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_KERNELS_KERNELS_H
#define TD_DEVICE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/isa.h"

enum { TD_OPTIM_MAX_STATE = 3 };

/* The numbers of one step; each optimizer sets those that its kernel reads. */
typedef struct td__optim_hyper {
    float scale, clip;   /* the gradient used is clamp(scale * g, -clip, clip) */
    float lr;            /* after bias correction and the like */
    float l2;            /* weight decay: l2 * p is added to the gradient (lamb: to the update) */
    float shrink;        /* adamw: p is first multiplied by this; 1 without decay */
    float beta1, beta1c; /* c: 1 - beta */
    float beta2, beta2c;
    float eps;
    float root;               /* 1 / sqrt(1 - beta2^t) */
    float unbias;             /* lamb: 1 / (1 - beta1^t) */
    float momentum, undamped; /* undamped: 1 - dampening */
    bool nesterov, centered;
} td__optim_hyper;

/* n elements of the params, their gradients and states. The arrays do not overlap. */
typedef struct td__optim_slice {
    float *p;
    const float *g;
    float *s[TD_OPTIM_MAX_STATE];
    size_t n;
} td__optim_slice;

typedef void td__optim_kernel(const td__optim_hyper *h, const td__optim_slice *s);

/* Sums are taken over chunks of this many elements, in TD_OPTIM_LANES interleaved double sums. */
enum { TD_OPTIM_CHUNK = 4096, TD_OPTIM_LANES = 16 };

#define TD__ARGS (const td__optim_hyper *h, const td__optim_slice *s)
TD_ISA_DECLARE(void, td__optim_k_sgd, TD__ARGS);
TD_ISA_DECLARE(void, td__optim_k_adagrad, TD__ARGS);
TD_ISA_DECLARE(void, td__optim_k_rmsprop, TD__ARGS);
TD_ISA_DECLARE(void, td__optim_k_adam, TD__ARGS);
TD_ISA_DECLARE(void, td__optim_k_lars, TD__ARGS);
TD_ISA_DECLARE(void, td__optim_k_lamb_apply, TD__ARGS);
/* First half of lamb: new moments; sums[0] = |p|^2, sums[1] = |update|^2. n <= TD_OPTIM_CHUNK. */
TD_ISA_DECLARE(void, td__optim_k_lamb_moments,
               (const td__optim_hyper *h, const td__optim_slice *s, double sums[2]));
/* Sum of clamp(scale * x, -clip, clip)^2 over n <= TD_OPTIM_CHUNK elements. */
TD_ISA_DECLARE(double, td__optim_k_squares, (const float *x, size_t n, float scale, float clip));
#undef TD__ARGS

/* The gradient as the update uses it; NaN stays NaN. */
static inline float td__optim_grad(float g, float scale, float clip)
{
    g *= scale;
    return g > clip ? clip : g < -clip ? -clip : g;
}

/* The lanes' total, pair by pair. */
static inline double td__optim_fold(double *lane)
{
    for (int half = TD_OPTIM_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

#endif
