/* step_update.c -- the end of a step: what is left of the micro-batch tree, and the update. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "train/step_impl.h"

enum { FEW_SLICES = 8 };
enum { WAIT_SHOWN_NS = 2000 }; /* shorter ones are not worth a place in a trace */

void td__step_span(td__step_engine *e, td__span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                   int lane, int id)
{
    td__span_log_add(e->o.spans, &(td__span){.begin_ns = begin_ns,
                                             .end_ns = end_ns,
                                             .step = e->step,
                                             .kind = (uint16_t)kind,
                                             .lane = (uint16_t)lane,
                                             .id = id});
}

td_status td__step_sum_parts(void *user, int thread)
{
    td__step_engine *e = user;
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;) {
        const td__step_part *p = &e->parts[i];
        td__grad_blend(td__grad_stream(e->blocks), &e->sum, p->begin, p->count);
        if (e->update && p->update)
            td__optim_apply(e->o.optimizer, e->grads + p->begin, p->begin, p->count);
    }
    return TD_OK;
}

td_status td__step_in_some_parts(td__step_engine *e, td__pool_fn *fn, int begin, int end)
{
    atomic_store(&e->next, begin);
    e->end = end;
    return end - begin < FEW_SLICES ? fn(e, 0) : td__pool_run(e->o.pool, fn, e);
}

td_status td__step_in_parts(td__step_engine *e, td__pool_fn *fn)
{
    return td__step_in_some_parts(e, fn, 0, e->n_parts);
}

static td_sparse_grad sparse_grad(const td__step_engine *e, int k)
{
    if (e->buckets)
        return td__bucket_sum_sparse(e->buckets, k);
    return e->world ? td__dp_sparse(e->world, k) : td__grad_sparse(e->blocks, &e->total.at[0], k);
}

static td_status square_params(void *user, int thread)
{
    td__step_engine *e = user;
    int n = td_params_count(e->o.params);
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < n;) {
        td_param_info info = td_params_info(e->o.params, i);
        if (!info.is_state && !info.sparse)
            e->squares[i] =
                td__optim_param_squares(e->o.optimizer, e->grads + info.offset, info.count);
    }
    return TD_OK;
}

static td_status clip(td__step_engine *e, double *scale)
{
    td__tree_sum sum = {.n = 0};
    TD_TRY(td__step_in_parts(e, square_params));
    for (int i = 0; i < td_params_count(e->o.params); i++) {
        td_param_info info = td_params_info(e->o.params, i);
        if (!info.is_state && !info.sparse)
            td__tree_add(&sum, e->squares[i]);
    }
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++) {
        td_sparse_grad sg = sparse_grad(e, k);
        td__tree_add(&sum, td__optim_param_squares(e->o.optimizer, sg.values,
                                                   (size_t)(sg.n_rows * sg.width)));
    }
    return td__optim_clip(e->o.optimizer, td__tree_total(&sum), scale);
}

/* Running averages: a runner folds in the statistics that lie in its own gradient block. */
static td_status update_states(td__step_engine *e, td_runner *r)
{
    td_device *d = td__params_device(e->o.params);
    float *mine = td_runner_grads(r, NULL);
    if (!e->totals && mine != e->grads)
        for (int i = 0; i < e->n_parts; i++)
            if (!e->parts[i].update)
                TD_TRY(td__mem_write(d, mine + e->parts[i].begin, e->grads + e->parts[i].begin,
                                     e->parts[i].count * sizeof *mine));
    td_runner_update_states(r);
    return TD_OK;
}

static td_status wait_bucket(td__step_engine *e, int k)
{
    uint64_t begin = td__clock_ns();
    TD_TRY(td__bucket_sum_wait(e->buckets, k));
    uint64_t end = td__clock_ns();
    e->times.wait += 1e-9 * (double)(end - begin);
    if (end - begin > WAIT_SHOWN_NS)
        td__step_span(e, TD_SPAN_WAIT, begin, end, 0, k);
    return TD_OK;
}

/* Update parts as soon as all of their elements have arrived, which they do front to back. */
static td_status update_arriving(td__step_engine *e)
{
    int from = 0, n = td__bucket_sum_count(e->buckets);
    e->update = true;
    for (int k = 0; k < n; k++) {
        td__bucket b = td__bucket_sum_bucket(e->buckets, k);
        int to = from;
        while (to < e->n_parts && e->parts[to].begin + e->parts[to].count <= b.begin + b.count)
            to++;
        TD_TRY(wait_bucket(e, k));
        TD_TRY(td__step_in_some_parts(e, td__step_sum_parts, from, to));
        from = to;
    }
    return wait_bucket(e, n);
}

td_status td__step_update(td__step_engine *e, double lr)
{
    td_optimizer *o = e->o.optimizer;
    bool clips = td__optim_clips(o),
         arriving = e->buckets && !clips && !e->o.update_late && !e->o.watch;
    double scale = 1;

    if (e->buckets && !arriving)
        TD_TRY(wait_bucket(e, td__bucket_sum_count(e->buckets)));
    if (e->o.watch)
        TD_TRY(e->o.watch->check(e->o.watch->user, e->sums + TD_REQUESTS + e->size));
    if (!clips)
        TD_TRY(td__optim_begin(o, lr, 1));
    if (!e->world && !e->buckets) {
        e->update = !clips;
        TD_TRY(td__step_in_parts(e, td__step_sum_parts));
        td__grad_finish(e->blocks, &e->sum);
    }
    if (clips) {
        TD_TRY(clip(e, &scale));
        TD_TRY(td__optim_begin(o, lr, scale));
    }
    if (arriving) {
        TD_TRY(update_arriving(e));
    } else if (e->totals) {
        TD_TRY(td__step_in_parts(e, td__step_totals));
    } else if (clips || e->world || e->buckets) {
        e->update = true;
        TD_TRY(td__step_in_parts(e, td__step_sum_parts)); /* nothing left to blend */
    }
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++) {
        td_sparse_grad sg = sparse_grad(e, k);
        td__optim_apply_rows(o, &sg);
    }
    TD_TRY(update_states(e, td__micro_batch_any_runner(e->o.set)));
    return td__optim_end(o);
}
