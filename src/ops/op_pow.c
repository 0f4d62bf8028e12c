/* op_pow.c -- a to the power of b, with broadcasting.
 *
 *     y = a^b       da = b a^(b-1) dy     db = ln(a) y dy
 *
 * The gradient to b needs a > 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double pow_scalar(const double *x, const double *num)
{
    (void)num;
    return pow(x[0], x[1]);
}

static void pow_grad(const td_grad_args *r)
{
    td_graph *g = r->g;
    td_node *a = r->y->in[0], *b = r->y->in[1], *dy = r->dy[0];
    if (r->need[0]) {
        td_node *slope = td_mul(g, b, td_pow(g, a, td_affine(g, b, 1, -1)));
        r->dx[0] = td__sum_to(g, td_mul(g, dy, slope), a);
    }
    if (r->need[1])
        r->dx[1] = td__sum_to(g, td_mul(g, dy, td_mul(g, r->y, td_log(g, a))), b);
}

static const td_op_sample SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, 0.5, 2),
    TD_BROADCAST_SAMPLES(NULL, 0.5, 2),
};

const td_op_def td__op_pow = {
    .name = "pow",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_float,
    .scalar = pow_scalar,
    .grad = pow_grad,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_pow(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_POW, NULL, a, b);
}
