/* op_util.h -- what operator files share: shape rules, axes, index walking, gradients of
 * broadcasts, and the words for writing samples.
 *
 * Infer helpers check and TD_FAIL with sizes in the text; the caller of infer adds the call, the
 * node and the shapes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_UTIL_H
#define TD_OPS_OP_UTIL_H

#include "base/check.h"
#include "base/fail.h"
#include "ops/attr.h"
#include "ops/op.h"

/* -- descs and shapes ------------------------------------------------------------------------- */

/* A row-major desc. */
td_desc td__desc(td_dtype dtype, td_shape shape);

/* Type of statistics, sums and losses over `in`: f64 for f64, otherwise f32. */
td_dtype td__acc_dtype(td_dtype in);
/* Type asked for by an out_dtype attribute, given the type of a floating input: f64 stays f64, so
 * that a sample written for f32 can be differentiated in double. */
td_dtype td__out_dtype(td_dtype in, td_dtype asked);

/* Elements of a shape that infer has passed. */
int64_t td__count(const td_shape *s);
/* Product of the sizes of axes [from, to). */
int64_t td__count_range(const td_shape *s, int from, int to);

/* NumPy broadcasting of a with b into *out; fails naming the axis that does not fit. */
TD_NODISCARD td_status td__broadcast(const td_shape *a, const td_shape *b, td_shape *out);

/* -- checks for infer ------------------------------------------------------------------------- */

/* Input i is floating / an index type (i32, i64) / has ndim axes / has the given shape or dtype. */
TD_NODISCARD td_status td__need_float(const td_op_args *a, int i);
TD_NODISCARD td_status td__need_index(const td_op_args *a, int i);
TD_NODISCARD td_status td__need_ndim(const td_op_args *a, int i, int ndim);
TD_NODISCARD td_status td__need_shape(const td_op_args *a, int i, const td_shape *shape);
TD_NODISCARD td_status td__need_dtype(const td_op_args *a, int i, td_dtype dtype);
/* Inputs i and j have one dtype / one dtype and shape. */
TD_NODISCARD td_status td__need_same_dtype(const td_op_args *a, int i, int j);
TD_NODISCARD td_status td__need_same(const td_op_args *a, int i, int j);
/* 0 <= axis < ndim of input i. */
TD_NODISCARD td_status td__need_axis(const td_op_args *a, int i, int axis);
/* A shape given as an attribute: ndim in range, sizes >= 0, product in range. */
TD_NODISCARD td_status td__need_valid_shape(const td_shape *s);

/* Shape and layout of an elementwise operator over all inputs; *out keeps its dtype. Inputs of 4
 * axes must agree in layout, and the output has it. */
TD_NODISCARD td_status td__infer_broadcast(const td_op_args *a, td_desc *out);

/* Whole infer rules follow. */

/* One floating input, the output is like it. */
td_status td__infer_unary(const td_op_args *a, td_desc *out, int *n_out);
/* Floating inputs of one dtype, broadcast; `number` takes integers of one dtype too. */
td_status td__infer_float(const td_op_args *a, td_desc *out, int *n_out);
td_status td__infer_number(const td_op_args *a, td_desc *out, int *n_out);
/* Floating inputs of one dtype and one shape, as most *_back operators have. */
td_status td__infer_same(const td_op_args *a, td_desc *out, int *n_out);

/* -- walking over elements (reference kernels) ------------------------------------------------ */

/* Row-major strides, in elements. */
void td__strides(const td_shape *s, int64_t stride[TD_MAX_DIMS]);
/* Strides for reading `from` at the indices of `to`: 0 along broadcast axes. */
void td__broadcast_strides(const td_shape *from, const td_shape *to, int64_t stride[TD_MAX_DIMS]);
/* The next index in row-major order; wraps to all zeros at the end. */
void td__next_index(const td_shape *s, int64_t index[TD_MAX_DIMS]);
int64_t td__offset(int ndim, const int64_t *index, const int64_t *stride);

/* 1 / (1 + e^-x). */
double td__logistic(double x);

/* Bytes per element as reference kernels see it: floats are doubles there. */
size_t td__ref_size(td_dtype t);
/* Element i of such a buffer as a number, and back (integers: cut towards zero and saturated,
 * bool: is it not zero). */
