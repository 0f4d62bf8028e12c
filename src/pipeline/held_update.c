/* held_update.c -- the end of a step of elastic ranks of a pipeline (held_step.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fail.h"
#include "optim/optimizer.h"
#include "pipeline/sync_pipeline_impl.h"

static td_status prepare(td__pipeline_rule *p, double lr, td__step_result *out)
{
    float *sum = td__held_step_sum(p->held);
    uint64_t sent;
    double scale;
    TD_TRY(td__step_clip(p->base.engine, sum, &scale));
    TD_TRY(td__held_step_mirror(p->held, &sent));
    TD_TRY(td__pipeline_tell_statistics(p, sum));
    out->times.sent_nbytes += sent;
    out->times.plain_nbytes += sent;
    return td__held_step_prepare(p->held, lr, scale);
}

/* Who gets through the barrier knows that all ranks are prepared. */
static td_status meet(td__pipeline_rule *p, double lr, td__step_result *out)
{
    td_comm *comm = p->base.x.comm;
    if (p->world_calls.n)
        td__planned_calls_begin(&p->world_calls, comm, td_comm_rank(comm),
                                td__step_number(p->base.engine));
    td_status st = prepare(p, lr, out);
    if (!st)
        st = td_barrier(comm, NULL);
    if (st)
        td__planned_calls_leave(&p->world_calls); /* the comm may go */
    return st ? st : td__planned_calls_end(&p->world_calls);
}

td_status td__pipeline_update_held(td__pipeline_rule *p, double lr, td__step_result *out)
{
    const td_optimizer *o = p->base.x.step.optimizer;
    TD_TRY(meet(p, lr, out));
    uint64_t begin = td__clock_ns();
    TD_TRY(td__held_step_apply(p->held));
    out->times.update += 1e-9 * (double)(td__clock_ns() - begin);
    if (td__optim_clips(o))
        out->grad_norm = td_optimizer_grad_norm(o);
    return TD_OK;
}

bool td__pipeline_prepared(const td__sync *s)
{
    return td__held_step_prepared(((const td__pipeline_rule *)s)->held);
}

td_status td__pipeline_forward(td__sync *s)
{
    return td__held_step_apply(((td__pipeline_rule *)s)->held);
}
