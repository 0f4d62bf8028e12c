/* attention.h -- the row work of attention: everything between its matrix products. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_ATTENTION_H
#define TD_BACKEND_CPU_KERNELS_ATTENTION_H

#include "backend/cpu/isa.h"
#include "tandem/types.h"

/* One row of raw scores (q . k) that is to become probabilities. */
typedef struct td__attention_row {
    float *scores; /* (seen): overwritten */
    int64_t seen;  /* keys that this query may see */
    int64_t width; /* columns of p and ds: those from `seen` on become 0 */
    float scale;
    const float *mask; /* (seen), added after scaling; NULL for none */
    td_dtype dtype;    /* of p and ds: f32 or bf16 */
} td__attention_row;

/* p = softmax(scale scores + mask); returns lse. p may be the scores themselves (f32). */
typedef float td__attention_softmax_fn(const td__attention_row *r, void *p);
TD_ISA_DECLARE(float, td__attention_softmax, (const td__attention_row *r, void *p));

/* p = exp(scale scores + mask - lse), ds = p (dp - delta) scale; dp (seen) is overwritten. p may be
 * the scores and ds may be dp (f32). */
typedef void td__attention_back_fn(const td__attention_row *r, float lse, float delta, float *dp,
                                   void *p, void *ds);
TD_ISA_DECLARE(void, td__attention_back,
               (const td__attention_row *r, float lse, float delta, float *dp, void *p, void *ds));

/* do . o of one row of d elements. */
typedef float td__attention_delta_fn(const void *d_out, const void *out, td_dtype t, int64_t d);
TD_ISA_DECLARE(float, td__attention_delta,
               (const void *d_out, const void *out, td_dtype t, int64_t d));

/* Rows (n, d) of f32 into a tensor of type t whose rows are ld elements apart. */
typedef void td__attention_store_fn(void *y, int64_t ld, td_dtype t, const float *x, int64_t n,
                                    int64_t d);
TD_ISA_DECLARE(void, td__attention_store,
               (void *y, int64_t ld, td_dtype t, const float *x, int64_t n, int64_t d));

#endif
