/* op_attention.h -- attention as its operators share it: queries, keys and values that lie in
 * tensors of their own (op_attention.c) or side by side in one (op_attention_joined.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_ATTENTION_H
#define TD_OPS_OP_ATTENTION_H

#include "ops/op_check.h"

/* Everything that one attention is: sizes and operands. */
typedef struct td__attention {
    int64_t b, t, s, h, hkv, d;
    const double *q, *k, *v, *mask;
    int64_t q_step, kv_step; /* elements from one token's query, key or value to the next one's */
    int64_t mask_stride;     /* from one batch entry's mask to the next; 0 if shared */
    const td_attr_attention *at;
} td__attention;

/* Where gradients are added to: as q, k and v lie. */
typedef struct td__attention_grads {
    double *dq, *dk, *dv;
} td__attention_grads;

/* o (B, T, H, D), lse (B, H, T) */
void td__attention_forward(const td__attention *p, double *o, double *lse);
void td__attention_backward(const td__attention *p, const double *dout, const double *o,
                            const double *lse, const td__attention_grads *g);

#endif
