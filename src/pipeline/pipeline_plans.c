/* pipeline_plans.c -- the plans that the ranks of a pipeline run, by number of micro-batches.
 *
 * Where ranks share memory, messages are direct (direct.h) if the plan comes to its end so. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "optim/optimizer.h"
#include "pipeline/mirror_ring.h"
#include "pipeline/sync_pipeline_impl.h"
#include "step/work_partition.h"

static void drop_plan(td__pipeline_planned *n)
{
    td__plan_destroy(n->plan);
    td__free(n->slots);
    *n = (td__pipeline_planned){0};
}

/* Does a stage mirror another, and is it one rank? */
static bool has_ring(const td__pipeline_rule *p)
{
    return p->held && p->shape.replicas == 1 && p->mesh.size[TD_AXIS_TENSOR] == 1;
}

static td_status make_plan(const td__pipeline_rule *p, int micro_batches, bool direct,
                           td__pipeline_planned *n)
{
    const td__step_opts *o = &p->base.x.step;
    td__plan_end end = {.ps = o->params,
                        .lane = p->lane,
                        .numbers =
                            td__pipeline_numbers(p->schedule, p->shape.replicas, o->watch != NULL,
                                                 o->micro_batches * o->accumulate),
                        .clips = !o->taker && td__optim_clips(o->optimizer),
                        .shares = p->base.x.config->zero > 0,
                        .params = p->params,
                        .in_order = p->base.x.config->in_order != 0,
                        .held = p->held != NULL,
                        .direct = direct};
    td__plan_ring *ring = NULL;
    if (has_ring(p))
        TD_TRY(td__ring_of(td__shards_ownership(p->base.x.shards), td__comm_host_of(p->base.x.comm),
                           &ring));
    end.ring = ring;
    td_status st = td__pipeline_plan_checked(p->cut, &p->mesh, p->schedule, micro_batches, &end,
                                             p->costs, &n->plan, &n->slots);
    td__ring_free(ring, p->shape.stages); /* of one rank each */
    n->direct = end.direct;
    return st;
}

td_status td__pipeline_plan_for(td__pipeline_rule *p, int micro_batches,
                                const td__pipeline_planned **out)
{
    for (int i = 0; i < TD__PIPELINE_PLANS; i++)
        if (p->plans[i].micro_batches == micro_batches) {
            *out = &p->plans[i];
            if (i == p->next_plan) /* the caller may ask for another one besides */
                p->next_plan = (i + 1) % TD__PIPELINE_PLANS;
            return TD_OK;
        }
    td__pipeline_planned *n = &p->plans[p->next_plan];
    p->next_plan = (p->next_plan + 1) % TD__PIPELINE_PLANS;
    drop_plan(n);
    TD_TRY(make_plan(p, micro_batches, p->may_direct, n));
    if (n->direct && p->direct.base && !td__direct_fits(&p->direct, n->slots)) {
        drop_plan(n);
        TD_TRY(make_plan(p, micro_batches, false, n));
    }
    n->micro_batches = micro_batches;
    *out = n;
    return TD_OK;
}

/* By number of micro-batches: may a replica have so many of a batch? */
static void mark_counts(const td__pipeline_rule *p, bool *count)
{
    const td__step_opts *o = &p->base.x.step;
    for (int batches = 1; batches <= o->accumulate; batches++)
        for (int k = 0; k < batches * p->shape.replicas; k++) {
            td__micro_batch_range own =
                td__rank_cut(o->micro_batches, batches, k / p->shape.replicas,
                             k % p->shape.replicas, p->shape.replicas);
            count[own.end - own.begin] = true;
        }
}

td_status td__pipeline_agree_through(td__pipeline_rule *p, const td__pipeline_planned *n,
                                     int batches)
{
    if (p->agreed[batches])
        return TD_OK;
    p->agreed[batches] = true;
    return td__pipeline_agree(p->base.x.comm, &p->mesh, n->plan);
}

td_status td__pipeline_agree_on_lists(td__pipeline_rule *p, int usual)
{
    const td__step_opts *o = &p->base.x.step;
    const td__pipeline_planned *n;
    bool *count = td__calloc((size_t)o->micro_batches + 1, sizeof *count);
    p->agreed = td__calloc((size_t)o->accumulate + 1, sizeof *p->agreed);
    td_status st = count && p->agreed
                       ? TD_OK
                       : TD_FAIL(TD_ENOMEM, "no memory for %d micro-batches", o->micro_batches);
    if (!st)
        mark_counts(p, count);
    if (!st)
        count[usual] = false;
    for (int k = 1; !st && k <= o->micro_batches; k++) {
        if (count[k])
            st = td__pipeline_plan_for(p, k, &n);
        if (!st && count[k])
            st = td__pipeline_agree(p->base.x.comm, &p->mesh, n->plan);
    }
    td__free(count);
    if (st || p->schedule->delay)
        return st;
    TD_TRY(td__pipeline_plan_through(p, o->micro_batches, o->accumulate, &n));
    return n ? td__pipeline_agree_through(p, n, o->accumulate) : TD_OK;
}

/* What is no value of a micro-batch: the executor walks the plan for those. */
static bool between_stages(const td__plan_op *o)
{
    bool message = o->kind == TD_PLAN_SEND || o->kind == TD_PLAN_RECV;
    return (o->kind == TD_PLAN_COLL && o->axis == TD_AXIS_PIPELINE) ||
           (message && o->phase >= TD_RUN_PHASE_COUNT && o->phase != TD__PLAN_SUMS);
}

/* And of all ranks, where no param changes before all have their sums. */
static bool of_world(const td__plan_op *o)
{
    bool meets = o->kind == TD_PLAN_COLL && o->coll == TD_PLAN_BARRIER;
    return meets || (o->kind != TD_PLAN_RUN && o->phase == TD__PLAN_SUMS);
}

td_status td__pipeline_guard(td__pipeline_rule *p)
{
    td__pipeline_planned n = {0};
    if (p->shape.stages < 2 && !p->held)
        return TD_OK;
    TD_TRY(make_plan(p, 1, false, &n)); /* these are the same for any number of micro-batches */
    td__free(n.slots);
    p->step_plan = n.plan;
    if (has_ring(p) || (p->held && p->shape.replicas > 1))
        TD_TRY(td__planned_calls_init(&p->world_calls, p->step_plan, p->channels.stage, of_world));
    return p->shape.stages < 2 ? TD_OK
                               : td__planned_calls_init(&p->stage_calls, p->step_plan,
                                                        p->channels.stage, between_stages);
}

void td__pipeline_guard_begin(td__pipeline_rule *p, uint64_t step)
{
    const td__step_opts *o = &p->base.x.step;
    int micro_batches = td__step_batches(p->base.engine) * o->micro_batches;
    if (!p->stage_calls.plan)
        return;
    p->stage_calls.numbers = sizeof(double) * td__pipeline_numbers(p->schedule, p->shape.replicas,
                                                                   o->watch != NULL, micro_batches);
    td__planned_calls_begin(&p->stage_calls, p->channels.pipeline, td_comm_rank(p->base.x.comm),
                            step);
}

void td__pipeline_drop_plans(td__pipeline_rule *p)
{
    for (int i = 0; i < TD__PIPELINE_PLANS; i++)
        drop_plan(&p->plans[i]);
}