double td__ref_get(td_dtype t, const void *p, int64_t i);
void td__ref_set(td_dtype t, void *p, int64_t i, double v);
int64_t td__ref_index(td_dtype t, const void *p, int64_t i); /* i32 or i64, exactly */

/* -- builders and gradients ------------------------------------------------------------------- */

/* Negative axes count from the end. False, with an error in g, if out of range. */
bool td__norm_axis(td_graph *g, const char *call, const td_node *x, int axis, int *out);
/* A list of axes as a bit mask; none means all. Repeated axes are errors. */
bool td__axes_mask(td_graph *g, const char *call, const td_node *x, const int *axes, int n_axes,
                   unsigned *mask);

/* Sum dy over the axes along which `like` was broadcast: the gradient of broadcasting, in like's
 * shape and dtype. */
td_node *td__sum_to(td_graph *g, td_node *dy, const td_node *like);
/* Zeros in n's shape and dtype, held as one element. */
td_node *td__zeros_like(td_graph *g, const td_node *n);
/* One number of n's dtype (a floating one), shape (). */
td_node *td__scalar_like(td_graph *g, const td_node *n, double value);
/* Cast unless it already is of that type. */
td_node *td__cast_to(td_graph *g, td_node *x, td_dtype dtype);

/* -- samples ---------------------------------------------------------------------------------- */

/* clang-format off */
#define TD__DIMS(...)                                                                     \
    {.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = {__VA_ARGS__}}
#define TD_SAMPLE_D(type, ...) {.dtype = (type), .shape = TD__DIMS(__VA_ARGS__)}
#define TD_SAMPLE_F(...) TD_SAMPLE_D(TD_F32, __VA_ARGS__)    /* the float type under test */
#define TD_SAMPLE_F0 {.dtype = TD_F32}                       /* one number */

/* What every one-input function is tried on: a number, one element, odd, empty, image, large. */
#define TD_UNARY_SAMPLES(LO, HI)                                          \
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .lo = (LO), .hi = (HI)},            \
    {.n_in = 1, .in = {TD_SAMPLE_F(1)}, .lo = (LO), .hi = (HI)},          \
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .lo = (LO), .hi = (HI)},      \
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .lo = (LO), .hi = (HI)},    \
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .lo = (LO), .hi = (HI)}, \
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .lo = (LO), .hi = (HI)}
/* Two inputs and an optional attribute. */
#define TD_SAMPLE_2(A, B, ATTR, LO, HI) \
    {.n_in = 2, .in = {A, B}, .attr = (ATTR), .lo = (LO), .hi = (HI)}
/* The same shapes for two inputs of one shape. */
#define TD_PAIR_SAMPLES(ATTR, LO, HI)                                            \
    TD_SAMPLE_2(TD_SAMPLE_F0, TD_SAMPLE_F0, ATTR, LO, HI),                       \
    TD_SAMPLE_2(TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 13), ATTR, LO, HI),           \
    TD_SAMPLE_2(TD_SAMPLE_F(3, 0), TD_SAMPLE_F(3, 0), ATTR, LO, HI),             \
    TD_SAMPLE_2(TD_SAMPLE_F(2, 3, 5, 4), TD_SAMPLE_F(2, 3, 5, 4), ATTR, LO, HI), \
    TD_SAMPLE_2(TD_SAMPLE_F(7, 33, 65), TD_SAMPLE_F(7, 33, 65), ATTR, LO, HI)
/* And broadcast both ways. */
#define TD_BROADCAST_SAMPLES(ATTR, LO, HI)                                       \
    TD_SAMPLE_2(TD_SAMPLE_F(5, 7), TD_SAMPLE_F(7), ATTR, LO, HI),                \
    TD_SAMPLE_2(TD_SAMPLE_F0, TD_SAMPLE_F(3, 5), ATTR, LO, HI),                  \
    TD_SAMPLE_2(TD_SAMPLE_F(4, 1, 6), TD_SAMPLE_F(1, 3, 1), ATTR, LO, HI),       \
    TD_SAMPLE_2(TD_SAMPLE_F(2, 3, 5, 4), TD_SAMPLE_F(1, 3, 1, 1), ATTR, LO, HI), \
    TD_SAMPLE_2(TD_SAMPLE_F(1, 4), TD_SAMPLE_F(0, 4), ATTR, LO, HI)
/* clang-format on */

#endif
