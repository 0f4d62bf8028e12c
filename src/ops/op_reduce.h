/* op_reduce.h -- what the reductions (sum, mean, max, argmax) share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_REDUCE_H
#define TD_OPS_OP_REDUCE_H

#include "ops/op_util.h"

/* Shape of x after reducing r->axes, as r->keep says; fails if a bit names no axis. */
TD_NODISCARD td_status td__reduce_shape(const td_shape *x, const td_attr_reduce *r, td_shape *out);
/* How many elements go into one result. */
int64_t td__reduce_count(const td_shape *x, unsigned axes);
/* Where in the result each element of x goes: strides over x's indices, 0 along reduced axes. */
void td__reduce_strides(const td_shape *x, unsigned axes, int64_t stride[TD_MAX_DIMS]);
/* Infer of sum and mean (`what`): a floating result of the type that the attribute asks for. */
TD_NODISCARD td_status td__reduce_infer_sum(const td_op_args *a, const char *what, td_desc *out);
/* The reference of sum, and of mean before it divides. */
void td__reduce_sum_ref(const td_op_args *a);
/* dy, which has y's shape, spread over x's: what every reduction's gradient starts with. */
td_node *td__reduce_spread(td_graph *g, td_node *dy, const td_node *x, const td_attr_reduce *r);
/* The public builders' common part. */
td_node *td__reduce_node(td_graph *g, td_opcode op, const char *call, td_node *x, const int *axes,
                         int n_axes, bool keep, bool widen);

#endif
