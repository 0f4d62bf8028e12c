/* op_rope.c -- rotary position embedding.
 *
 * Element j of the first half and element j of the second half of each head are rotated by an angle
 * that grows with the position and falls with j:
 *
 *     angle = (first_position + t) base^(-2 j / D),   j < D / 2
 *     y_j         = x_j cos - x_(j + D/2) sin
 *     y_(j + D/2) = x_(j + D/2) cos + x_j sin
 *
 * The gradient is the rotation backwards. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

static td_status rope_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_rope *at = a->attr;

    TD_TRY(td__want_float(a, 0, "x"));
    TD_TRY(td__want_ndim(a, 0, "x", 4));
    if (a->in_desc[0]->shape.dim[3] % 2 != 0)
        return TD_FAIL(TD_EINVAL, "a head's width is %lld; it must be even",
                       (long long)a->in_desc[0]->shape.dim[3]);
    if (!(at->base > 0) || !isfinite(at->base))
        return TD_FAIL(TD_EINVAL, "the base is %g; it must be positive", at->base);
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

static void rope_ref(const td_op_args *a)
{
    const td_attr_rope *at = a->attr;
    const int64_t *dim = a->in_desc[0]->shape.dim; /* (B, T, H, D) */
    const double *x = a->in[0];
    double *y = a->out[0];
    int64_t half = dim[3] / 2;

    for (int64_t r = 0; r < dim[0] * dim[1] * dim[2]; r++, x += dim[3], y += dim[3]) {
        double position = (double)at->first_position + (double)(r / dim[2] % dim[1]);
        for (int64_t j = 0; j < half; j++) {
            double angle = position * pow(at->base, -2.0 * (double)j / (double)dim[3]);
            double c = cos(angle), s = at->inverse ? -sin(angle) : sin(angle);
            double x0 = x[j], x1 = x[j + half];
            y[j] = x0 * c - x1 * s;
            y[j + half] = x1 * c + x0 * s;
        }
    }
}

static void rope_grad(const td_grad_args *ga)
{
    td_attr_rope at;

    memcpy(&at, ga->y->attr, sizeof at);
    at.inverse = !at.inverse;
    if (ga->need[0])
        ga->dx[0] = TD__NODE(ga->g, TD_OP_ROPE, &at, ga->dy[0]);
}

TD_API td_node *td_rope(td_graph *g, td_node *x, double base, int first_position)
{
    td_attr_rope at;

    memset(&at, 0, sizeof at);
    at.base = base == 0 ? 1e4 : base;
    at.first_position = first_position;
    return TD__NODE(g, TD_OP_ROPE, &at, x);
}

static const td_attr_rope ROPE = {.base = 1e4}, LATER = {.base = 100, .first_position = 7},
                          INVERSE = {.base = 1e4, .first_position = 3, .inverse = true};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(2, 3, 2, 6)}, .attr = &ROPE},
    {.n_in = 1, .in = {TD__FLOATS(1, 5, 3, 4)}, .attr = &LATER},
    {.n_in = 1, .in = {TD__FLOATS(2, 3, 1, 2)}, .attr = &INVERSE},
    {.n_in = 1, .in = {TD__FLOATS(2, 0, 2, 6)}, .attr = &ROPE},
    {.n_in = 1, .in = {TD__FLOATS(2, 3, 2, 0)}, .attr = &ROPE},
    {.n_in = 1, .in = {TD__FLOATS(2, 17, 3, 64)}, .attr = &ROPE, .no_grad = TD__ALL_INPUTS},
    {.n_in = 1, .in = {TD__FLOATS(1, 9, 2, 34)}, .attr = &INVERSE, .no_grad = TD__ALL_INPUTS},
};

const td_op_def td__op_rope = {
    .name = "rope",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_rope),
    .infer = rope_infer,
    .ref = rope_ref,
    .grad = rope_grad,
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
