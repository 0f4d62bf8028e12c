/* op_affine.c -- scale x + shift, with numbers known when the graph is built.
 *
 *     y = scale x + shift     dx = scale dy */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_util.h"

static td_status affine_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_affine *f = a->attr;
    if (!isfinite(f->scale) || !isfinite(f->shift))
        return TD_FAIL(TD_EINVAL, "scale %g and shift %g must be finite", f->scale, f->shift);
    return td__infer_unary(a, out, n_out);
}

static double affine_scalar(const double *x, const double *num)
{
    return num[0] * x[0] + num[1];
}

static void affine_grad(const td_grad_args *a)
{
    const td_attr_affine *f = a->y->attr;
    if (a->need[0])
        a->dx[0] = td_affine(a->g, a->dy[0], f->scale, 0);
}

static const td_attr_affine TURN = {-1.5, 0.25}, SCALE = {3, 0}, FLAT = {0, 7};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &TURN},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &TURN},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FLAT},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &SCALE},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &SCALE},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &TURN},
};

const td_op_def td__op_affine = {
    .name = "affine",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_affine),
    .infer = affine_infer,
    .scalar = affine_scalar,
    .grad = affine_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_affine(td_graph *g, td_node *x, double scale, double shift)
{
    td_attr_affine attr = {scale, shift};
    return TD__NODE(g, TD_OP_AFFINE, &attr, x);
}
