/* row_norm.h -- layer and root-mean-square normalisation of rows, and their gradients. The maths is
 * in ops/op_layer_norm.c and ops/op_rms_norm.c. x, y, dx, dy are f32, bf16 or f16; gamma, beta,
 * their gradients and the statistics are f32. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_ROW_NORM_H
#define TD_BACKEND_CPU_KERNELS_ROW_NORM_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "tandem/types.h"

typedef struct td__row_norm {
    int64_t rows, width;
    td_dtype dtype;
    float eps;
} td__row_norm;

/* y (R, D), mean (R), rstd (R); for rms, beta and mean are NULL. scratch: 4 * D floats. y may be x;
 * dx may be dy or x. */
typedef void td__row_norm_fn(const td__row_norm *p, void *y, float *mean, float *rstd,
                             const void *x, const float *gamma, const float *beta, float *scratch);
typedef void td__row_norm_back_fn(const td__row_norm *p, void *dx, float *dgamma, float *dbeta,
                                  const void *dy, const void *x, const float *gamma,
                                  const float *mean, const float *rstd, float *scratch);
TD_ISA_DECLARE(void, td__layer_norm,
               (const td__row_norm *p, void *y, float *mean, float *rstd, const void *x,
                const float *gamma, const float *beta, float *scratch));
TD_ISA_DECLARE(void, td__layer_norm_back,
               (const td__row_norm *p, void *dx, float *dgamma, float *dbeta, const void *dy,
                const void *x, const float *gamma, const float *mean, const float *rstd,
                float *scratch));
TD_ISA_DECLARE(void, td__rms_norm,
               (const td__row_norm *p, void *y, float *mean, float *rstd, const void *x,
                const float *gamma, const float *beta, float *scratch));
TD_ISA_DECLARE(void, td__rms_norm_back,
               (const td__row_norm *p, void *dx, float *dgamma, float *dbeta, const void *dy,
                const void *x, const float *gamma, const float *mean, const float *rstd,
                float *scratch));

#endif
