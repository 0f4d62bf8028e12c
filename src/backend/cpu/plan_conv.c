/* plan_conv.c -- planners of the three convolution operators: reads the node, then takes the first
 * implementation that does the job. The order, and what each of them refuses, is the whole choice:
 * a pure function of shape, type and processor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/conv.h"
#include "base/check.h"
#include "ops/attr.h"

bool td__conv_is_nhwc(const td__conv *v, td_dtype dtype)
{
    return td__lies_nhwc(&v->x) && td__lies_nhwc(&v->y) && v->x.dtype == dtype &&
           v->y.dtype == dtype && v->w_dtype == TD_F32;
}

static td_status plan_conv(const td__cpu *cpu, const td_node *n, const bool *is_param,
                           td__conv_pass pass, td_kernel *k)
{
    static td__conv_plan_fn *const IMPLEMENTATIONS[] = {
        td__conv_plan_first,        td__conv_plan_wino,   td__conv_plan_shift_image,
        td__conv_plan_shift_weight, td__conv_plan_onednn, td__conv_plan_widen,
    };
    const td_attr_conv2d *a = n->attr;
    const td_desc *x = pass == TD__CONV_FORWARD       ? td__in_desc(n, 0)
                       : pass == TD__CONV_BACK_WEIGHT ? td__in_desc(n, 1)
                                                      : &n->out[0];
    const td_desc *y = pass == TD__CONV_FORWARD ? &n->out[0] : td__in_desc(n, 0);
    const td_desc *w = pass == TD__CONV_BACK_WEIGHT ? &n->out[0] : td__in_desc(n, 1);
    td__conv v = {
        .pass = pass,
        .n = x->shape.dim[0],
        .c = x->shape.dim[1],
        .h = x->shape.dim[2],
        .w = x->shape.dim[3],
        .o = y->shape.dim[1],
        .oh = y->shape.dim[2],
        .ow = y->shape.dim[3],
        .kh = w->shape.dim[2],
        .kw = w->shape.dim[3],
        .groups = a->groups,
        .stride = {a->stride[0], a->stride[1]},
        .pad = {a->pad[0], a->pad[1]},
        .dilation = {a->dilation[0], a->dilation[1]},
        .bias = a->has_bias && pass != TD__CONV_BACK_DATA,
        .relu = a->act == TD_ACT_RELU && pass == TD__CONV_FORWARD,
        .weight_is_param = pass != TD__CONV_BACK_WEIGHT && is_param && is_param[1],
        .x = *x,
        .y = *y,
        .w_dtype = w->dtype,
    };
    if (w->layout != TD_LAYOUT_PLAIN || td__desc_count(x) == 0 || td__desc_count(y) == 0 ||
        td__desc_count(w) == 0)
        return TD_ENOTSUP;
    for (int i = 0; i < TD_LEN(IMPLEMENTATIONS); i++) {
        td_status st = IMPLEMENTATIONS[i](cpu, &v, k);
        if (st != TD_ENOTSUP)
            return st;
    }
    return TD_ENOTSUP;
}

td_status td__cpu_plan_conv2d(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    return plan_conv(cpu, n, is_param, TD__CONV_FORWARD, k);
}

td_status td__cpu_plan_conv2d_back_data(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                        td_kernel *k)
{
    return plan_conv(cpu, n, is_param, TD__CONV_BACK_DATA, k);
}

td_status td__cpu_plan_conv2d_back_weight(const td__cpu *cpu, const td_node *n,
                                          const bool *is_param, td_kernel *k)
{
    return plan_conv(cpu, n, is_param, TD__CONV_BACK_WEIGHT, k);
}
