/* op_piece_ids.c -- row numbers of a table in a piece of it: rows [first, first + rows).
 *
 *     y = id - first, or -1 where the piece does not have that row
 *
 * Ids below 0, which are padding, have no row anywhere. Ids past the table stay past the last
 * piece, where looking them up gives NaN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_check.h"

static td_status ids_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_piece_ids *at = a->attr;
    TD_TRY(td__want_index(a, 0, "ids"));
    if (at->first < 0 || at->rows < 0)
        return TD_FAIL(TD_EINVAL, "%lld rows from %lld", (long long)at->rows, (long long)at->first);
    out[0] = *a->in_desc[0];
    *n_out = 1;
    return TD_OK;
}

static void ids_ref(const td_op_args *a)
{
    const td_attr_piece_ids *at = a->attr;
    td_dtype t = a->in_desc[0]->dtype;
    for (int64_t i = 0; i < td__count(&a->out_desc[0].shape); i++) {
        int64_t id = td__ref_index(t, a->in[0], i) - at->first;
        id = id < 0 || (id >= at->rows && !at->last) ? -1 : id;
        if (t == TD_I32)
            ((int32_t *)a->out[0])[i] = (int32_t)id;
        else
            ((int64_t *)a->out[0])[i] = id;
    }
}

static const td_attr_piece_ids LOW = {.rows = 5}, HIGH = {.first = 5, .rows = 6, .last = true};
static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD__INTS(33)}, .attr = &LOW, .ilo = -2, .ihi = 13},
    {.n_in = 1, .in = {TD__LONGS(3, 11)}, .attr = &HIGH, .ilo = -2, .ihi = 13},
    {.n_in = 1, .in = {TD__INTS(0)}, .attr = &HIGH, .ihi = 2},
};

const td_op_def td__op_piece_ids = {
    .name = "piece_ids",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_piece_ids),
    .infer = ids_infer,
    .ref = ids_ref,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
