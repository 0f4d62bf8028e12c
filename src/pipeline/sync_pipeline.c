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
#include "graph/params.h"
#include "graph/runner.h"
#include "optim/optimizer.h"
#include "parallel/sync.h"
#include "pipeline/executor.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage_params.h"
#include "step/work_partition.h"

/* Partials of a range of micro-batches: one per level on each side, and one more. */
enum { STACK = 80 };
enum { MOST_PLANS = 4 }; /* kept: a pipeline may have different numbers of micro-batches */

/* For a number of micro-batches in a batch. */
typedef struct planned {
    int micro_batches; /* 0: none */
    td__plan *plan;
    int *slots; /* by chunk */
} planned;

typedef struct pipeline {
    td__sync base;
    td__sync *inner; /* how replicas of a part add up gradients; its engine is this rule's */
    td__sync_config inner_config;
    td__pipeline_shape shape;
    td__rank_mesh mesh;
    const td__schedule_def *schedule;
    int chunks;
    bool *own;    /* (chunks) */
    td__cut *cut; /* of micro-batches of the usual size */
    td__chunks *set;
    td__channels channels;
    td__executor *executor;
    td__grad_stack *stacks;          /* by chunk */
    td__partial *stacked;            /* (chunks, STACK) theirs */
    td__param_range *ranges, *grads; /* (n_ranges) of params; where their gradients lie */
    int n_ranges, *first;            /* first: (chunks + 1) of them of each chunk */
    td__step_stage stage;
    planned plans[MOST_PLANS];
    int next_plan; /* the one that gives way */
    double wait;
    uint64_t sent;
    td__measure *measure;
    td__pipeline_report report;
    int ran; /* micro-batches of the last batch; 0: none */
} pipeline;

/* ---- What it asks for ------------------------------------------------------------------------ */

static bool asked(const td__sync_config *c)
{
    return c->mesh.size[TD_AXIS_PIPELINE] > 1;
}

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    return asked(c) && w->ranks > 1;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    td__pipeline_shape shape;
    const td__compressor_ops *compressor =
        c->compressor ? td__compressor_find(c->compressor) : NULL;
    if (c->zero > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.zero %d: stages of a pipeline have their params whole; use 1, "
                       "which has replicas share the optimizer's states",
                       c->zero);
    if (compressor && (compressor->takes_momentum || compressor->whole))
        return TD_FAIL(TD_EINVAL,
                       "%s needs all gradients in one place, and replicas of a stage have part of "
                       "them; use bf16, f16 or powersgd",
                       c->compressor);
    if (c->backup)
        return TD_FAIL(TD_EINVAL, "parallel.pipeline: not with parallel.backup");
    if (w->elastic)
        return TD_FAIL(TD_EINVAL, "parallel.pipeline: not on elastic ranks yet");
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with parallel.pipeline");
    if (j->threads > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.pipeline: ranks run one compute thread each, not %d; start more "
                       "ranks instead",
                       j->threads);
    return w->starts || w->ranks > 1 ? td__pipeline_shape_of(c, w->ranks, &shape) : TD_OK;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    out->no_partials = true;
    out->sharded = out->sharded_params = true;
    out->threads = 1;
    out->replicas = w->ranks / c->mesh.size[TD_AXIS_PIPELINE];
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static td_status plan_for(pipeline *p, int micro_batches, const planned **out)
{
    for (int i = 0; i < MOST_PLANS; i++)
        if (p->plans[i].micro_batches == micro_batches) {
            *out = &p->plans[i];
            return TD_OK;
        }
    planned *n = &p->plans[p->next_plan];
    p->next_plan = (p->next_plan + 1) % MOST_PLANS;
    td__plan_destroy(n->plan);
    td__free(n->slots);
    *n = (planned){0};
    TD_TRY(td__pipeline_plan_of(p->cut, &p->mesh, p->schedule, micro_batches,
                                td__optim_clips(p->base.x.step.optimizer), &n->plan, &n->slots));
    TD_TRY(td__plan_check(n->plan));
    n->micro_batches = micro_batches;
    *out = n;
    return TD_OK;
}

