/* op_maximum.c -- the larger and the smaller of two values, with broadcasting.
 *
 *     da = dy where a wins, dy/2 where a = b, else 0; db likewise
 *
 * NaN in either input gives NaN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static double maximum_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] > x[1] || isnan(x[0]) ? x[0] : x[1];
}

static double minimum_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] < x[1] || isnan(x[0]) ? x[0] : x[1];
}

/* The gradient to input k, which wins where `wins` (bool) says so. */
static void give(const td_grad_args *r, int k, td_node *wins)
{
    td_graph *g = r->g;
    td_node *a = r->y->in[0], *b = r->y->in[1], *dy = r->dy[0];
    td_node *rest = td_where(g, wins, dy, td__scalar_like(g, dy, 0));
    td_node *share = td_where(g, td_equal(g, a, b), td_affine(g, dy, 0.5, 0), rest);
    r->dx[k] = td__sum_to(g, share, r->y->in[k]);
}

static void maximum_grad(const td_grad_args *r)
{
    for (int k = 0; k < 2; k++)
        if (r->need[k])
            give(r, k, td_less(r->g, r->y->in[1 - k], r->y->in[k]));
}

static void minimum_grad(const td_grad_args *r)
{
    for (int k = 0; k < 2; k++)
        if (r->need[k])
            give(r, k, td_less(r->g, r->y->in[k], r->y->in[1 - k]));
}

/* positive: the second input from [0.5, 1.5), away from the first. */
/* clang-format off */
#define APART(A, B, LO, HI) {.n_in = 2, .in = {A, B}, .lo = (LO), .hi = (HI), .positive = 2u}
/* clang-format on */
static const td_op_sample SAMPLES[] = {
    APART(TD_SAMPLE_F0, TD_SAMPLE_F0, -1, 0.4),
    APART(TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 13), 1.6, 3),
    APART(TD_SAMPLE_F(5, 7), TD_SAMPLE_F(7), -1, 0.4),
    APART(TD_SAMPLE_F(1, 7), TD_SAMPLE_F(5, 1), 1.6, 3),
    APART(TD_SAMPLE_F(2, 3, 5, 4), TD_SAMPLE_F(1, 3, 1, 1), -1, 0.4),
    APART(TD_SAMPLE_F(3, 0), TD_SAMPLE_F(3, 0), -1, 0.4),
    {.n_in = 2, .in = {TD_SAMPLE_F(7, 33, 65), TD_SAMPLE_F(7, 33, 65)}, .no_grad = 3u},
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_I32, 9, 7), TD_SAMPLE_D(TD_I32, 7)}, .ilo = -3, .ihi = 3},
};

const td_op_def td__op_maximum = {
    .name = "maximum",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_number,
    .scalar = maximum_scalar,
    .grad = maximum_grad,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_minimum = {
    .name = "minimum",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = td__infer_number,
    .scalar = minimum_scalar,
    .grad = minimum_grad,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_maximum(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_MAXIMUM, NULL, a, b);
}

td_node *td_minimum(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_MINIMUM, NULL, a, b);
}
