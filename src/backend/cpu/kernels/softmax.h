/* softmax.h -- softmax over rows, its logarithm, their gradients, and cross entropy. The maths is
 * in ops/op_softmax.c and ops/op_xent.c. Tensors are f32, bf16 or f16, statistics f32. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_SOFTMAX_H
#define TD_BACKEND_CPU_KERNELS_SOFTMAX_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "tandem/types.h"

/* `rows` of `width` elements. scratch: 2 * width floats. y may be x; dx may be y or dy. */
typedef void td__softmax_fn(void *y, const void *x, td_dtype t, int64_t rows, int64_t width,
                            float *scratch);
typedef void td__softmax_back_fn(void *dx, const void *y, const void *dy, td_dtype t, int64_t rows,
                                 int64_t width, float *scratch);
TD_ISA_DECLARE(void, td__softmax,
               (void *y, const void *x, td_dtype t, int64_t rows, int64_t width, float *scratch));
TD_ISA_DECLARE(void, td__log_softmax,
               (void *y, const void *x, td_dtype t, int64_t rows, int64_t width, float *scratch));
TD_ISA_DECLARE(void, td__softmax_back,
               (void *dx, const void *y, const void *dy, td_dtype t, int64_t rows, int64_t width,
                float *scratch));
TD_ISA_DECLARE(void, td__log_softmax_back,
               (void *dx, const void *y, const void *dy, td_dtype t, int64_t rows, int64_t width,
                float *scratch));

typedef struct td__xent {
    int64_t rows, width;
    td_dtype dtype, target_dtype; /* of the logits; i32 or i64 */
    bool use_ignore;
    int64_t ignore_index;
    double smoothing;
} td__xent;

typedef void td__xent_fn(const td__xent *p, float *loss, float *lse, const void *logits,
                         const void *target);
typedef void td__xent_back_fn(const td__xent *p, void *dlogits, const void *logits,
                              const void *target, const float *lse, const float *dloss);
TD_ISA_DECLARE(void, td__xent,
               (const td__xent *p, float *loss, float *lse, const void *logits,
                const void *target));
/* dlogits may be logits. */
TD_ISA_DECLARE(void, td__xent_back,
               (const td__xent *p, void *dlogits, const void *logits, const void *target,
                const float *lse, const float *dloss));

#endif
