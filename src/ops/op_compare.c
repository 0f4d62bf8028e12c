/* op_compare.c -- equal, less, less_equal: two values of one type to bool, with broadcasting.
 *
 * Not differentiable. Comparisons with NaN are false. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status compare_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__need_same_dtype(a, 0, 1));
    out[0].dtype = TD_BOOL;
    *n_out = 1;
    return td__infer_broadcast(a, &out[0]);
}

static double equal_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] == x[1] ? 1.0 : 0.0;
}

static double less_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] < x[1] ? 1.0 : 0.0;
}

static double less_equal_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] <= x[1] ? 1.0 : 0.0;
}

/* Small integers, so that equal pairs occur. */
static const td_op_sample SAMPLES[] = {
    TD_PAIR_SAMPLES(NULL, -1, 1),
    TD_BROADCAST_SAMPLES(NULL, -1, 1),
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_I32, 9, 7), TD_SAMPLE_D(TD_I32, 7)}, .ilo = 0, .ihi = 3},
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_I64, 33), TD_SAMPLE_D(TD_I64, 33)}, .ilo = -1, .ihi = 2},
    {.n_in = 2, .in = {TD_SAMPLE_D(TD_BOOL, 33), TD_SAMPLE_D(TD_BOOL, 33)}, .ilo = 0, .ihi = 2},
};

const td_op_def td__op_equal = {
    .name = "equal",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = compare_infer,
    .scalar = equal_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_less = {
    .name = "less",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = compare_infer,
    .scalar = less_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_less_equal = {
    .name = "less_equal",
    .n_in_min = 2,
    .n_in_max = 2,
    .infer = compare_infer,
    .scalar = less_equal_scalar,
    .inplace = 3u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_equal(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_EQUAL, NULL, a, b);
}

td_node *td_less(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_LESS, NULL, a, b);
}

td_node *td_less_equal(td_graph *g, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_LESS_EQUAL, NULL, a, b);
}
