/* op_accuracy.c -- the share of rows whose target class is among the k largest logits.
 *
 *    a row counts if fewer than k classes come before its target: those with a larger logit, and
 *    those with an equal one and a smaller number
 *
 * A target outside [0, C) is never right. With an ignored target, the share is that of the other
 * rows; of none it is 0. Not differentiable. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status accuracy_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *x = &a->in_desc[0]->shape;
    int k = ((const td_attr_accuracy *)a->attr)->k;
    TD_TRY(td__need_float(a, 0));
    TD_TRY(td__need_index(a, 1));
    if (x->ndim < 1)
        return TD_FAIL(TD_EINVAL, "logits have no axis of classes");
    td_shape rows = *x;
    rows.ndim--;
    rows.dim[rows.ndim] = 0;
    TD_TRY(td__need_shape(a, 1, &rows));
    if (k < 1 || k > x->dim[x->ndim - 1])
        return TD_FAIL(TD_EINVAL, "k %d is not between 1 and the %lld classes", k,
                       (long long)x->dim[x->ndim - 1]);
    if (td__count(&rows) == 0)
        return TD_FAIL(TD_EINVAL, "the accuracy of 0 rows");
    out[0] = td__desc(TD_F32, TD_SCALAR);
    *n_out = 1;
    return TD_OK;
}

static void accuracy_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    const double *x = a->in[0]; /* (rows, classes) */
    int64_t classes = s->dim[s->ndim - 1], rows = td__count_range(s, 0, s->ndim - 1), hits = 0;
    const td_attr_accuracy *at = a->attr;
    int64_t counted = 0;
    for (int64_t r = 0; r < rows; r++, x += classes) {
        int64_t target = td__ref_index(a->in_desc[1]->dtype, a->in[1], r), before = 0;
        bool ignored = at->use_ignore && target == at->ignore;
        counted += !ignored;
        if (ignored || target < 0 || target >= classes)
            continue;
        for (int64_t c = 0; c < classes; c++)
            before += x[c] > x[target] || (x[c] == x[target] && c < target);
        hits += before < at->k;
    }
    *(double *)a->out[0] = counted ? (double)hits / (double)counted : 0;
}

static const td_attr_accuracy TOP1 = {.k = 1}, TOP5 = {.k = 5},
                              LEFT_OUT = {.k = 1, .use_ignore = true, .ignore = 2},
                              ALL_OUT = {.k = 1, .use_ignore = true, .ignore = 0};

/* clang-format off */
#define CASE(X, T, K) {.n_in = 2, .in = {X, T}, .attr = &(K), .ilo = 0, .ihi = 10}
/* clang-format on */
static const td_op_sample SAMPLES[] = {
    CASE(TD_SAMPLE_F(10), {.dtype = TD_I32}, TOP1),
    CASE(TD_SAMPLE_F(33, 10), TD_SAMPLE_D(TD_I32, 33), TOP1),
    CASE(TD_SAMPLE_F(33, 10), TD_SAMPLE_D(TD_I64, 33), TOP5),
    CASE(TD_SAMPLE_F(7, 13, 9), TD_SAMPLE_D(TD_I32, 7, 13), TOP1), /* some targets are outside */
    CASE(TD_SAMPLE_F(33, 10), TD_SAMPLE_D(TD_I32, 33), LEFT_OUT),
    {.n_in = 2,
     .in = {TD_SAMPLE_F(5, 3), TD_SAMPLE_D(TD_I64, 5)},
     .attr = &ALL_OUT,
     .ilo = 0,
     .ihi = 1}, /* no row counts */
    {.n_in = 2,
     .in = {TD_SAMPLE_F(33, 10), TD_SAMPLE_D(TD_I32, 33)},
     .attr = &TOP5,
     .ilo = 0,
     .ihi = 10,
     .lo = 1,
     .hi = 1}, /* all equal */
};

const td_op_def td__op_accuracy = {
    .name = "accuracy",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_accuracy),
    .infer = accuracy_infer,
    .ref = accuracy_ref,
    .bf16 = TD_BF16_KEEP,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_accuracy(td_graph *g, td_node *logits, td_node *target, int k)
{
    return td_accuracy_of(g, logits, target, k, NULL);
}

td_node *td_accuracy_of(td_graph *g, td_node *logits, td_node *target, int k, const int64_t *ignore)
{
    td_attr_accuracy attr;

    memset(&attr, 0, sizeof attr);
    attr.k = k;
    attr.use_ignore = ignore;
    attr.ignore = ignore ? *ignore : 0;
    return TD__NODE(g, TD_OP_ACCURACY, &attr, logits, target);
}
