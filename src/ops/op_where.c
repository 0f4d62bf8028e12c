/* op_where.c -- a where cond is true, else b, with broadcasting.
 *
 *     da = dy where cond, else 0     db = dy where not cond, else 0 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status where_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__need_dtype(a, 0, TD_BOOL));
    TD_TRY(td__need_same_dtype(a, 1, 2));
    out[0].dtype = a->in_desc[1]->dtype;
    *n_out = 1;
    return td__infer_broadcast(a, &out[0]);
}

static double where_scalar(const double *x, const double *num)
{
    (void)num;
    return x[0] != 0 ? x[1] : x[2];
}

static void where_grad(const td_grad_args *r)
{
    td_graph *g = r->g;
    td_node *cond = r->y->in[0], *dy = r->dy[0];
    if (r->need[1])
        r->dx[1] = td__sum_to(g, td_where(g, cond, dy, td__scalar_like(g, dy, 0)), r->y->in[1]);
    if (r->need[2])
        r->dx[2] = td__sum_to(g, td_where(g, cond, td__scalar_like(g, dy, 0), dy), r->y->in[2]);
}

/* clang-format off */
#define CASE(C, A, B) {.n_in = 3, .in = {C, A, B}, .ilo = 0, .ihi = 2}
/* clang-format on */
#define COND(...) TD_SAMPLE_D(TD_BOOL, __VA_ARGS__)
static const td_op_sample SAMPLES[] = {
    CASE({.dtype = TD_BOOL}, TD_SAMPLE_F0, TD_SAMPLE_F0),
    CASE(COND(7, 13), TD_SAMPLE_F(7, 13), TD_SAMPLE_F(7, 13)),
    CASE(COND(5, 1), TD_SAMPLE_F(7), TD_SAMPLE_F(5, 7)),
    CASE(COND(7), TD_SAMPLE_F(5, 7), TD_SAMPLE_F0),
    CASE(COND(3, 0), TD_SAMPLE_F(3, 0), TD_SAMPLE_F(1, 1)),
    CASE(COND(2, 3, 5, 4), TD_SAMPLE_F(2, 3, 5, 4), TD_SAMPLE_F(1, 3, 1, 1)),
    CASE(COND(7, 33, 65), TD_SAMPLE_F(7, 33, 65), TD_SAMPLE_F(7, 33, 65)),
    CASE(COND(9), TD_SAMPLE_D(TD_I64, 9), TD_SAMPLE_D(TD_I64, 9)),
};

const td_op_def td__op_where = {
    .name = "where",
    .n_in_min = 3,
    .n_in_max = 3,
    .infer = where_infer,
    .scalar = where_scalar,
    .grad = where_grad,
    .inplace = 6u,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_where(td_graph *g, td_node *cond, td_node *a, td_node *b)
{
    return TD__NODE(g, TD_OP_WHERE, NULL, cond, a, b);
}
