/* op_group_norm.c -- group normalisation of images, and its backward.
 *
 * For each image n and each of G groups of C/G channels, over its M = C/G H W elements:
 *
 *     mean = sum x / M,   rstd = 1 / sqrt(sum (x - mean)^2 / M + eps),   z = (x - mean) rstd
 *     y = gamma[c] z + beta[c]
 *
 * With h = gamma[c] dy:
 *
 *     dx = rstd (h - sum h / M - z sum(h z) / M)
 *     dgamma[c] = sum of dy z,   dbeta[c] = sum of dy    over the images and positions of c */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

static td_status check(const td_op_args *a, const char *what)
{
    const td_attr_norm *at = a->attr;
    const td_shape *x = &a->in_desc[0]->shape;

    if (!(at->eps >= 0) || !isfinite(at->eps))
        return TD_FAIL(TD_EINVAL, "eps is %g; it must be a number of at least 0", at->eps);
    TD_TRY(td__want_float(a, 0, what));
    TD_TRY(td__want_ndim(a, 0, what, 4));
    if (at->groups < 1 || x->dim[1] % at->groups != 0)
        return TD_FAIL(TD_EINVAL, "%lld channels do not split in %d groups", (long long)x->dim[1],
                       at->groups);
    return TD_OK;
}

static td_status want_channel_vector(const td_op_args *a, int i, const char *what)
{
    TD_TRY(td__want_weight(a, i, what, a->in_desc[0]->dtype));
    return td__want_vector(a, i, what, a->in_desc[0]->shape.dim[1]);
}

static td_status group_norm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;

    TD_TRY(check(a, "x"));
    TD_TRY(want_channel_vector(a, 1, "gamma"));
    TD_TRY(want_channel_vector(a, 2, "beta"));
    out[0] = *a->in_desc[0];
    out[1] = td__desc(td__acc_dtype(out[0].dtype), TD_SHAPE(out[0].shape.dim[0], at->groups));
    out[2] = out[1];
    *n_out = 3;
    return TD_OK;
}

static void group_norm_ref(const td_op_args *a)
{
    const td_attr_norm *at = a->attr;
    const int64_t *dim = a->in_desc[0]->shape.dim;
    const double *x = a->in[0], *gamma = a->in[1], *beta = a->in[2]; /* (N, C, HW), (C), (C) */
    double *y = a->out[0], *mean = a->out[1], *rstd = a->out[2];     /* (N, C, HW), (N, G) twice */
    int64_t image = dim[2] * dim[3], per_group = dim[1] / at->groups, m = per_group * image;
    double count = m > 0 ? (double)m : 1;

    for (int64_t g = 0; g < dim[0] * at->groups; g++, x += m, y += m) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < m; i++)
            sum += x[i];
        mean[g] = sum / count;
        for (int64_t i = 0; i < m; i++)
            squares += (x[i] - mean[g]) * (x[i] - mean[g]);
        rstd[g] = 1 / sqrt(squares / count + at->eps);
        for (int64_t i = 0; i < m; i++) {
            int64_t c = g % at->groups * per_group + i / image;
            y[i] = gamma[c] * (x[i] - mean[g]) * rstd[g] + beta[c];
        }
    }
}

static void group_norm_grad(const td_grad_args *ga)
{
    td_graph *g = ga->g;
    td_node *const *in = ga->y->in;

    if (!ga->dy[0])
        return; /* the statistics carry no gradient */
    td_node *dx = TD__NODE(g, TD_OP_GROUP_NORM_BACK, ga->y->attr, ga->dy[0], in[0], in[1],
                           td__part(g, ga->y, 1), td__part(g, ga->y, 2));
    for (int i = 0; i < 3; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(g, dx, i);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_norm *at = a->attr;
    const td_desc *dy = a->in_desc[0];

    TD_TRY(check(a, "dy"));
    TD_TRY(td__want_same_dtype(a, 1, "x"));
    TD_TRY(td__want_shape(a, 1, "x", &dy->shape));
    TD_TRY(td__want_same_layout(a, 1, "x"));
    TD_TRY(want_channel_vector(a, 2, "gamma"));
    td_shape stats = TD_SHAPE(dy->shape.dim[0], at->groups);
    TD_TRY(td__want_weight(a, 3, "mean", dy->dtype));
    TD_TRY(td__want_shape(a, 3, "mean", &stats));
    TD_TRY(td__want_weight(a, 4, "rstd", dy->dtype));
    TD_TRY(td__want_shape(a, 4, "rstd", &stats));
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
    int64_t image = dim[2] * dim[3], per_group = dim[1] / at->groups, m = per_group * image;

    for (int64_t c = 0; c < dim[1]; c++)
        dgamma[c] = dbeta[c] = 0;
    for (int64_t g = 0; g < dim[0] * at->groups; g++, x += m, dy += m, dx += m) {
        double sum = 0, dot = 0;
        int64_t c0 = g % at->groups * per_group;
        for (int64_t i = 0; i < m; i++) {
            double z = (x[i] - mean[g]) * rstd[g], h = gamma[c0 + i / image] * dy[i];
            sum += h;
            dot += h * z;
            dgamma[c0 + i / image] += dy[i] * z;
            dbeta[c0 + i / image] += dy[i];
        }
        for (int64_t i = 0; i < m; i++) {
            double z = (x[i] - mean[g]) * rstd[g], h = gamma[c0 + i / image] * dy[i];
            dx[i] = rstd[g] * (h - sum / (double)m - z * dot / (double)m);
        }
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
