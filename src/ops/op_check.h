/* op_check.h -- checks that infer rules of the larger operators share, and the types of their
 * results.
 *
 * The rule of types: the floating activations of a node have one dtype (that of input 0 unless
 * said otherwise); weights and statistics have the same dtype or f32; results follow the
 * activations; statistics are f32, or f64 beside f64. Each check fails with a text that names the
 * operand (`what`) and its sizes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_CHECK_H
#define TD_OPS_OP_CHECK_H

#include "ops/op_util.h"

/* Descs of samples: floating ("the type under test"), i32, i64, u8. */
#define TD__FLOATS(...) TD_SAMPLE_D(TD_F32, __VA_ARGS__)
#define TD__INTS(...) TD_SAMPLE_D(TD_I32, __VA_ARGS__)
#define TD__LONGS(...) TD_SAMPLE_D(TD_I64, __VA_ARGS__)
#define TD__BYTES(...) TD_SAMPLE_D(TD_U8, __VA_ARGS__)

/* Bit i of masks such as td_op_def.weights. */
#define TD__BIT(i) (1u << (i))
#define TD__ALL_INPUTS (~0u)

/* Input i is a floating tensor. */
td_status td__want_float(const td_op_args *a, int i, const char *what);
/* Input i has the dtype of input 0. */
td_status td__want_same_dtype(const td_op_args *a, int i, const char *what);
/* Input i is a weight or a statistic beside activations like input 0: of its dtype, or f32. */
td_status td__want_weight(const td_op_args *a, int i, const char *what);
/* Input i holds indices: i32 or i64. */
td_status td__want_index(const td_op_args *a, int i, const char *what);
td_status td__want_ndim(const td_op_args *a, int i, const char *what, int ndim);
td_status td__want_min_ndim(const td_op_args *a, int i, const char *what, int ndim);
td_status td__want_shape(const td_op_args *a, int i, const char *what, const td_shape *shape);
/* A vector of n elements. */
td_status td__want_vector(const td_op_args *a, int i, const char *what, int64_t n);
/* Input i is an activation of this shape, of the dtype of input 0. */
td_status td__want_activation(const td_op_args *a, int i, const char *what, const td_shape *shape);
/* Input i is a weight or a statistic of this shape / a vector of n elements. */
td_status td__want_weight_shape(const td_op_args *a, int i, const char *what,
                                const td_shape *shape);
td_status td__want_weight_vector(const td_op_args *a, int i, const char *what, int64_t n);
/* Input i lies in memory in the order of input 0 (both are images, or neither). */
td_status td__want_same_layout(const td_op_args *a, int i, const char *what);
/* attr.out_dtype and the like: a floating type. */
td_status td__want_float_dtype(td_dtype t, const char *what);
/* The product of the sizes fits; for results whose size comes from attributes. */
td_status td__want_count(const td_shape *s, const char *what);

/* shape without its last axis. */
td_shape td__shape_rows(const td_shape *s);
/* Product of all sizes but the last; the size of the last axis (1 for a scalar). */
int64_t td__row_count(const td_shape *s);
int64_t td__last_dim(const td_shape *s);

#endif
