/* flow.c -- pipelines that are not emptied between steps: PipeDream and its kin.
 *
 * Batch i of a window (from 0 where the pipeline was last empty) is run with version
 * max(0, i - delay) of the weights, the one after so many updates of the window, on all stages and
 * in all phases. A stage keeps delay + 1 copies of its weights, each with runners of its own, and
 * batch i has the one in place i modulo their number: when it has been applied, the live params,
 * which the optimizer has updated, are copied there for the next batch in that place. Stages are
 * not in step: each runs its list (plan/schedule.h) as far as it can before it needs the next
 * batch.
 *
 *     step i     give batch i; run up to its last forward; tell all ranks the loss and requests;
 *                run on, and update when the gradients of a batch are complete
 *
 * What ranks tell each other arrives while they go on: after step i all of them know what was said
 * in step max(0, i - stages + 1). The pipeline is emptied after a window, before params are
 * evaluated or saved, and at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "pipeline/sync_pipeline_impl.h"
#include "step/work_partition.h"

/* A step whose update may be still to come. */
typedef struct pending {
    td__sync_place at;
    int64_t rows;
    double lr;
    double *numbers; /* (n_numbers) requests, losses by micro-batch: summed up over ranks */
    td_work *work;   /* of that; NULL: none */
} pending;

typedef struct version {
    td_params *params;
    td__chunks *chunks;
    td__shared_works told;
} version;

struct td__flow {
    td__pipeline_rule *p;
    td_comm *numbers;       /* what losses and requests are added up over, */
    td__planned_calls said; /* as the plan has it; n 0: of one stage, which has none */
    size_t n_numbers;
    int versions, pendings;
    version *version; /* (versions) of batch i in place i modulo their number */
    pending *pending; /* (pendings) likewise */
    int slots;        /* micro-batches of a version that have a runner each */
    bool open;
    int begun, updated; /* batches of the window: that were given; updates */
    int current;        /* the batch of the trainer's step */
    int heard;          /* the last batch whose numbers are known; -1: none */
    double seconds;     /* of the step under way */
};

static pending *pending_of(td__flow *f, int batch)
{
    return &f->pending[batch % f->pendings];
}

static version *version_of(td__flow *f, int batch)
{
    return &f->version[batch % f->versions];
}

static int micro_batches_of(const td__flow *f)
{
    return f->p->base.x.step.micro_batches;
}

