/* step_world.c -- a step's sum over ranks that share memory (parallel/data_parallel.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "train/step_impl.h"

/* Elements: of a slice that a thread takes; of what is added up at once before the update. (Larger
 * ones are slower: their memory gets in the way of the params' in the first cache.) */
enum { SLICE = 16 << 10, BLOCK = 1 << 10 };

static td_status publish_parts(void *user, int thread)
{
    td__step_engine *e = user;
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;) {
        const td__step_part *p = &e->parts[i];
        td__grad_blend(td__grad_stream(e->blocks), &e->sum, p->begin, p->count);
        td__dp_publish(e->world, &e->total, p->begin, p->count);
    }
    return TD_OK;
}

static td_status sum_slice(void *user, int thread)
{
    td__step_engine *e = user;
    size_t all = td__dp_slice(e->world), begin;
    (void)thread;
    while ((begin = (size_t)atomic_fetch_add(&e->next, 1) * SLICE) < all)
        td__dp_sum(e->world, begin, all - begin < SLICE ? all - begin : SLICE);
    return TD_OK;
}

/* The sum over all ranks and the update in one; statistics go to where update_states wants them. */
td_status td__step_totals(void *user, int thread)
{
    td__step_engine *e = user;
    td_device *d = td__params_device(e->o.params);
    float sum[BLOCK], *mine = td_runner_grads(td__micro_batch_any_runner(e->o.set), NULL);
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;) {
        const td__step_part *p = &e->parts[i];
        for (size_t at = p->begin, end = at + p->count, n; at < end; at += n) {
            n = end - at < BLOCK ? end - at : BLOCK;
            td__dp_total(e->world, &e->total, at, n, sum);
            if (p->update)
                td__optim_apply(e->o.optimizer, sum, at, n);
            else
                TD_TRY(td__mem_write(d, mine + at, sum, n * sizeof *sum));
        }
    }
    return TD_OK;
}

/* May they be one? Then the sum is not there before. */
static bool has_totals(const td__step_engine *e)
{
    td_optimizer *o = e->o.optimizer;
    return td__dp_simple(e->world) && td__optim_sliceable(o) && !td__optim_clips(o);
}

td_status td__step_sum_world(td__step_engine *e)
{
    uint64_t at[5] = {td__clock_ns()};
    int n = 2;
    TD_TRY(td__dp_begin(e->world, e->batches, e->last_rows));
    td__grad_plan(&e->total, false, &e->sum);
    TD_TRY(td__step_in_parts(e, publish_parts));
    td__grad_finish(e->blocks, &e->sum);
    at[1] = td__clock_ns();
    TD_TRY(td__dp_exchange(e->world, &e->total, e->sums, td__step_n_sums(e)));
    at[2] = at[3] = at[4] = td__clock_ns();
    e->totals = has_totals(e);
    if (!e->totals) {
        TD_TRY(td__step_in_parts(e, sum_slice));
        at[3] = td__clock_ns();
        TD_TRY(td__dp_gather(e->world, &e->grads));
        at[4] = td__clock_ns();
        n = 4;
    }
    e->times.reduce = 1e-9 * (double)(at[1] - at[0] + at[3] - at[2]);
    e->times.wait = 1e-9 * (double)(at[2] - at[1] + at[4] - at[3]);
    e->times.sent_nbytes = e->times.plain_nbytes = td__dp_nbytes(e->world);
    for (int i = 0; i < n; i++)
        td__step_span(e, i % 2 ? TD_SPAN_WAIT : TD_SPAN_REDUCE, at[i], at[i + 1], 0, 0);
    return TD_OK;
}
