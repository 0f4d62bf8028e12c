/* op_part.c -- a further output of a node with several, as a node: a view that costs nothing.
 *
 * The rule below sees only output 0 of its input; td__part() puts in the desc of the output asked
 * for. Autodiff looks through parts to the node they belong to, so there is no gradient rule. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status part_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    int index = ((const td_attr_part *)a->attr)->index;
    if (index < 0 || index >= TD_MAX_OUT)
        return TD_FAIL(TD_EINVAL, "output %d: there are at most %d", index, TD_MAX_OUT);
    out[0] = *a->in_desc[0];
    *n_out = 1;
    return TD_OK;
}

const td_op_def td__op_part = {
    .name = "part",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_part),
    .infer = part_infer,
    .is_view = true,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_ANY,
};