/* Those of a batch that this replica runs. */
static td__micro_batch_range own_of(const td__flow *f)
{
    const td__step_opts *o = td__step_opts_of(f->p->base.engine);
    return td__rank_cut(o->micro_batches, 1, 0, o->rank, o->size);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status make_version(td__flow *f, version *v)
{
    td__pipeline_rule *p = f->p;
    const td__step_opts *o = &p->base.x.step;
    int shared = td__pipeline_shared(p);
    v->told.at = td__calloc((size_t)shared + 1, sizeof(td_work *));
    if (!v->told.at)
        return TD_FAIL(TD_ENOMEM, "no memory for weights of a pipeline");
    TD_TRY(td__params_create(o->program, NULL, &v->params));
    return td__chunks_create(&(td__chunks_opts){.set = o->set,
                                                .params = v->params,
                                                .usual = p->base.x.rows,
                                                .shape = &p->shape,
                                                .own = p->own,
                                                .slots = f->slots},
                             &v->chunks);
}

/* A micro-batch takes the runner of one that has left: the plan says how many later that is at
 * least, and a batch whose version is another's does not count. */
static int slots_of(const td__flow *f, const td__pipeline_planned *n)
{
    int most = 1;
    for (int c = 0; c < f->p->chunks; c++)
        if (f->p->own[c] && n->slots[c] > most)
            most = n->slots[c];
    return most > n->micro_batches && most <= f->versions * n->micro_batches ? n->micro_batches
                                                                             : most;
}

static bool is_said(const td__plan_op *o)
{
    return o->kind == TD_PLAN_COLL && o->phase == TD__PLAN_NUMBERS && o->axis == TD__AXIS_ALL;
}

static td_status set_up(td__flow *f)
{
    td__pipeline_rule *p = f->p;
    td__micro_batch_range own = own_of(f);
    const td__pipeline_planned *n;
    TD_ASSERT(own.begin < own.end && p->base.x.step.accumulate == 1, "%d micro-batches",
              micro_batches_of(f));
    TD_TRY(td__pipeline_plan_for(p, own.end - own.begin, &n));
    f->slots = slots_of(f, n);
    f->n_numbers = td__pipeline_numbers(p->schedule, p->shape.replicas, false, micro_batches_of(f));
    f->version = td__calloc((size_t)f->versions, sizeof *f->version);
    f->pending = td__calloc((size_t)f->pendings, sizeof *f->pending);
    if (!f->version || !f->pending)
        return TD_FAIL(TD_ENOMEM, "no memory for %d batches under way", f->pendings);
    for (int i = 0; i < f->pendings; i++) {
        f->pending[i].numbers = td__calloc(f->n_numbers, sizeof(double));
        if (!f->pending[i].numbers)
            return TD_FAIL(TD_ENOMEM, "no memory for the losses of a batch");
    }
    for (int v = 0; v < f->versions; v++)
        TD_TRY(make_version(f, &f->version[v]));
    if (p->step_plan)
        TD_TRY(td__planned_calls_init(&f->said, p->step_plan, p->channels.stage, is_said));
    return td_comm_split(p->base.x.comm, 0, 0, &f->numbers);
}

td_status td__flow_create(td__pipeline_rule *p)
{
    int delay = p->schedule->delay(p->shape.stages);
    td__flow *f = p->flow = td__calloc(1, sizeof *f);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline that flows");
    *f = (td__flow){.p = p, .versions = delay + 1, .pendings = p->shape.stages + 1};
    if (td_comm_rank(p->base.x.comm) == 0)
        TD_LOG(WARN, TRAIN, "parallel.schedule %s: not the bits of one rank, but %s",
               p->schedule->name, p->schedule->promise);
    return set_up(f);
}

void td__flow_destroy(td__flow *f)
{
    if (!f)
        return;
    for (int v = 0; f->version && v < f->versions; v++) {
        td__chunks_destroy(f->version[v].chunks);
        td_params_destroy(f->version[v].params);
        td__free(f->version[v].told.at);
    }
    for (int i = 0; f->pending && i < f->pendings; i++)
        td__free(f->pending[i].numbers);
    td__free(f->version);
    td__free(f->pending);
    td__planned_calls_fini(&f->said);
    td_comm_destroy(f->numbers);
    td__free(f);
}

/* ---- Versions -------------------------------------------------------------------------------- */

/* The live params are the weights of the next batch in the place of this one. */
static td_status keep_version(td__flow *f, version *v)
{
    td__pipeline_rule *p = f->p;
    const float *live = td_params_block(p->base.x.step.params, NULL);
    float *to = td_params_block(v->params, NULL);
    TD_TRY(td__pipeline_told(&v->told)); /* others may read the version that was here */
    for (int i = 0; i < p->ranges.n; i++)
        memcpy(to + p->ranges.at[i].begin, live + p->ranges.at[i].begin,
               (p->ranges.at[i].end - p->ranges.at[i].begin) * sizeof *to);
    td_params_touch(v->params);
    return TD_OK;
}

static td_status open_window(td__flow *f)
{
    const td__pipeline_planned *n;
    td__micro_batch_range own = own_of(f);
    f->begun = f->updated = 0;
    f->heard = -1;
    for (int v = 0; v < f->versions; v++)
        TD_TRY(keep_version(f, &f->version[v]));
    TD_TRY(td__pipeline_plan_for(f->p, own.end - own.begin, &n));
    f->open = true;
    return td__executor_open(f->p->executor,
                             &(td__executor_list){.plan = n->plan,
                                                  .slots = n->slots,
                                                  .each = n->micro_batches,
                                                  .batches = f->p->schedule->window,
                                                  .step = td__step_number(f->p->base.engine)});
}

/* ---- Updates --------------------------------------------------------------------------------- */

static td_status nothing(void *user, const td__batch *batch, int number, double *losses)
{
    (void)user;
    (void)batch;
    (void)number;
    (void)losses;
    return TD_OK;
}

/* The engine is taken back to the step of that batch, and then to that of the trainer:
 * micro-batches of it may be still to be run. */
static td_status update(td__flow *f, int batch)
{
    td__pipeline_rule *p = f->p;
    td__step_engine *e = p->base.engine;
    const pending *n = pending_of(f, batch), *now = pending_of(f, f->current);
    td__step_result result;
    TD_ASSERT(batch == f->updated, "batch %d is applied after %d", batch, f->updated);
    td__step_begin(e, (uint32_t)n->at.step, 1, n->rows);
    TD_TRY(td__sync_inner_begin(p->inner, &n->at));
    TD_TRY(td__step_batch_by(e, &(td__batch){.rows = n->rows}, nothing, NULL));
    td__pipeline_gather_partials(p);
    TD_TRY(td__sync_hand_in(p->inner));
    TD_TRY(td__sync_inner_step(p->inner, n->lr, &result));
    f->updated++;
    td__step_begin(e, (uint32_t)now->at.step, 1, now->rows);
    return keep_version(f, version_of(f, batch));
}

td_status td__flow_update(void *user, int batch)
{
    return update(((td__pipeline_rule *)user)->flow, batch);
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* What is called for the batch that begins is held against the plan, whose window has one micro-
 * batch of each. */
static void guard_batch(td__flow *f)
{
    td__pipeline_rule *p = f->p;
    uint64_t step = pending_of(f, f->begun)->at.step;
    if (!p->step_plan)
        return;
    td__pipeline_guard_begin(p, step);
    td__planned_calls_part(&p->stage_calls, (uint32_t)f->begun);
    td__planned_calls_begin(&f->said, f->numbers, td_comm_rank(p->base.x.comm), step);
    td__planned_calls_part(&f->said, (uint32_t)f->begun);
}

static td_status batch_is_as_planned(td__flow *f)
{
    TD_TRY(td__planned_calls_end(&f->p->stage_calls));
    return td__planned_calls_end(&f->said);
}

td_status td__flow_begin(td__flow *f, const td__sync_place *at)
{
    f->seconds = 0;
    if (!f->open)
        TD_TRY(open_window(f));
    f->current = f->begun;
    pending *n = pending_of(f, f->begun);
    version *v = version_of(f, f->begun);
    TD_ASSERT(!n->work, "batch %d begins before the result of batch %d has arrived", f->begun,
              f->begun - f->pendings);
    n->at = *at;
    n->rows = td__step_rows(f->p->base.engine);
    memset(n->numbers, 0, f->n_numbers * sizeof *n->numbers);
    guard_batch(f);
    return td__pipeline_tell_ahead(f->p, v->params, &v->told);
}

td_status td__flow_batch(td__flow *f, const td__batch *batch)
{
    uint64_t begin = td__clock_ns();
    td__micro_batch_range own = own_of(f);
    f->p->ran = own.end - own.begin;
    td_status st = td__executor_feed(
        f->p->executor,
        &(td__executor_batch){.batch = batch,
                              .micro_batches = micro_batches_of(f),
                              .begin = own.begin,
                              .end = own.end,
                              .engine = f->p->base.engine,
                              .chunks = version_of(f, f->begun)->chunks,
                              .slots = f->slots,
                              .losses = pending_of(f, f->begun)->numbers + TD_REQUESTS});
    f->seconds += 1e-9 * (double)(td__clock_ns() - begin);
    return st;
}

/* What was said in the steps up to that of `batch` is known to all. */
static td_status hear(td__flow *f, int batch)
{
    while (f->heard < batch) {
        pending *n = pending_of(f, ++f->heard);
        td_work *work = n->work;
        n->work = NULL;
        TD_TRY(td_work_wait(work));
    }
    return TD_OK;
}

static void fill_in(td__flow *f, td__step_result *out)
{
    const pending *n = pending_of(f, f->heard);
    td__tree_sum sum = {.n = 0};
    double waited;
    uint64_t sent;
    for (int i = 0; i < micro_batches_of(f); i++)
        td__tree_add(&sum, n->numbers[TD_REQUESTS + i]);
    td__executor_spent(f->p->executor, &waited, &sent);
    *out = (td__step_result){.loss = td__tree_total(&sum),
                             .grad_norm = -1,
                             .times = {.compute = f->seconds - waited,
                                       .wait = waited,
                                       .sent_nbytes = sent,
                                       .plain_nbytes = sent}};
    memcpy(out->requests, n->numbers, sizeof out->requests);
}

td_status td__flow_step(td__flow *f, double lr, td__step_result *out)
{
    uint64_t begin = td__clock_ns();
    pending *n = pending_of(f, f->begun);
    size_t count;
    n->lr = lr;
    memcpy(n->numbers, td__step_numbers(f->p->base.engine, &count),
           TD_REQUESTS * sizeof *n->numbers);
    TD_TRY(td_allreduce(f->numbers, n->numbers, n->numbers, f->n_numbers, TD_F64, TD_REDUCE_SUM,
                        &(td_coll_opts){.work = &n->work}));
    TD_TRY(batch_is_as_planned(f));
    f->begun++;
    TD_TRY(td__executor_go_on(f->p->executor));
    int behind = f->p->shape.stages;
    TD_TRY(hear(f, f->begun > behind ? f->begun - behind : 0));
    f->seconds += 1e-9 * (double)(td__clock_ns() - begin);
    fill_in(f, out);
    return f->begun == f->p->schedule->window ? td__flow_empty(f) : TD_OK;
}

/* ---- The end of a window --------------------------------------------------------------------- */

td_status td__flow_empty(td__flow *f)
{
    if (!f->open)
        return TD_OK;
    f->open = false;
    TD_TRY(td__executor_close(f->p->executor));
    TD_TRY(hear(f, f->begun - 1));
    for (int v = 0; v < f->versions; v++)
        TD_TRY(td__pipeline_told(&f->version[v].told));
    TD_ASSERT(f->updated == f->begun, "%d of %d batches were applied", f->updated, f->begun);
    return TD_OK;
}

static bool any_left(const td__flow *f)
{
    bool any = false;
    for (int i = 0; f->pending && i < f->pendings; i++)
        any = any || f->pending[i].work;
    for (int v = 0; f->version && v < f->versions; v++)
        any = any || f->version[v].told.n;
    return any;
}

void td__flow_abort(td__flow *f, const char *why)
{
    f->open = false;
    td__planned_calls_leave(&f->said);
    if (!any_left(f))
        return;
    td__channels_abort(&f->p->channels, why);
    td_comm_abort(f->numbers, why);
    for (int i = 0; i < f->pendings; i++)
        if (f->pending[i].work) {
            td_status st = td_work_wait(f->pending[i].work);
            (void)st; /* the run has failed already */
            f->pending[i].work = NULL;
        }
    for (int v = 0; v < f->versions; v++) {
        td_status st = td__pipeline_told(&f->version[v].told);
        (void)st;
    }
}
