/* op_reduce.c -- what the reductions share; see op_reduce.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_reduce.h"

#include <string.h>

td_status td__reduce_shape(const td_shape *x, const td_attr_reduce *r, td_shape *out)
{
    td_shape s = {.ndim = 0};
    if (r->axes >> x->ndim)
        return TD_FAIL(TD_EINVAL, "axes 0x%x reach beyond the %d axes there are", r->axes, x->ndim);
    for (int i = 0; i < x->ndim; i++) {
        if (!(r->axes >> i & 1u))
            s.dim[s.ndim++] = x->dim[i];
        else if (r->keep)
            s.dim[s.ndim++] = 1;
    }
    *out = s;
    return TD_OK;
}

int64_t td__reduce_count(const td_shape *x, unsigned axes)
{
    int64_t n = 1;
    for (int i = 0; i < x->ndim; i++)
        if (axes >> i & 1u)
            n *= x->dim[i];
    return n;
}

void td__reduce_strides(const td_shape *x, unsigned axes, int64_t stride[TD_MAX_DIMS])
{
    int64_t n = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        bool reduced = axes >> i & 1u;
        stride[i] = reduced ? 0 : n;
        if (!reduced)
            n *= x->dim[i];
    }
}

td_status td__reduce_infer_sum(const td_op_args *a, const char *what, td_desc *out)
{
    const td_attr_reduce *r = a->attr;
    td_dtype in = a->in_desc[0]->dtype;
    td_shape shape;
    TD_TRY(td__need_float(a, 0));
    TD_TRY(td__reduce_shape(&a->in_desc[0]->shape, r, &shape));
    if (!td_dtype_is_float(r->out_dtype))
        return TD_FAIL(TD_EINVAL, "a %s of %s cannot be %s", what, td_dtype_name(in),
                       td_dtype_name(r->out_dtype));
    *out = td__desc(td__out_dtype(in, r->out_dtype), shape);
    return TD_OK;
}

void td__reduce_sum_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    const double *x = a->in[0];
    double *y = a->out[0];
    int64_t stride[TD_MAX_DIMS], index[TD_MAX_DIMS] = {0};
    int64_t n = td__count(s), n_out = td__count(&a->out_desc[0].shape);
    td__reduce_strides(s, ((const td_attr_reduce *)a->attr)->axes, stride);
    for (int64_t i = 0; i < n_out; i++)
        y[i] = 0;
    for (int64_t i = 0; i < n; i++, td__next_index(s, index))
        y[td__offset(s->ndim, index, stride)] += x[i];
}

td_node *td__reduce_spread(td_graph *g, td_node *dy, const td_node *x, const td_attr_reduce *r)
{
    td_shape kept = x->out[0].shape;
    for (int i = 0; i < kept.ndim; i++)
        if (r->axes >> i & 1u)
            kept.dim[i] = 1;
    dy = td__cast_to(g, dy, x->out[0].dtype);
    if (!r->keep)
        dy = td_reshape(g, dy, kept);
    return td_expand(g, dy, x->out[0].shape);
}

td_node *td__reduce_node(td_graph *g, td_opcode op, const char *call, td_node *x, const int *axes,
                         int n_axes, bool keep, bool widen)
{
    td_attr_reduce attr;
    memset(&attr, 0, sizeof attr);
    if (x) {
        if (!td__axes_mask(g, call, x, axes, n_axes, &attr.axes))
            return NULL;
        attr.keep = keep;
        attr.out_dtype = widen ? td__acc_dtype(x->out[0].dtype) : x->out[0].dtype;
    }
    return TD__NODE(g, op, &attr, x);
}
