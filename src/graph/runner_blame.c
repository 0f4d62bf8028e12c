/* runner_blame.c -- a loss is not finite: where did it begin? */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/fail.h"
#include "base/half.h"
#include "graph/runner_impl.h"

static bool numbers_finite(const td_desc *d, const void *data)
{
    int64_t n = td__desc_count(d);
    for (int64_t i = 0; i < n; i++) {
        double v = 0;
        switch (d->dtype) {
        case TD_F32: v = (double)((const float *)data)[i]; break;
        case TD_F64: v = ((const double *)data)[i]; break;
        case TD_BF16: v = (double)td__bf16_to_f32(((const td_bf16 *)data)[i]); break;
        case TD_F16: v = (double)td__f16_to_f32(((const td_f16 *)data)[i]); break;
        default: return true;
        }
        if (!isfinite(v))
            return false;
    }
    return true;
}

static td_status all_finite(const td_runner *r, const td_desc *d, const void *at, bool *finite)
{
    td__mapping map;
    TD_TRY(td__mem_map(r->p->backend->device, at, td__desc_bytes(d), TD_MAP_READ, &map));
    *finite = numbers_finite(d, map.at);
    td__mem_map_drop(&map);
    return TD_OK;
}

/* Is n, or what it is a view of, a leaf with a bad number in it? */
static td_status bad_leaf(const td_runner *r, const td_node *n, const td_node **leaf)
{
    int k;
    bool finite = true;
    n = td__view_base(n, &k);
    if (td__is_leaf(n))
        TD_TRY(all_finite(r, &n->out[0], td__runner_address(r, n, 0), &finite));
    *leaf = finite ? NULL : n;
    return TD_OK;
}

static td_status blame_leaf(const td_runner *r, float loss, const td_node *leaf)
{
    bool data = leaf->op == TD_OP_INPUT;
    return TD_FAIL(TD_EINVAL,
                   "the loss is %g at step %u, micro-batch %u: %s '%s' holds NaN or Inf; %s",
                   (double)loss, r->ctx.step, r->ctx.micro_batch, td__op(leaf->op)->name,
                   leaf->name, data ? "clean the data" : TD_DIVERGED_HINT);
}

/* A loss went bad: run once more, looking at every value as soon as it is made, and name the first
 * that is not finite, or the leaf that it was made from. (A leaf alone proves nothing: masks hold
 * -Inf.) The second run has the same bits as the first, so it finds the culprit; but not where
 * ranks have pieces of values, which others would have to run again too. */
td_status td__runner_blame(td_runner *r, const td_node *loss_node, float loss)
{
    const td_program *p = r->p;
    const td_node *leaf;
    for (int i = 0; i < p->n_steps; i++)
        if (td__runner_meets(p->steps[i].node))
            return TD_FAIL(TD_EINVAL, "the loss is %g at step %u, micro-batch %u; %s", (double)loss,
                           r->ctx.step, r->ctx.micro_batch, TD_DIVERGED_HINT);
    for (int i = 0; i < p->n_steps; i++) {
        const td_node *n = p->steps[i].node;
        td__runner_launch(r, &r->steps[i].call, false);
        TD_TRY(td__stream_sync(r->stream));
        for (int k = 0; k < n->n_out; k++) {
            bool finite;
            TD_TRY(all_finite(r, &n->out[k], r->steps[i].call.out[k], &finite));
            if (finite)
                continue;
            for (int j = 0; j < n->n_in; j++) {
                TD_TRY(bad_leaf(r, n->in[j], &leaf));
                if (leaf)
                    return blame_leaf(r, loss, leaf);
            }
            return TD_FAIL(TD_EINVAL,
                           "the loss is %g at step %u, micro-batch %u: the first NaN or "
                           "Inf is in '%s' (%s); %s",
                           (double)loss, r->ctx.step, r->ctx.micro_batch, n->name,
                           td__op(n->op)->name, TD_DIVERGED_HINT);
        }
    }
    TD_TRY(bad_leaf(r, loss_node, &leaf));
    if (leaf)
        return blame_leaf(r, loss, leaf);
    return TD_FAIL(TD_EINVAL, "the loss is %g at step %u, micro-batch %u; %s", (double)loss,
                   r->ctx.step, r->ctx.micro_batch, TD_DIVERGED_HINT);
}
