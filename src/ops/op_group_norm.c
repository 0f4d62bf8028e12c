/* op_group_norm.c -- group normalisation of images, and its backward.
 *
 * In each image, each of G groups of C/G channels is a row of C/G H W elements of op_normalise.h,
 * with a gamma and a beta for each channel. dgamma and dbeta are sums over the images. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_normalise.h"

static td_status check(const td_op_args *a, const char *what)
{
    const td_attr_norm *at = a->attr;
    const td_shape *x = &a->in_desc[0]->shape;

    TD_TRY(td__norm_check_eps(at));
    TD_TRY(td__want_float(a, 0, what));
    TD_TRY(td__want_ndim(a, 0, what, 4));
    if (at->groups < 1 || x->dim[1] % at->groups != 0)
        return TD_FAIL(TD_EINVAL, "%lld channels do not split in %d groups", (long long)x->dim[1],
                       at->groups);
    return TD_OK;
}

static td_status group_norm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;

    TD_TRY(check(a, "x"));
    TD_TRY(td__norm_want_channels(a, 1, "gamma"));
    TD_TRY(td__norm_want_channels(a, 2, "beta"));
    out[0] = *a->in_desc[0];
    out[1] = td__desc(td__acc_dtype(out[0].dtype), TD_SHAPE(out[0].shape.dim[0], at->groups));
    out[2] = out[1];
    *n_out = 3;
    return TD_OK;
}

/* The group with number g of all images' groups: `first` is its first channel. */
static td__norm_row group_at(const td_op_args *a, const double *x, const double *gamma, int64_t g,
                             int64_t *first)
{
    const int64_t *dim = a->in_desc[0]->shape.dim;
    int groups = ((const td_attr_norm *)a->attr)->groups;
    int64_t image = dim[2] * dim[3], channels = dim[1] / groups, m = channels * image;

    *first = g % groups * channels;
    return (td__norm_row){.m = m, .repeat = image, .x = x + g * m, .gamma = gamma + *first};
}

static void group_norm_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const double *x = a->in[0], *gamma = a->in[1], *beta = a->in[2]; /* (N, C, HW), (C), (C) */
    double *y = a->out[0], *mean = a->out[1], *rstd = a->out[2];     /* (N, C, HW), (N, G) twice */

    for (int64_t g = 0; g < a->in_desc[0]->shape.dim[0] * at->groups; g++) {
        int64_t c;
        td__norm_row row = group_at(a, x, gamma, g, &c);
        td__norm_row_ref(&row, beta + c, at->eps, y + g * row.m, &mean[g], &rstd[g]);
    }
}

static void group_norm_grad(const td_grad_args *ga)
{
    td__norm_grad(ga, TD_OP_GROUP_NORM_BACK, 2);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;
    const td_desc *dy = a->in_desc[0];

    TD_TRY(check(a, "dy"));
    TD_TRY(td__want_activation(a, 1, "x", &dy->shape));
    TD_TRY(td__want_same_layout(a, 1, "x"));
    TD_TRY(td__norm_want_channels(a, 2, "gamma"));
    td_shape stats = TD_SHAPE(dy->shape.dim[0], at->groups);
    TD_TRY(td__want_weight_shape(a, 3, "mean", &stats));
    TD_TRY(td__want_weight_shape(a, 4, "rstd", &stats));
    out[0] = *dy;
    out[1] = out[2] = td__desc(a->in_desc[2]->dtype, a->in_desc[2]->shape);
    *n_out = 3;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const int64_t *dim = a->in_desc[0]->shape.dim;
    const double *dy = a->in[0], *x = a->in[1], *gamma = a->in[2]; /* (N, C, HW) twice, (C) */
    const double *mean = a->in[3], *rstd = a->in[4];               /* (N, G) each */
    double *dx = a->out[0], *dgamma = a->out[1], *dbeta = a->out[2];

    for (int64_t c = 0; c < dim[1]; c++)
        dgamma[c] = dbeta[c] = 0;
    for (int64_t g = 0; g < dim[0] * at->groups; g++) {
        int64_t c;
        td__norm_row row = group_at(a, x, gamma, g, &c);
        td__norm_row_back_ref(&row, mean[g], rstd[g], dy + g * row.m, dx + g * row.m, dgamma + c,
                              dbeta + c);
    }
}

TD_API td_node *td_group_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta, int groups,
                              double eps)
{
    td_attr_norm at;

    memset(&at, 0, sizeof at);
    at.eps = eps;
    at.groups = groups;
    return TD__NODE(g, TD_OP_GROUP_NORM, &at, x, gamma, beta);
}

static const td_attr_norm G1 = {.eps = 1e-5, .groups = 1}, G2 = {.eps = 1e-5, .groups = 2},
                          G6 = {.eps = 1e-3, .groups = 6}, G8 = {.eps = 1e-5, .groups = 8};

#define FORWARD(n, c, h, w, g) \
    .n_in = 3, .in = {TD__FLOATS(n, c, h, w), TD__FLOATS(c), TD__FLOATS(c)}, .attr = &G##g
static const td_op_sample SAMPLES[] = {
    {FORWARD(2, 6, 3, 2, 1)},
    {FORWARD(2, 6, 3, 2, 2)},
    {FORWARD(1, 6, 3, 3, 6)},
    {FORWARD(0, 6, 3, 3, 2)},
    {FORWARD(2, 6, 0, 3, 2)},
    {FORWARD(3, 40, 7, 5, 8), .no_grad = TD__ALL_INPUTS},
    {FORWARD(2, 64, 6, 6, 8), .no_grad = TD__ALL_INPUTS},
};

#define BACK(n, c, h, w, g)                                                                     \
    {                                                                                           \
        .n_in = 5,                                                                              \
        .in = {TD__FLOATS(n, c, h, w), TD__FLOATS(n, c, h, w), TD__FLOATS(c), TD__FLOATS(n, g), \
               TD__FLOATS(n, g)},                                                               \
        .attr = &G##g, .positive = TD__BIT(4)                                                   \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(2, 6, 3, 2, 1), BACK(2, 6, 3, 2, 2),  BACK(1, 6, 3, 3, 6),  BACK(0, 6, 3, 3, 2),
    BACK(2, 6, 0, 3, 2), BACK(3, 40, 7, 5, 8), BACK(2, 64, 6, 6, 8),
};

const td_op_def td__op_group_norm = {
    .name = "group_norm",
    .n_in_min = 3,
    .n_in_max = 3,
    .attr_size = sizeof(td_attr_norm),
    .infer = group_norm_infer,
    .ref = group_norm_ref,
    .grad = group_norm_grad,
    .weights = TD__BIT(1) | TD__BIT(2),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_group_norm_back = {
    .name = "group_norm_back",
    .n_in_min = 5,
    .n_in_max = 5,
    .attr_size = sizeof(td_attr_norm),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(2) | TD__BIT(3) | TD__BIT(4),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_IMAGE,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