/* All ranks follow the same plan, or none begins. */
static td_status compare_plans(pipeline *p, const td__plan *plan)
{
    char mine[65], first[65];
    TD_TRY(td__plan_digest(plan, mine));
    memcpy(first, mine, sizeof first);
    TD_TRY(td_broadcast(p->base.x.comm, first, sizeof first, TD_U8, 0, NULL));
    if (strcmp(first, mine) != 0)
        return TD_FAIL(TD_EMISMATCH,
                       "rank %d has another communication plan than rank 0: the ranks have "
                       "different job files or versions",
                       td_comm_rank(p->base.x.comm));
    return TD_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* The ranges of the params that the chunks of this rank update, and where their gradients lie:
 * params, row-sparse ones and states lie apart there, so a range ends where one of these begins. */
static td_status find_ranges(pipeline *p)
{
    const td_params *ps = p->base.x.step.params;
    const size_t ends[] = {td__params_dense(ps), td_params_trainable(ps), SIZE_MAX};
    int n = 0;
    for (int c = 0; c < p->chunks; c++)
        n += p->own[c] ? 3 * p->cut->pieces[c].n_params : 0;
    p->ranges = td__calloc((size_t)n + 1, sizeof *p->ranges);
    p->grads = td__calloc((size_t)n + 1, sizeof *p->grads);
    p->first = td__calloc((size_t)p->chunks + 1, sizeof *p->first);
    if (!p->ranges || !p->grads || !p->first)
        return TD_FAIL(TD_ENOMEM, "no memory for the params of a stage");
    for (int c = 0; c < p->chunks; c++) {
        for (int i = 0; p->own[c] && i < p->cut->pieces[c].n_params; i++) {
            td__param_range r = p->cut->pieces[c].params[i];
            for (int k = 0; k < 3; k++) {
                size_t end = r.end < ends[k] ? r.end : ends[k];
                if (r.begin < end)
                    p->ranges[p->n_ranges++] = (td__param_range){r.begin, end};
                r.begin = r.begin < end ? end : r.begin;
            }
        }
        p->first[c + 1] = p->n_ranges;
    }
    for (int i = 0; i < p->n_ranges; i++)
        p->grads[i] = td__pipeline_grads_of(ps, p->ranges[i]);
    return TD_OK;
}

static bool shares_states(const pipeline *p)
{
    return p->base.x.config->zero > 0 && p->channels.data;
}

/* A td__step_stage's: with parallel.zero, which of the replicas' it is. */
static bool updates(void *user, size_t element)
{
    const pipeline *p = user;
    const td__ownership *m = td__shards_ownership(p->base.x.shards);
    return element >= td__ownership_params(m) ||
           td__ownership_owner(m, element) == td_comm_rank(p->base.x.comm);
}

static td_status sum_squares(void *user, double *squares, size_t n)
{
    pipeline *p = user;
    const td_params *ps = p->base.x.step.params;
    TD_TRY(td_allreduce(p->channels.pipeline, squares, squares, n, TD_F64, TD_REDUCE_SUM, NULL));
    if (!shares_states(p))
        return TD_OK;
    for (int i = 0; i < (int)n; i++) /* all replicas have summed up the row-sparse ones */
        if (td_params_info(ps, i).sparse && p->channels.replica)
            squares[i] = 0;
    return td_allreduce(p->channels.data, squares, squares, n, TD_F64, TD_REDUCE_SUM, NULL);
}

/* All chunks fold statistics in from the block of the first. */
static float *statistics(void *user)
{
    pipeline *p = user;
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
    pipeline *p = user;
    for (int c = 0; c < p->chunks; c++) {
        td_runner *r = p->own[c] ? td__chunks_any_runner(p->set, c) : NULL;
        if (r) {
            td_runner_update_states(r);
            td__runner_set_grads(r, NULL);
        }
    }
}

/* The rule of the replicas of a part, on an engine that updates this rank's params alone. */
static td_status make_inner(pipeline *p)
{
    td__sync_ctx x = p->base.x;
    p->inner_config = *p->base.x.config;
    p->inner_config.mesh = (td__rank_mesh){0};
    p->inner_config.rule = NULL;
    p->inner_config.zero = 0;
    p->stage = (td__step_stage){.user = p,
                                .own = p->ranges,
                                .n_own = p->n_ranges,
                                .updates = shares_states(p) ? updates : NULL,
                                .sum_squares = sum_squares,
                                .statistics = statistics,
                                .fold = fold};
    x.config = &p->inner_config;
    x.comm = p->channels.data;
    x.step.stage = &p->stage;
    x.step.bounds = NULL;
    TD_TRY(td__sync_create(&x, &p->inner));
    td__step_engine_destroy(p->base.engine);
    p->base.engine = p->inner->engine;
    td__grad_pool_limit(td__step_grads(p->base.engine), p->grads, p->n_ranges);
    return TD_OK;
}

static td_status make_parts(pipeline *p, const td__pipeline_shape *shape)
{
    const td__step_opts *o = &p->base.x.step;
    const planned *usual, *whole;
    int64_t rows = p->base.x.rows;
    int most = 1,
        stage = td__rank_mesh_coordinate(&p->mesh, td_comm_rank(p->base.x.comm), TD_AXIS_PIPELINE);
    p->own = td__calloc((size_t)p->chunks, sizeof *p->own);
    p->stacks = td__calloc((size_t)p->chunks, sizeof *p->stacks);
    p->stacked = td__calloc((size_t)p->chunks * STACK, sizeof *p->stacked);
    if (!p->own || !p->stacks || !p->stacked)
        return TD_FAIL(TD_ENOMEM, "no memory for %d chunks", p->chunks);
    for (int c = 0; c < p->chunks; c++) {
        p->stacks[c] = (td__grad_stack){.room = STACK, .at = p->stacked + c * STACK};
        p->own[c] = td__schedule_stage(p->schedule, shape->stages, c) == stage;
    }
    TD_TRY(td__model_cut(td__micro_batch_options(o->set), rows, rows, &p->shape, &p->cut));
    TD_TRY(find_ranges(p));
    td__micro_batch_range own = td__rank_micro_batches(o->micro_batches, 0, shape->replicas);
    TD_TRY(plan_for(p, own.end - own.begin > 0 ? own.end - own.begin : 1, &usual));
    TD_TRY(compare_plans(p, usual->plan));
    TD_TRY(td__channels_open(&p->channels, p->base.x.comm, &p->mesh, usual->plan));
    TD_TRY(plan_for(p, o->micro_batches, &whole)); /* with accumulation, a replica may have these */
    for (int c = 0; c < p->chunks; c++)
        most = whole->slots[c] > most ? whole->slots[c] : most;
    return td__chunks_create(&(td__chunks_opts){.set = o->set,
                                                .params = o->params,
                                                .usual = rows,
                                                .shape = &p->shape,
                                                .own = p->own,
                                                .slots = most},
                             &p->set);
}

/* Also a replica that has run nothing yet folds statistics in. */
static td_status make_runners(pipeline *p)
{
    td_runner *r;
    for (int c = 0; c < p->chunks; c++)
        if (p->own[c])
            TD_TRY(td__chunks_runner(p->set, p->base.x.rows, c, 0, &r));
    return TD_OK;
}

static td_status create(td__sync *s)
{
    pipeline *p = (pipeline *)s;
    TD_TRY(td__pipeline_shape_of(s->x.config, td_comm_size(s->x.comm), &p->shape));
    p->mesh = p->shape.mesh;
    p->schedule = p->shape.schedule;
    p->chunks = p->shape.chunks;
    TD_TRY(make_parts(p, &p->shape));
    TD_TRY(make_inner(p));
    TD_TRY(make_runners(p));
    TD_TRY(td__measure_create(p->chunks, p->channels.stage, s->x.step.spans, &p->measure));
    return td__executor_create(&(td__executor_opts){.chunks = p->set,
                                                    .channels = &p->channels,
                                                    .set = s->x.step.set,
                                                    .blocks = td__step_grads(s->engine),
                                                    .stacks = p->stacks,
                                                    .measure = p->measure},
                               &p->executor);
}

static void clear_stacks(pipeline *p)
{
    for (int c = 0; p->stacks && p->inner && c < p->chunks; c++)
        td__grad_clear(td__step_grads(p->inner->engine), &p->stacks[c]);
}

static void destroy(td__sync *s)
{
    pipeline *p = (pipeline *)s;
    clear_stacks(p);
    td__executor_destroy(p->executor);
    td__measure_destroy(p->measure);
    td__chunks_destroy(p->set);
    if (p->inner) {
        s->engine = NULL; /* it is the inner rule's */
        td__sync_destroy(p->inner);
    }
    td__channels_close(&p->channels);
    for (int i = 0; i < MOST_PLANS; i++) {
        td__plan_destroy(p->plans[i].plan);
        td__free(p->plans[i].slots);
    }
    td__cut_destroy(p->cut);
    td__free(p->own);
    td__free(p->stacks);
    td__free(p->stacked);
    td__free(p->ranges);
    td__free(p->grads);
    td__free(p->first);
}

/* ---- Params of other stages ------------------------------------------------------------------ */

static int stage_of(const pipeline *p, int chunk)
{
    return td__schedule_stage(p->schedule, p->mesh.size[TD_AXIS_PIPELINE], chunk);
}

/* `count` elements from the stage that updates chunk `owner`: to that of chunk `reader`, or to all
 * (-1). */
static td_status tell(pipeline *p, int owner, int reader, float *at, size_t count)
{
    td_comm *comm = p->channels.pipeline;
    int from = stage_of(p, owner), to = reader < 0 ? -1 : stage_of(p, reader);
    td__mapping map;
    if (from == to || (to >= 0 && p->channels.stage != from && p->channels.stage != to))
        return TD_OK;
    TD_TRY(td__mem_map(td__params_device(p->base.x.step.params), at, count * sizeof *at,
                       TD_MAP_BOTH, &map));
    td_status st = to < 0 ? td_broadcast(comm, map.at, count, TD_F32, from, NULL)
                   : p->channels.stage == from ? td_send(comm, map.at, count, TD_F32, to, NULL)
                                               : td_recv(comm, map.at, count, TD_F32, from, NULL);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

/* Params that a chunk reads and another updates, to the stage of the reader. */
static td_status tell_shared(pipeline *p)
{
    float *block = td_params_block(p->base.x.step.params, NULL);
    bool any = false;
    for (int c = 0; c < p->chunks; c++)
        for (int i = 0; i < p->cut->pieces[c].n_shared; i++) {
            const td__param_range *r = &p->cut->pieces[c].shared[i];
            for (int owner = 0; owner < p->chunks; owner++)
                for (int k = 0; k < p->cut->pieces[owner].n_params; k++) {
                    td__param_range own = p->cut->pieces[owner].params[k];
                    size_t begin = own.begin > r->begin ? own.begin : r->begin;
                    size_t end = own.end < r->end ? own.end : r->end;
                    if (begin < end)
                        TD_TRY(tell(p, owner, c, block + begin, end - begin));
                    any = any || begin < end;
                }
        }
    if (any)
        td_params_touch(p->base.x.step.params);
    return TD_OK;
}

/* After a step, with parallel.zero: params that another replica of the stage has updated. */
static td_status gather(td__sync *s)
{
    pipeline *p = (pipeline *)s;
    const td__ownership *m = td__shards_ownership(s->x.shards);
    float *block = td_params_block(s->x.step.params, NULL);
    for (int b = 0; shares_states(p) && b < m->params; b++) {
        int owner = td__ownership_sole(m, b);
        td__mapping map;
        if (td__rank_mesh_coordinate(&p->mesh, owner, TD_AXIS_PIPELINE) != p->channels.stage)
            continue;
        TD_TRY(td__mem_map(td__params_device(s->x.step.params), block + m->begin[b],
                           (m->begin[b + 1] - m->begin[b]) * sizeof *block, TD_MAP_BOTH, &map));
        td_status st = td_broadcast(p->channels.data, map.at, m->begin[b + 1] - m->begin[b], TD_F32,
                                    td__rank_mesh_coordinate(&p->mesh, owner, TD_AXIS_DATA), NULL);
        if (st) {
            td__mem_map_drop(&map);
            return st;
        }
        TD_TRY(td__mem_unmap(&map));
    }
    td_params_touch(s->x.step.params);
    return TD_OK;
}

/* What the owner of a range has that is not in shards, to all: params with row-sparse gradients and
 * the optimizer's states of them, states of the model. */
static td_status tell_range(pipeline *p, int c, td__param_range r)
{
    td_optimizer *o = p->base.x.step.optimizer;
    const td_params *ps = p->base.x.step.params;
    size_t first, held, trainable = td_params_trainable(ps), dense = td__params_dense(ps);
    size_t begin = r.begin > dense ? r.begin : dense, end = r.end < trainable ? r.end : trainable;
    float *state;
    if (begin >= r.end)
        return TD_OK;
    TD_TRY(tell(p, c, -1, td_params_block(p->base.x.step.params, NULL) + begin, r.end - begin));
    for (int k = 0; k < td_optimizer_state_count(o); k++)
        for (size_t at = begin; at < end; at = first + held) {
            held = td__optim_state_part(o, k, at, end, &first, &state);
            if (!held)
                break;
            TD_TRY(tell(p, c, -1, state, held));
        }
    return TD_OK;
}

/* The stages of a replica have run the same micro-batches. */
static td_status make_report(pipeline *p)
{
    const planned *n;
    if (!p->ran)
        return TD_OK;
    TD_TRY(plan_for(p, p->ran, &n));
    p->report = (td__pipeline_report){.stages = p->mesh.size[TD_AXIS_PIPELINE],
                                      .replicas = p->mesh.size[TD_AXIS_DATA],
                                      .chunks = p->chunks,
                                      .micro_batches = p->ran};
    snprintf(p->report.schedule, sizeof p->report.schedule, "%s", p->schedule->name);
    return td__measure_report(p->measure, p->channels.pipeline, n->plan, &p->report);
}

static void report(td__sync *s, td__train_result *out)
{
    pipeline *p = (pipeline *)s;
    if (p->report.stages)
        out->pipeline = &p->report;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    pipeline *p = (pipeline *)s;
    if (why == TD_MEET_BEGIN)
        return TD_OK;
    for (int c = 0; c < p->chunks; c++)
        for (int i = 0; i < p->cut->pieces[c].n_params; i++)
            TD_TRY(tell_range(p, c, p->cut->pieces[c].params[i]));
    td_params_touch(s->x.step.params);
    return why == TD_MEET_END ? make_report(p) : TD_OK;
}

/* ---- A step ---------------------------------------------------------------------------------- */

static td_status begin(td__sync *s, const td__sync_place *at)
{
    pipeline *p = (pipeline *)s;
    clear_stacks(p);
    p->wait = 0;
    p->sent = 0;
    TD_TRY(tell_shared(p));
    return p->inner->ops->begin ? p->inner->ops->begin(p->inner, at) : TD_OK;
}

/* A td__step_batch_fn. */
static td_status run_batch(void *user, const td__batch *batch, int number, double *losses)
{
    pipeline *p = user;
    const td__step_opts *o = td__step_opts_of(p->base.engine);
    td__micro_batch_range own =
        td__rank_cut(o->micro_batches, td__step_batches(p->base.engine), number, o->rank, o->size);
    const planned *n;
    if (own.begin == own.end)
        return TD_OK;
    TD_TRY(plan_for(p, own.end - own.begin, &n));
    p->ran = own.end - own.begin;
    return td__executor_run(p->executor,
                            &(td__executor_batch){.plan = n->plan,
                                                  .slots = n->slots,
                                                  .batch = batch,
                                                  .micro_batches = o->micro_batches,
                                                  .begin = own.begin,
                                                  .end = own.end,
                                                  .number = number,
                                                  .engine = p->base.engine,
                                                  .losses = losses},
                            &p->wait, &p->sent);
}

static td_status batch(td__sync *s, const td__batch *b)
{
    return td__step_batch_by(s->engine, b, run_batch, s);
}

/* What the chunks of this rank have added up, as the partials of a rank with the whole model: the
 * stacks of all chunks have the same sub-trees, and the first one's blocks take what is of the
 * others. */
static void gather_partials(pipeline *p)
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
            td__pipeline_merge(blocks, p->grads + p->first[c], p->first[c + 1] - p->first[c],
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
    pipeline *p = (pipeline *)s;
    size_t n;
    double *numbers = td__step_numbers(s->engine, &n);
    gather_partials(p);
    TD_TRY(td__step_hand_in(s->engine));
    TD_TRY(td_allreduce(p->channels.pipeline, numbers, numbers, n, TD_F64, TD_REDUCE_SUM, NULL));
    TD_TRY(p->inner->ops->step(p->inner, lr, out));
    out->seconds = NULL; /* were added up over the stages of a replica */
    out->times.wait += p->wait;
    out->times.compute -= p->wait;
    out->times.sent_nbytes += p->sent;
    out->times.plain_nbytes += p->sent;
    return TD_OK;
}

static void abandon(td__sync *s, const char *why)
{
    pipeline *p = (pipeline *)s;
    if (p->inner && p->inner->ops->abandon)
        p->inner->ops->abandon(p->inner, why);
    td__channels_abort(&p->channels, why);
}

const td__sync_ops td__sync_pipeline = {
    .name = "pipeline",
    .help = "ranks have parts of the model, micro-batches pass from one to the next",
    .promise = "the bits of one rank",
    .size = sizeof(pipeline),
    .key = "parallel.pipeline",
    .sample = "2",
    .asked = asked,
    .fits = fits,
    .check = check,
    .traits = traits,
    .need = td__stage_need_most,
    .hold = td__stage_shards,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .batch = batch,
    .step = step,
    .gather = gather,
    .meet = meet,
    .report = report,
    .abandon = abandon,
};
