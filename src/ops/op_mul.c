/* op_mul.c -- a b with broadcasting.
 *
 *     y = a b       da = b dy   db = a dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static double mul_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] * x[1];
}

static void mul_grad(const td_grad_args *r)
{
    td_graph *g = r->g;
    td_node *a = r->y->in[0], *b = r->y->in[1], *dy = r->dy[0];
    if (r->need[0])
        r->dx[0] = td__sum_to(g, td_mul(g, dy, b), a);
    if (r->need[1])
        r->dx[1] = td__sum_to(g, td_mul(g, dy, a), b);
}

static const td_op_sample SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, -2, 2),
    TD_BROADCAST_SAMPLES(NULL, -2, 2),
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_I32, 5, 3), TD_SAMPLE_D(TD_I32, 3)}, .ilo = -9, .ihi = 9},
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_I64, 7), TD_SAMPLE_D(TD_I64, 7)}, .ilo = -9, .ihi = 9},
};

const td_op_def td__op_mul = {
    .name = "mul",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_number,
    .scalar = mul_scalar,
    .grad = mul_grad,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_mul(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_MUL, NULL, a, b);
}
