/* sync_pipeline.c -- the sync rule of a pipeline: ranks have parts of the model, a micro-batch
 * passes from one to the next, and the replicas of a part add up their gradients as another rule
 * does it for whole models.
 *
 * A rank has the params that its chunks update, with the optimizer's states of them, in shards
 * (stage_params.h); evaluation, checkpoints and the digest put them together. Tied weights go to
 * the stages that read them when a step begins. What is not in shards, params with row-sparse
 * gradients and states of the model, is handed out before all of it is wanted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "coll/nccl/nccl.h"
#include "graph/params.h"
#include "graph/runner.h"
#include "optim/optimizer.h"
#include "parallel/sync.h"
#include "pipeline/stage_params.h"
#include "pipeline/sync_pipeline_impl.h"
#include "step/work_partition.h"

/* ---- What it asks for ------------------------------------------------------------------------ */

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    out->no_partials = true;
    out->sharded = out->sharded_params = true;
    out->threads = 1;
    const td__schedule_def *d = td__pipeline_schedule(c);
    out->apart = d && d->delay;
    td__pipeline_shape shape;
    td_status st = td__pipeline_shape_of(c, w->ranks, w->elastic, &shape);
    out->replicas = st ? 1 : shape.replicas;
    if (st || shape.mesh.size[TD_AXIS_TENSOR] < 2)
        return;
    out->parts = shape.replicas;
    out->part = td__rank_mesh_coordinate(&shape.mesh, w->rank, TD_AXIS_DATA);
}

/* ---- Making ---------------------------------------------------------------------------------- */

td__tensor_walk td__pipeline_walk(const td__pipeline_rule *p, td__param_range r)
{
    return (td__tensor_walk){.ps = p->base.x.step.params,
                             .lanes = p->mesh.size[TD_AXIS_TENSOR],
                             .lane = p->lane,
                             .rest = r};
}

bool td__pipeline_shares_states(const td__pipeline_rule *p)
{
    return p->base.x.config->zero > 0 && p->channels.data;
}

/* A td__step_stage's: with parallel.zero, which of the replicas' it is. */
static bool updates(void *user, size_t element)
{
    const td__pipeline_rule *p = user;
    const td__ownership *m = td__shards_ownership(p->base.x.shards);
    int rank = td_comm_rank(p->base.x.comm);
    if (element >= td__ownership_params(m))
        return true;
    bool whole = td__ownership_sole(m, td__ownership_bucket(m, element)) >= 0;
    return td__ownership_owner(m, element) == (whole ? rank - p->channels.peer : rank);
}

static td_status sum_squares(void *user, double *squares, size_t n)
{
    td__pipeline_rule *p = user;
    const td_params *ps = p->base.x.step.params;
    TD_ASSERT((int)n == p->params, "%zu squares, and %d are planned", n, p->params);
    TD_TRY(td_allreduce(p->channels.pipeline, squares, squares, n, TD_F64, TD_REDUCE_SUM, NULL));
    if (!td__pipeline_shares_states(p))
        return TD_OK;
    for (int i = 0; i < (int)n; i++) /* all replicas have summed up the row-sparse ones */
        if (td_params_info(ps, i).sparse && p->channels.replica)
            squares[i] = 0;
    return td_allreduce(p->channels.data, squares, squares, n, TD_F64, TD_REDUCE_SUM, NULL);
}

/* All chunks fold statistics in from the block of the first. */
static float *statistics(void *user)
{
    td__pipeline_rule *p = user;
    float *block = NULL;
    for (int c = 0; c < p->chunks; c++) {
        td_runner *r = p->own[c] ? td__chunks_any_runner(p->set, c) : NULL;
        if (r && !block)
            block = td_runner_grads(r, NULL);
        else if (r)
            td__runner_set_grads(r, block);
    }
    return block;
}

static void fold(void *user)
{
    td__pipeline_rule *p = user;
    for (int c = 0; c < p->chunks; c++) {
        td_runner *r = p->own[c] ? td__chunks_any_runner(p->set, c) : NULL;
        if (r) {
            td_runner_update_states(r);
            td__runner_set_grads(r, NULL);
        }
    }
}

