/* op_top_k.c -- the k largest values of each row (last axis), largest first, and where they are
 * (i32); of equal values the one with the smaller number comes first. Not differentiable. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status top_k_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_shape y = a->in_desc[0]->shape;
    int k = ((const td_attr_topk *)a->attr)->k;
    TD_TRY(td__need_float(a, 0));
    if (y.ndim < 1)
        return TD_FAIL(TD_EINVAL, "one number has no largest %d", k);
    int64_t size = y.dim[y.ndim - 1];
    if (k < 1 || k > size || size > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "k %d is not between 1 and the %lld elements of a row", k,
                       (long long)size);
    y.dim[y.ndim - 1] = k;
    out[0] = td__desc(a->in_desc[0]->dtype, y);
    out[1] = td__desc(TD_I32, y);
    *n_out = 2;
    return TD_OK;
}

static void top_k_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    const double *x = a->in[0]; /* (rows, size) */
    double *value = a->out[0];  /* (rows, k) */
    int32_t *where = a->out[1]; /* (rows, k) */
    int64_t size = s->dim[s->ndim - 1], rows = td__count_range(s, 0, s->ndim - 1);
    int k = ((const td_attr_topk *)a->attr)->k;
    for (int64_t r = 0; r < rows; r++, x += size, value += k, where += k) {
        int found = 0; /* insertion into a sorted list of at most k */
        for (int64_t i = 0; i < size; i++) {
            int at = found;
            while (at > 0 && x[i] > value[at - 1])
                at--;
            if (at == k)
                continue;
            found += found < k;
            for (int j = found - 1; j > at; j--) {
                value[j] = value[j - 1];
                where[j] = where[j - 1];
            }
            value[at] = x[i];
            where[at] = (int32_t)i;
        }
    }
}

static const td_attr_topk TOP1 = {1}, TOP5 = {5}, TOP13 = {13};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(1)}, .attr = &TOP1},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &TOP5},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &TOP13},
    {.n_in = 1, .in = {TD_SAMPLE_F(0, 13)}, .attr = &TOP5},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &TOP5, .lo = 1, .hi = 1}, /* all equal */
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &TOP5},
};

const td_op_def td__op_top_k = {
    .name = "top_k",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_topk),
    .infer = top_k_infer,
    .ref = top_k_ref,
    .bf16 = TD_BF16_KEEP,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_top_k(td_graph *g, td_node *x, int k, td_node **indices)
{
    td_attr_topk attr = {k};
    td_node *values = TD__NODE(g, TD_OP_TOP_K, &attr, x);
    if (indices)
        *indices = td__part(g, values, 1);
    return values;
}
