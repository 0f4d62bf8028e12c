/* op_div.c -- a / b with broadcasting.
 *
 *     y = a / b     da = dy / b     db = -dy y / b */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double div_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] / x[1];
}

static void div_grad(const td_grad_args *r)
{
    td_graph *g = r->g;
    td_node *a = r->y->in[0], *b = r->y->in[1], *dy = r->dy[0];
    if (r->need[0])
        r->dx[0] = td__sum_to(g, td_div(g, dy, b), a);
    if (r->need[1])
        r->dx[1] = td__sum_to(g, td_neg(g, td_mul(g, dy, td_div(g, r->y, b))), b);
}

static const td_op_sample SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, 0.5, 2),
    TD_BROADCAST_SAMPLES(NULL, 0.5, 2),
    TD_SAMPLE_2(TD_SAMPLE_F(33), TD_SAMPLE_F(33), NULL, -2, -0.5),
};

const td_op_def td__op_div = {
    .name = "div",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_float,
    .scalar = div_scalar,
    .grad = div_grad,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_div(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_DIV, NULL, a, b);
}
