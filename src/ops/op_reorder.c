/* op_reorder.c -- an image tensor moved to another memory order, or a plain copy of any tensor.
 * Its shape and, element by element, its values stay, so the reference kernel, which sees plain
 * tensors, is a copy. Made by rewriting only, after autodiff, so it has no gradient. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status reorder_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    int to = ((const td_attr_reorder *)a->attr)->to;
    if (to < 0 || to >= TD_LAYOUT_COUNT)
        return TD_FAIL(TD_EINVAL, "unknown layout %d", to);
    if (to == TD_LAYOUT_NHWC || a->in_desc[0]->layout == TD_LAYOUT_NHWC)
        TD_TRY(td__need_ndim(a, 0, 4));
    out[0] = *a->in_desc[0];
    out[0].layout = (td_layout)to;
    *n_out = 1;
    return TD_OK;
}

static void reorder_ref(const td_op_args *a)
{
    size_t n = (size_t)td__count(&a->out_desc[0].shape);
    memcpy(a->out[0], a->in[0], n * td__ref_size(a->out_desc[0].dtype));
}

static const td_attr_reorder TO_NHWC = {TD_LAYOUT_NHWC}, TO_PLAIN = {TD_LAYOUT_PLAIN};

/* clang-format off */
#define NHWC(...) {.dtype = TD_F32, .layout = TD_LAYOUT_NHWC, .shape = TD__DIMS(__VA_ARGS__)}
/* clang-format on */
static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &TO_PLAIN},
    {.n_in = 1, .in = {TD_SAMPLE_F(1, 1, 1, 1)}, .attr = &TO_NHWC},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &TO_NHWC},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 33, 9, 17)}, .attr = &TO_NHWC},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 0, 5, 4)}, .attr = &TO_NHWC},
    {.n_in = 1, .in = {NHWC(2, 3, 5, 4)}, .attr = &TO_PLAIN},
    {.n_in = 1, .in = {NHWC(3, 33, 9, 17)}, .attr = &TO_PLAIN},
    {.n_in = 1, .in = {NHWC(2, 3, 5, 4)}, .attr = &TO_NHWC},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_U8, 2, 3, 5, 4)}, .attr = &TO_NHWC, .ilo = 0, .ihi = 9},
};

const td_op_def td__op_reorder = {
    .name = "reorder",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_reorder),
    .infer = reorder_infer,
    .ref = reorder_ref,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