static td_status make_held(td__pipeline_rule *p)
{
    const td__sync_ctx *x = &p->base.x;
    if (!td__stage_holds_steps(x->elastic, x->step.params))
        return TD_OK;
    return td__held_step_create(&(td__held_opts){.comm = x->comm,
                                                 .shards = x->shards,
                                                 .params = x->step.params,
                                                 .optimizer = x->step.optimizer,
                                                 .program = x->step.program,
                                                 .sends = p->shape.replicas == 1},
                                &p->held);
}

/* The rule of the replicas of a part, on an engine that updates this rank's params alone. */
static td_status make_inner(td__pipeline_rule *p)
{
    td__sync_ctx x = p->base.x;
    p->inner_config = td__stage_inner_config(p->base.x.config);
    p->stage = (td__step_stage){.user = p,
                                .own = p->ranges.at,
                                .n_own = p->ranges.n,
                                .updates = td__pipeline_shares_states(p) ? updates : NULL,
                                .turn = x.config->in_order ? td__pipeline_wait_turn : NULL,
                                .sum_squares = sum_squares,
                                .statistics = statistics,
                                .fold = fold};
    x.config = &p->inner_config;
    x.comm = p->channels.data;
    if (p->held)
        x.step.taker = td__held_step_taker(p->held);
    x.step.stage = &p->stage;
    x.step.cuts = p->peers.cuts.n ? &p->peers.cuts : NULL;
    x.step.bounds = NULL;
    TD_TRY(td__sync_create(&x, &p->inner));
    td__nccl_hear(p->base.x.comm, x.comm);
    td__step_engine_destroy(p->base.engine);
    p->base.engine = p->inner->engine;
    return TD_OK;
}

/* Where a byte can be sent without waiting for its receiver. */
static td_status may_be_direct(const td__pipeline_rule *p, bool *out)
{
    const td__sync_ctx *x = &p->base.x;
    td_device *device = td__params_device(x->step.params);
    const char *transport = td_comm_transport(x->comm);
    *out = (!strcmp(transport, "shm") || !strcmp(transport, "inproc")) &&
           td__comm_shares(x->comm) &&
           td__pipeline_may_be_direct(&p->shape, p->cut, td__device_host_reads(device), x->rows,
                                      x->step.micro_batches, x->batch);
    return *out ? td__direct_possible(x->comm, device, out) : TD_OK;
}

/* The memory of direct messages; *all: every rank of the world has it. */
static td_status open_direct(td__pipeline_rule *p, const int *slots, bool *all)
{
    const td__sync_ctx *x = &p->base.x;
    TD_TRY(td__direct_open(&p->direct, p->channels.pipeline, td__params_device(x->step.params),
                           p->cut, &p->shape, slots));
    int32_t have = p->direct.base != NULL;
    TD_TRY(td_allreduce(x->comm, &have, &have, 1, TD_I32, TD_REDUCE_MIN, NULL));
    *all = have;
    return TD_OK;
}

/* By what all ranks plan: the numbers of rank 0. */
static td_status agree_on_costs(td__pipeline_rule *p)
{
    size_t n = 3 * (size_t)p->chunks;
    p->costs = td__calloc(n, sizeof *p->costs);
    if (!p->costs)
        return TD_FAIL(TD_ENOMEM, "no memory for %d chunks", p->chunks);
    td__pipeline_costs(p->cut, p->costs);
    return td_broadcast(p->base.x.comm, p->costs, n, TD_F64, 0, NULL);
}

/* Of the first replica, which has the most: a batch has some. */
static int usual_micro_batches(const td__pipeline_rule *p)
{
    td__micro_batch_range own =
        td__rank_micro_batches(p->base.x.step.micro_batches, 0, p->shape.replicas);
    return own.end - own.begin > 0 ? own.end - own.begin : 1;
}

/* The usual plan, and the channels that it needs. Memory for direct messages that could be had by
 * the page may not be there for all of them: then there is a plan without. */
static td_status open_channels(td__pipeline_rule *p)
{
    const td__pipeline_planned *usual;
    for (bool there = false;;) {
        TD_TRY(td__pipeline_plan_for(p, usual_micro_batches(p), &usual));
        TD_TRY(td__pipeline_agree(p->base.x.comm, &p->mesh, usual->plan));
        TD_TRY(td__channels_open(&p->channels, p->base.x.comm, &p->mesh, usual->plan));
        p->may_direct = usual->direct;
        if (usual->direct)
            TD_TRY(open_direct(p, usual->slots, &there));
        if (there || !usual->direct)
            return TD_OK;
        TD_LOG(INFO, TRAIN, "no memory for direct messages of stages: they are sent");
        TD_TRY(td__direct_leave(&p->direct));
        td__direct_close(&p->direct);
        td__channels_close(&p->channels);
        td__pipeline_drop_plans(p);
        p->may_direct = false;
    }
}

