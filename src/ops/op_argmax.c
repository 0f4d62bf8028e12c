/* op_argmax.c -- where along one axis the largest value lies: i32; the first one of equals; NaN
 * counts as largest. Not differentiable. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_reduce.h"

/* The one axis of the mask. */
static int axis_of(const td_attr_reduce *r)
{
    return __builtin_ctz(r->axes);
}

static td_status argmax_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_reduce *r = a->attr;
    const td_shape *x = &a->in_desc[0]->shape;
    td_shape shape;
    TD_TRY(td__need_float(a, 0));
    TD_TRY(td__reduce_shape(x, r, &shape));
    if (__builtin_popcount(r->axes) != 1)
        return TD_FAIL(TD_EINVAL, "%d axes given: argmax has one", __builtin_popcount(r->axes));
    int64_t size = x->dim[axis_of(r)];
    if (size < 1 || size > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "axis %d has %lld elements: 1 to %d are possible", axis_of(r),
                       (long long)size, INT32_MAX);
    out[0] = td__desc(TD_I32, shape);
    *n_out = 1;
    return TD_OK;
}

static void argmax_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    int axis = axis_of(a->attr);
    const double *x = a->in[0]; /* (outer, size, inner) */
    int32_t *y = a->out[0];     /* (outer, inner) */
    int64_t outer = td__count_range(s, 0, axis), size = s->dim[axis];
    int64_t inner = td__count_range(s, axis + 1, s->ndim);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            const double *v = x + o * size * inner + i;
            double best = v[0];
            int64_t at = 0;
            for (int64_t k = 1; k < size; k++) {
                double other = v[k * inner];
                if (other > best || (isnan(other) && !isnan(best))) {
                    best = other;
                    at = k;
                }
            }
            y[o * inner + i] = (int32_t)at;
        }
    }
}

static const td_attr_reduce FIRST = {.axes = 1}, SECOND = {.axes = 2, .keep = true};
static const td_attr_reduce THIRD = {.axes = 4};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FIRST},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &SECOND},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &SECOND, .lo = 1, .hi = 1}, /* all equal */
    {.n_in = 1, .in = {TD_SAMPLE_F(0, 5)}, .attr = &SECOND},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &THIRD},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &SECOND},
};

const td_op_def td__op_argmax = {
    .name = "argmax",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_reduce),
    .infer = argmax_infer,
    .ref = argmax_ref,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_argmax(td_graph *g, td_node *x, int axis)
{
    td_attr_reduce attr;
    memset(&attr, 0, sizeof attr);
    if (x) {
        int at;
        if (!td__norm_axis(g, "td_argmax", x, axis, &at))
            return NULL;
        attr.axes = 1u << at;
    }
    return TD__NODE(g, TD_OP_ARGMAX, &attr, x);
}
