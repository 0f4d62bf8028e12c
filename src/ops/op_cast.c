/* op_cast.c -- to another element type.
 *
 * Floats are rounded to nearest even; to integers they are cut towards zero and saturated; to bool
 * they say "not zero". The gradient is cast back to the type of x. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status cast_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype to = ((const td_attr_cast *)a->attr)->dtype;
    if ((unsigned)to >= TD_DTYPE_COUNT)
        return TD_FAIL(TD_EINVAL, "unknown dtype %d", (int)to);
    out[0] = *a->in_desc[0];
    out[0].dtype = to;
    *n_out = 1;
    return TD_OK;
}

/* The conversion itself is done where results are stored. */
static double cast_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0];
}

static void cast_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = td_cast(a->g, a->dy[0], a->y->in[0]->out[0].dtype);
}

static const td_attr_cast TO_F32 = {TD_F32}, TO_BF16 = {TD_BF16}, TO_F16 = {TD_F16};
static const td_attr_cast TO_F64 = {TD_F64}, TO_I32 = {TD_I32}, TO_I64 = {TD_I64};
static const td_attr_cast TO_U8 = {TD_U8}, TO_BOOL = {TD_BOOL};

/* Finite differences only where nothing is rounded: to f64. */
/* clang-format off */
#define CASE(D, TO) {.n_in = 1, .in = {D}, .attr = &(TO), .lo = -9, .hi = 9, .no_grad = 1u}
/* clang-format on */
static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &TO_F64},
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &TO_F64},
    CASE(TD_SAMPLE_F(7, 33, 65), TO_BF16),
    CASE(TD_SAMPLE_F(7, 33, 65), TO_F32),
    CASE(TD_SAMPLE_F(2, 3, 5, 4), TO_BF16),
    CASE(TD_SAMPLE_F(4, 0, 5), TO_BF16),
    CASE(TD_SAMPLE_F(33), TO_F16),
    CASE(TD_SAMPLE_F(33), TO_I32),
    CASE(TD_SAMPLE_F(33), TO_I64),
    CASE(TD_SAMPLE_F(33), TO_U8),
    CASE(TD_SAMPLE_F(33), TO_BOOL),
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 5, 7)}, .attr = &TO_F32, .ilo = -300, .ihi = 300},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I64, 5, 7)}, .attr = &TO_I32, .ilo = -300, .ihi = 300},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_U8, 5, 7)}, .attr = &TO_BF16, .ilo = 0, .ihi = 256},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_BOOL, 5, 7)}, .attr = &TO_F32, .ilo = 0, .ihi = 2},
};

const td_op_def td__op_cast = {
    .name = "cast",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_cast),
    .infer = cast_infer,
    .scalar = cast_scalar,
    .grad = cast_grad,
    .inplace = 1u,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_cast(td_graph *g, td_node *x, td_dtype to)
{
    td_attr_cast attr = {to};
    return TD__NODE(g, TD_OP_CAST, &attr, x);
}