static td_status make_parts(td__pipeline_rule *p, const td__pipeline_shape *shape)
{
    const td__step_opts *o = &p->base.x.step;
    int64_t rows = p->base.x.rows;
    int stage = td__rank_mesh_coordinate(&p->mesh, td_comm_rank(p->base.x.comm), TD_AXIS_PIPELINE);
    p->own = td__calloc((size_t)p->chunks, sizeof *p->own);
    p->stacks = td__calloc((size_t)p->chunks, sizeof *p->stacks);
    p->stacked = td__calloc((size_t)p->chunks * TD__PIPELINE_STACK, sizeof *p->stacked);
    if (!p->own || !p->stacks || !p->stacked)
        return TD_FAIL(TD_ENOMEM, "no memory for %d chunks", p->chunks);
    for (int c = 0; c < p->chunks; c++) {
        p->stacks[c] =
            (td__grad_stack){.room = TD__PIPELINE_STACK, .at = p->stacked + c * TD__PIPELINE_STACK};
        p->own[c] = td__schedule_stage(p->schedule, shape->stages, c) == stage;
    }
    td__tensor_walk like = td__pipeline_walk(p, (td__param_range){0});
    TD_TRY(td__stage_ranges_init(&p->ranges, p->cut, p->own, &like));
    for (int c = 0; c < p->chunks; c++) {
        p->stacks[c].limit = p->ranges.grads + p->ranges.first[c];
        p->stacks[c].n_limit = p->ranges.first[c + 1] - p->ranges.first[c];
    }
    TD_TRY(may_be_direct(p, &p->may_direct));
    TD_TRY(agree_on_costs(p));
    TD_TRY(open_channels(p));
    TD_TRY(td__pipeline_agree_on_lists(p, usual_micro_batches(p)));
    TD_TRY(td__pipeline_guard(p));
    TD_TRY(td__tensor_peers_open(&p->peers, p->base.x.comm, p->mesh.size[TD_AXIS_TENSOR], o->cuts));
    return td__chunks_create(&(td__chunks_opts){.set = o->set,
                                                .params = o->params,
                                                .usual = rows,
                                                .shape = &p->shape,
                                                .own = p->own,
                                                .slots = o->micro_batches,
                                                .peers = p->peers.comm,
                                                .direct = p->direct.base ? &p->direct : NULL},
                             &p->set);
}

/* Also a replica that has run nothing yet folds statistics in. */
static td_status make_runners(td__pipeline_rule *p)
{
    td_runner *r;
    for (int c = 0; c < p->chunks; c++)
        if (p->own[c])
            TD_TRY(td__chunks_runner(p->set, p->base.x.rows, c, 0, &r));
    return TD_OK;
}

static td_status make(td__sync *s)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    td__pipeline_world w = {td_comm_rank(s->x.comm), td_comm_size(s->x.comm), s->x.elastic};
    TD_TRY(td__pipeline_fit(s->x.config, &w, s->x.step.set, s->x.rows, &p->shape, &p->cut));
    p->mesh = p->shape.mesh;
    p->lane = td__rank_mesh_coordinate(&p->mesh, td_comm_rank(s->x.comm), TD_AXIS_TENSOR);
    p->schedule = p->shape.schedule;
    p->chunks = p->shape.chunks;
    p->params = td_params_count(s->x.step.params);
    TD_TRY(make_held(p));
    TD_TRY(make_parts(p, &p->shape));
    TD_TRY(make_inner(p));
    TD_TRY(make_runners(p));
    TD_TRY(td__measure_create(p->chunks, p->channels.stage, s->x.step.spans, &p->measure));
    bool flows = p->schedule->delay != NULL;
    TD_TRY(td__executor_create(&(td__executor_opts){.chunks = p->set,
                                                    .cut = p->cut,
                                                    .channels = &p->channels,
                                                    .set = s->x.step.set,
                                                    .blocks = td__step_grads(s->engine),
                                                    .stacks = p->stacks,
                                                    .measure = p->measure,
                                                    .update = flows ? td__flow_update : NULL,
                                                    .user = p},
                               &p->executor));
    return flows ? td__flow_create(p) : TD_OK;
}

