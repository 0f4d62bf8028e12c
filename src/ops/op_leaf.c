/* op_leaf.c -- input, param, state, constant: where values enter a graph. Nothing is computed; a
 * program gives them memory. They are made by td_input, td_param, td_state and td_constant. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status leaf_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_leaf *leaf = a->attr;
    if ((unsigned)leaf->dtype >= TD_DTYPE_COUNT)
        return TD_FAIL(TD_EINVAL, "unknown dtype %d", (int)leaf->dtype);
    TD_TRY(td__need_valid_shape(&leaf->shape));
    out[0] = td__desc(leaf->dtype, leaf->shape);
    out[0].layout = (td_layout)leaf->layout;
    *n_out = 1;
    return TD_OK;
}

/* Params and states are kept, summed and updated in f32 blocks. */
static td_status block_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_leaf *leaf = a->attr;
    if (leaf->dtype != TD_F32)
        return TD_FAIL(TD_EINVAL, "dtype %s, but it must be f32", td_dtype_name(leaf->dtype));
    if ((unsigned)leaf->init.kind >= TD_INIT_KIND_COUNT)
        return TD_FAIL(TD_EINVAL, "unknown initialiser %d", (int)leaf->init.kind);
    return leaf_infer(a, out, n_out);
}

static td_status constant_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_leaf *leaf = a->attr;
    TD_TRY(leaf_infer(a, out, n_out));
    size_t nbytes = (size_t)td__count(&leaf->shape) * td_dtype_size(leaf->dtype);
    if (leaf->data && leaf->nbytes != nbytes)
        return TD_FAIL(TD_EINVAL, "%zu bytes of data for a value of %zu", leaf->nbytes, nbytes);
    return TD_OK;
}

const td_op_def td__op_input = {
    .name = "input",
    .attr_size = sizeof(td_attr_leaf),
    .infer = leaf_infer,
    .bf16 = TD_BF16_KEEP,
};

const td_op_def td__op_param = {
    .name = "param",
    .attr_size = sizeof(td_attr_leaf),
    .infer = block_infer,
    .bf16 = TD_BF16_KEEP,
};

const td_op_def td__op_state = {
    .name = "state",
    .attr_size = sizeof(td_attr_leaf),
    .infer = block_infer,
    .bf16 = TD_BF16_KEEP,
};

const td_op_def td__op_constant = {
    .name = "constant",
    .attr_size = sizeof(td_attr_leaf),
    .infer = constant_infer,
    .bf16 = TD_BF16_KEEP,
};
