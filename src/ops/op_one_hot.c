/* op_one_hot.c -- class numbers (...) as rows (..., depth) of zeros with a single 1. A number
 * outside [0, depth) gives a row of zeros. Not differentiable. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status one_hot_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_one_hot *o = a->attr;
    td_shape y = a->in_desc[0]->shape;
    TD_TRY(td__need_index(a, 0));
    if (o->depth < 1)
        return TD_FAIL(TD_EINVAL, "depth %lld: at least 1 is needed", (long long)o->depth);
    if ((unsigned)o->dtype >= TD_DTYPE_COUNT)
        return TD_FAIL(TD_EINVAL, "unknown dtype %d", (int)o->dtype);
    if (y.ndim == TD_MAX_DIMS)
        return TD_FAIL(TD_EINVAL, "ids have %d axes already, one more does not fit", y.ndim);
    y.dim[y.ndim++] = o->depth;
    TD_TRY(td__need_valid_shape(&y));
    out[0] = td__desc(o->dtype, y);
    *n_out = 1;
    return TD_OK;
}

static void one_hot_ref(const td_op_args *a)
{
    const td_attr_one_hot *o = a->attr;
    const td_desc *ids = a->in_desc[0];
    int64_t n = td__count(&ids->shape);
    memset(a->out[0], 0, (size_t)(n * o->depth) * td__ref_size(o->dtype));
    for (int64_t i = 0; i < n; i++) {
        int64_t id = td__ref_index(ids->dtype, a->in[0], i);
        if (id >= 0 && id < o->depth)
            td__ref_set(o->dtype, a->out[0], i * o->depth + id, 1);
    }
}

static const td_attr_one_hot TEN = {.depth = 10, .dtype = TD_F32};
static const td_attr_one_hot THREE = {.depth = 3, .dtype = TD_BF16};
static const td_attr_one_hot FLAGS = {.depth = 5, .dtype = TD_BOOL};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {{.dtype = TD_I32}}, .attr = &TEN, .ilo = 0, .ihi = 10},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 7)}, .attr = &TEN, .ilo = -2, .ihi = 12},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I64, 7, 13)}, .attr = &THREE, .ilo = 0, .ihi = 3},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I64, 0)}, .attr = &TEN, .ilo = 0, .ihi = 10},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I32, 33)}, .attr = &FLAGS, .ilo = 0, .ihi = 5},
};

const td_op_def td__op_one_hot = {
    .name = "one_hot",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_one_hot),
    .infer = one_hot_infer,
    .ref = one_hot_ref,
    .bf16 = TD_BF16_KEEP,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_one_hot(td_graph *g, td_node *ids, int64_t depth, td_dtype dtype)
{
    td_attr_one_hot attr;
    memset(&attr, 0, sizeof attr);
    attr.depth = depth;
    attr.dtype = dtype;
    return TD__NODE(g, TD_OP_ONE_HOT, &attr, ids);
}