static td_status leave(td__sync *s)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    TD_TRY(td__sync_leave(p->inner));
    return td__direct_leave(&p->direct);
}

static void clear_stacks(td__pipeline_rule *p)
{
    for (int c = 0; p->stacks && p->inner && c < p->chunks; c++)
        td__grad_clear(td__step_grads(p->inner->engine), &p->stacks[c]);
}

static void shed(td__sync *s)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    clear_stacks(p);
    if (p->lists && p->shape.stages > 1)
        TD_LOG(DEBUG, TRAIN, "%llu of %llu lists of operations with values in one copy",
               (unsigned long long)p->direct_lists, (unsigned long long)p->lists);
    if (p->flow)
        td__flow_abort(p->flow, "the run was left");
    td__flow_destroy(p->flow);
    td__executor_destroy(p->executor);
    td__measure_destroy(p->measure);
    td__chunks_destroy(p->set);
    if (p->inner) {
        s->engine = NULL; /* it is the inner rule's */
        td__sync_destroy(p->inner);
    }
    td__direct_close(&p->direct);
    td__tensor_peers_close(&p->peers);
    td__planned_calls_fini(&p->stage_calls);
    td__planned_calls_fini(&p->world_calls);
    td__plan_destroy(p->step_plan);
    td__channels_close(&p->channels);
    td__pipeline_drop_plans(p);
    td__cut_destroy(p->cut);
    td__free(p->own);
    td__free(p->agreed);
    td__free(p->costs);
    td__free(p->stacks);
    td__free(p->stacked);
    td__stage_ranges_fini(&p->ranges);
    *p = (td__pipeline_rule){.base = p->base, .held = p->held};
}

static void destroy(td__sync *s)
{
    shed(s);
    td__held_step_destroy(((td__pipeline_rule *)s)->held);
}

/* ---- Meetings -------------------------------------------------------------------------------- */

/* The stages of a replica have run the same micro-batches. */
static td_status make_report(td__pipeline_rule *p)
{
    const td__pipeline_planned *n;
    if (!p->ran || p->shape.stages < 2)
        return TD_OK;
    TD_TRY(td__pipeline_plan_for(p, p->ran, &n));
    p->report = (td__pipeline_report){.stages = p->mesh.size[TD_AXIS_PIPELINE],
                                      .replicas = p->mesh.size[TD_AXIS_DATA],
                                      .chunks = p->chunks,
                                      .micro_batches = p->ran};
    snprintf(p->report.schedule, sizeof p->report.schedule, "%s", p->schedule->name);
    return td__measure_report(p->measure, p->channels.pipeline, n->plan, &p->report);
}

static void report(td__sync *s, td__train_result *out)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    if (p->report.stages)
        out->pipeline = &p->report;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    if (why == TD_MEET_BEGIN) /* ranks may have come with what they update alone */
        return s->x.elastic ? td__pipeline_gather(s) : TD_OK;
    if (p->flow)
        TD_TRY(td__flow_empty(p->flow));
    for (int c = 0; c < p->chunks; c++)
        for (int i = 0; i < p->cut->pieces[c].n_params; i++)
            TD_TRY(td__pipeline_tell_range(p, c, p->cut->pieces[c].params[i]));
    TD_TRY(td__tensor_peers_fill(&p->peers, s->x.step.params, s->x.step.optimizer, p->ranges.at,
                                 p->ranges.n));
    return why == TD_MEET_END ? make_report(p) : TD_OK;
}

/* ---- A step ---------------------------------------------------------------------------------- */

static td_status begin(td__sync *s, const td__sync_place *at)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    if (p->flow)
        return td__flow_begin(p->flow, at);
    clear_stacks(p);
    p->wait = 0;
    p->sent = 0;
    td__pipeline_guard_begin(p, at->step);
    if (p->held)
        td__held_step_begin(p->held);
    TD_TRY(td__pipeline_tell_shared(p));
    return td__sync_inner_begin(p->inner, at);
}

static td_status batch(td__sync *s, const td__batch *b)
{
    td__flow *flow = ((td__pipeline_rule *)s)->flow;
    return flow ? td__flow_batch(flow, b)
                : td__step_batch_by(s->engine, b, td__pipeline_run_batch, s);
}

/* What the chunks of this rank have added up, as the partials of a rank with the whole model: the
 * stacks of all chunks have the same sub-trees, and the first one's blocks take what is of the
 * others. */
