/* conv.h -- what the ways to compute a convolution share.
 *
 *   y[n, o, p, q] = act(b[o] + sum over c, i, j of
 *                       x[n, c, p s0 + i d0 - p0, q s1 + j d1 - p1] w[o, c, i, j])
 *
 * Forward, gradient to the data and gradient to the weight are three operators; all of them are
 * described by the forward convolution they belong to. An implementation answers TD_ENOTSUP for
 * what it does not do; plan_conv.c asks them in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_CONV_H
#define TD_BACKEND_CPU_CONV_H

#include "backend/cpu/cpu.h"

typedef enum td__conv_pass {
    TD__CONV_FORWARD,     /* x, w, b? -> y */
    TD__CONV_BACK_DATA,   /* dy, w -> dx */
    TD__CONV_BACK_WEIGHT, /* dy, x -> dw, db? */
} td__conv_pass;

typedef struct td__conv {
    td__conv_pass pass;
    int64_t n, c, h, w;     /* x (n, c, h, w) */
    int64_t o, oh, ow;      /* y (n, o, oh, ow) */
    int64_t kh, kw, groups; /* weight (o, c / groups, kh, kw), PLAIN */
    int64_t stride[2], pad[2], dilation[2];
    bool bias;            /* forward: b is there; back_weight: db is wanted */
    bool relu;            /* forward only */
    bool weight_is_param; /* the weight may be packed in prepare */
    td_desc x, y;         /* dx and dy likewise */
    td_dtype w_dtype;     /* of the weight or its gradient, and of the bias */
} td__conv;

/* Fills run, impl, scratch, ... of k, as a planner does. */
typedef td_status td__conv_plan_fn(const td__cpu *cpu, const td__conv *v, td_kernel *k);

td__conv_plan_fn td__conv_plan_first; /* few channels, forward and weight: f32 and bf16 */
td__conv_plan_fn td__conv_plan_wino;  /* 3x3, stride 1, wide: f32 and bf16 */
td__conv_plan_fn td__conv_plan_shift_image, td__conv_plan_shift_weight; /* bf16, groups == 1 */
td__conv_plan_fn td__conv_plan_onednn; /* f32, any variant, both layouts */
td__conv_plan_fn td__conv_plan_widen;  /* bf16 by way of the f32 one */

/* Both activations are f32 or both bf16 NHWC (or lie as if they were), weights f32. */
bool td__conv_is_nhwc(const td__conv *v, td_dtype dtype);

#endif
