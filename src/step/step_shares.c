/* step_shares.c -- steps whose sum over ranks a rule makes from whole gradients: it is given this
 * rank's share, and brings those of others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "step/step_impl.h"

size_t td__step_floats(const td__step_engine *e)
{
    return td__grad_dense(e->blocks);
}

int td__step_lists(const td__step_engine *e)
{
    return td__grad_sparse_count(e->blocks);
}

void td__step_widths(const td__step_engine *e, int64_t *out)
{
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++)
        out[k] = td__grad_sparse_width(e->blocks, k);
}

static td_status blend_ops(void *user, int thread)
{
    td__step_engine *e = user;
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;)
        td__grad_blend_ops(td__grad_stream(e->blocks), e->ops, e->n_ops, e->parts[i].begin,
                           e->parts[i].count);
    return TD_OK;
}

td_status td__step_own_share(td__step_engine *e, td__grad_share *out)
{
    td__tree_sum sum = {.n = 0};
    td__grad_plan(&e->total, true, &e->sum);
    e->update = false;
    TD_TRY(td__step_in_parts(e, td__step_sum_parts));
    td__grad_finish(e->blocks, &e->sum);
    for (int i = 0; i < e->batches * e->o.micro_batches; i++)
        td__tree_add(&sum, e->losses[i]);
    *out = (td__grad_share){
        .weight = td__step_own_weight(e), .loss = td__tree_total(&sum), .lists = e->lists};
    td__partial *own = e->total.n ? &e->total.at[0] : NULL;
    if (!own || !own->dense)
        return TD_OK;
    if (own->weight != 1) { /* a single micro-batch, still in its runner */
        e->ops[0] = (td__blend_op){own->dense, own->dense, own->weight, 0};
        e->n_ops = 1;
        TD_TRY(td__step_in_parts(e, blend_ops));
        own->weight = 1;
    }
    out->grads = own->dense;
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++)
        e->lists[k] = td__grad_sparse(e->blocks, own, k);
    return TD_OK;
}

double td__step_compute(const td__step_engine *e)
{
    return e->times.compute;
}

/* The own partial, or zeros in its place. */
static td_status hold_own(td__step_engine *e, td__partial **out)
{
    td__partial *own = *out = &e->total.at[0];
    if (e->total.n && own->dense)
        return TD_OK;
    td__grad_clear(e->blocks, &e->total);
    *own = (td__partial){.weight = 1};
    TD_TRY(td__grad_hold(e->blocks, own));
    e->total.n = 1;
    td__mapping map;
    TD_TRY(td__mem_map(td__params_device(e->o.params), own->dense,
                       td__grad_dense(e->blocks) * sizeof *own->dense, TD_MAP_WRITE, &map));
    memset(map.at, 0, map.nbytes);
    TD_TRY(td__mem_unmap(&map));
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++)
        td__grad_no_rows(own, k);
    return TD_OK;
}

/* The lists of all shares into the own one. */
static td_status merge_lists(td__step_engine *e, td__partial *own, const td__grad_share *others,
                             int n, float scale)
{
    int lists = td__grad_sparse_count(e->blocks);
    if (!lists)
        return TD_OK;
    td__grad_scale_rows(e->blocks, own, scale);
    for (int i = 0; i < n; i++) {
        td__partial from = {.weight = 1};
        TD_TRY(td__grad_hold(e->blocks, &from));
        for (int k = 0; k < lists; k++)
            td__grad_set_rows(e->blocks, &from, k, others[i].lists[k].n_rows,
                              others[i].lists[k].rows, others[i].lists[k].values);
        td__grad_scale_rows(e->blocks, &from, scale);
        e->sum.n_ops = 1;
        e->sum.dst_block[0] = own->block;
        e->sum.src_block[0] = from.block;
        td__grad_finish(e->blocks, &e->sum);
    }
    return TD_OK;
}

td_status td__step_apply(td__step_engine *e, const td__grad_share *others, int n, double lr,
                         td__step_result *out)
{
    uint64_t begin = td__clock_ns();
    td__tree_sum own_loss = {.n = 0};
    td__partial *own;
    double weight = td__step_own_weight(e), all = e->o.weights ? 1 : (double)e->rows;
    for (int i = 0; i < e->batches * e->o.micro_batches; i++)
        td__tree_add(&own_loss, e->losses[i]);
    double loss = td__tree_total(&own_loss);
    for (int i = 0; i < n; i++) {
        weight += others[i].weight;
        loss += others[i].loss;
    }
    TD_ASSERT(n < e->o.size, "%d shares", n + 1);
    double scale = weight > 0 ? all / weight : 0;
    TD_TRY(hold_own(e, &own));
    e->n_ops = 0;
    if (n == 0 && scale != 1)
        e->ops[e->n_ops++] = (td__blend_op){own->dense, own->dense, (float)scale, 0};
    for (int i = 0; i < n; i++)
        e->ops[e->n_ops++] =
            (td__blend_op){own->dense, others[i].grads, i ? 1 : (float)scale, (float)scale};
    TD_TRY(td__step_in_parts(e, blend_ops));
    TD_TRY(merge_lists(e, own, others, n, (float)scale));
    TD_TRY(td__step_update_with(e, lr, own->dense));
    td__grad_clear(e->blocks, &e->total);
    e->times.update = td__step_seconds_since(begin);
    *out = (td__step_result){.loss = loss * scale, .times = e->times};
    out->grad_norm = td__optim_clips(e->o.optimizer) ? td_optimizer_grad_norm(e->o.optimizer) : -1;
    return TD_OK;
}