void td__pipeline_gather_partials(td__pipeline_rule *p)
{
    td__grad_pool *blocks = td__step_grads(p->base.engine);
    td__grad_stack *total = td__step_partials(p->base.engine);
    int first = 0;
    while (!p->own[first])
        first++;
    for (int c = first + 1; c < p->chunks; c++) {
        if (!p->own[c])
            continue;
        TD_ASSERT(p->stacks[c].n == p->stacks[first].n, "%d and %d partials", p->stacks[c].n,
                  p->stacks[first].n);
        for (int i = 0; i < p->stacks[c].n; i++)
            td__pipeline_merge(blocks, p->stacks[c].limit, p->stacks[c].n_limit,
                               &p->stacks[first].at[i], &p->stacks[c].at[i]);
        td__grad_clear(blocks, &p->stacks[c]);
    }
    TD_ASSERT(p->stacks[first].n <= total->room, "%d partials", p->stacks[first].n);
    memcpy(total->at, p->stacks[first].at, (size_t)p->stacks[first].n * sizeof *total->at);
    total->n = p->stacks[first].n;
    p->stacks[first].n = 0;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    size_t n;
    double *numbers = td__step_numbers(s->engine, &n);
    if (p->flow)
        return td__flow_step(p->flow, lr, out);
    td__pipeline_gather_partials(p);
    TD_TRY(td__sync_hand_in(p->inner));
    TD_TRY(td__tensor_peers_sum(&p->peers, numbers, TD_REQUESTS));
    TD_TRY(td_allreduce(p->channels.pipeline, numbers, numbers, n, TD_F64, TD_REDUCE_SUM, NULL));
    TD_TRY(td__sync_inner_step(p->inner, lr, out));
    if (p->held)
        TD_TRY(td__pipeline_update_held(p, lr, out));
    TD_TRY(td__pipeline_pass_turn(p));
    TD_TRY(td__planned_calls_end(&p->stage_calls));
    out->seconds = NULL; /* were added up over the stages of a replica */
    out->times.wait += p->wait;
    out->times.compute -= p->wait;
    out->times.sent_nbytes += p->sent;
    out->times.plain_nbytes += p->sent;
    return TD_OK;
}

static void abandon(td__sync *s, const char *why)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    if (p->inner && p->inner->ops->abandon)
        p->inner->ops->abandon(p->inner, why);
    td__planned_calls_leave(&p->stage_calls);
    td__channels_abort(&p->channels, why);
    td__tensor_peers_abort(&p->peers, why);
    if (p->flow)
        td__flow_abort(p->flow, why);
}

/* Other ranks may have all of theirs, and wait for this one in a step. */
static td_status create(td__sync *s)
{
    char why[512];
    td_status st = make(s);
    if (!st)
        return TD_OK;
    snprintf(why, sizeof why, "%s", td_last_error());
    abandon(s, why);
    return TD_FAIL(st, "%s", why);
}

#define ALIKE                                                                                  \
    .size = sizeof(td__pipeline_rule), .sample = "2", .traits = traits,                        \
    .need = td__stage_need_most, .hold = td__stage_shards, .map = td__stage_map,               \
    .inside = td__stage_inside, .create = create, .leave = leave, .destroy = destroy,          \
    .begin = begin, .batch = batch, .step = step, .gather = td__pipeline_gather, .meet = meet, \
    .prepared = td__pipeline_prepared, .forward = td__pipeline_forward, .shed = shed,          \
    .report = report, .abandon = abandon

const td__sync_ops td__sync_pipeline = {
    .name = "pipeline",
    .help = "ranks have parts of the model, micro-batches pass from one to the next",
    .promise = "the bits of one rank",
    .key = "parallel.pipeline",
    .asked = td__pipeline_asked,
    .fits = td__pipeline_fits,
    .check = td__pipeline_check,
    ALIKE,
};

/* A pipeline of one stage, whose ranks have pieces of each wide layer. */
const td__sync_ops td__sync_tensor = {
    .name = "tensor",
    .help = "ranks have parts of each wide layer and exchange activations",
    .promise = "the bits of one rank with the same parallel.tensor_pieces",
    .key = "parallel.tensor",
    .asked = td__tensor_asked,
    .fits = td__tensor_fits,
    .check = td__tensor_check,
    ALIKE,
};
