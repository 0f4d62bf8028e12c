/* step_plan.c -- see step_plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step_plan.h"

#include <stdio.h>

#include "base/fail.h"
#include "graph/cost.h"
#include "graph/origin.h"
#include "graph/params.h"
#include "optim/optimizer.h"

/* ---- Operations ------------------------------------------------------------------------------ */

static int add(td__planner *w, const td__plan_op *op)
{
    int at = TD__PLAN_NONE;
    if (!w->st)
        w->st = td__plan_add(w->p, w->rank, op, &at);
    return at;
}

static td__plan_op blank(td__plan_kind kind, td__plan_lane lane, int chunk)
{
    td__plan_op op = td__plan_blank(kind, lane);
    op.axis = TD_AXIS_DATA;
    op.chunk = op.other = (uint16_t)chunk;
    return op;
}

static int compute(td__planner *w, td__plan_op op)
{
    if (!w->overlaps && op.after[0] == TD__PLAN_NONE)
        op.after[0] = w->called;
    return w->ran = add(w, &op);
}

/* What comes later of the two has waited for the other, or is of the call's own lane. */
static int call(td__planner *w, td__plan_op op)
{
    op.after[0] = w->called > w->ran ? w->called : w->ran;
    return w->called = add(w, &op);
}

int td__planner_run(td__planner *w, td_run_phase phase, int chunk, int micro_batch)
{
    td__plan_op op = blank(TD_PLAN_RUN, TD_LANE_COMPUTE, chunk);
    op.phase = (uint8_t)phase;
    op.micro_batch = (uint32_t)micro_batch;
    return compute(w, op);
}

int td__planner_runs_but(td__planner *w, bool but_last)
{
    const td__plan_case *c = w->at;
    td__micro_batch_range own = td__work_micro_batches((td__work_partition){w->ranks, c->bounds},
                                                       c->batches * c->micro_batches, w->rank);
    for (int m = own.begin; m < own.end; m++) {
        td__planner_run(w, TD_RUN_FORWARD, 0, m);
        if (!but_last || m + 1 < own.end)
            td__planner_run(w, TD_RUN_BACKWARD, 0, m);
    }
    return own.begin < own.end ? own.end - 1 : -1;
}

void td__planner_runs(td__planner *w)
{
    (void)td__planner_runs_but(w, false);
}

int td__planner_coll(td__planner *w, td__plan_coll coll, uint64_t nbytes, int chunk)
{
    td__plan_op op = blank(TD_PLAN_COLL, TD_LANE_COLL, chunk);
    op.coll = (uint8_t)coll;
    op.nbytes = nbytes;
    return call(w, op);
}

void td__planner_numbers(td__planner *w)
{
    size_t n = td__step_numbers_of(w->ranks, w->at->watched, w->at->batches * w->at->micro_batches);
    td__plan_op op = blank(TD_PLAN_COLL, TD_LANE_COLL, 0);
    op.coll = TD_PLAN_ALLREDUCE;
    op.phase = TD__PLAN_NUMBERS;
    op.nbytes = n * sizeof(double);
    call(w, op);
}

void td__planner_rows(td__planner *w, int slots)
{
    uint64_t lists = (uint64_t)slots * (uint64_t)w->sparse * (uint64_t)w->ranks;
    if (!w->sparse)
        return;
    td__planner_coll(w, TD_PLAN_ALL_GATHER, lists * sizeof(int64_t), 0);
    td__planner_coll(w, TD_PLAN_ALL_GATHER, TD__PLAN_ANY, 0);
}

static void message(td__planner *w, td__plan_kind kind, int what, int peer, uint64_t nbytes)
{
    td__plan_op op = blank(kind, kind == TD_PLAN_SEND ? TD_LANE_SEND_UP : TD_LANE_RECV_UP, 0);
    op.phase = (uint8_t)what;
    op.peer = (int16_t)(peer - w->rank);
    op.nbytes = nbytes;
    call(w, op);
}

void td__planner_send(td__planner *w, int what, int to, uint64_t nbytes)
{
    message(w, TD_PLAN_SEND, what, to, nbytes);
}

void td__planner_recv(td__planner *w, int what, int from, uint64_t nbytes)
{
    message(w, TD_PLAN_RECV, what, from, nbytes);
}

void td__planner_copy(td__planner *w, uint64_t nbytes)
{
    td__plan_op op = blank(TD_PLAN_COPY, TD_LANE_COMPUTE, 0);
    op.nbytes = nbytes;
    compute(w, op);
}

/* Of the params of a chunk, after operation `after`; TD__PLAN_NONE: after all before it. */
static void update_after(td__planner *w, int chunk, int after)
{
    td__plan_op op = blank(TD_PLAN_UPDATE, TD_LANE_COMPUTE, chunk);
    op.after[0] = after == TD__PLAN_NONE ? w->called : after;
    compute(w, op);
}

void td__planner_update(td__planner *w, int chunk)
{
    update_after(w, chunk, TD__PLAN_NONE);
}

void td__planner_squares(td__planner *w)
{
    if (w->at->squares && w->at->optim.clips)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, w->at->squares * sizeof(double), 0);
}

int td__planner_kind(const td__planner *w)
{
    return td__step_kind(w->rule, w->at);
}

bool td__planner_late(const td__planner *w)
{
    return w->at->optim.clips || w->at->update_late || w->at->watched;
}

void td__planner_name(td__planner *w, int chunk, size_t begin)
{
    const td_params *ps = w->at->params;
    size_t shift = td_params_trainable(ps) - td__params_dense(ps);
    const char *first = "", *origin = NULL;
    char name[160];
    if (w->st || w->rank)
        return;
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        size_t at = info.offset - (info.is_state ? shift : 0);
        if (!info.sparse && at <= begin) {
            first = info.name;
            origin = td__params_origin(ps, i);
        }
    }
    snprintf(name, sizeof name, "bucket %d, from %.64s%s%s", chunk - 1, first, origin ? ", " : "",
             origin ? origin : "");
    w->st = td__plan_name_chunk(w->p, chunk, name);
}

td__plan_optim td__plan_optim_of(const td_optimizer *o, const td_params *ps)
{
    return (td__plan_optim){.clips = td__optim_clips(o),
                            .sliceable = td__optim_sliceable(o),
                            .chunks = td__optim_chunk_of(o, td_params_count(ps)),
                            .states = td_optimizer_state_count(o)};
}

/* ---- All ranks ------------------------------------------------------------------------------- */

static td_status prepare(td__planner *w)
{
    const td__plan_case *c = w->at;
    bool changed;
    for (int i = 0; i < td_params_count(c->params); i++)
        w->sparse += td_params_info(c->params, i).sparse;
    w->floats =
        td__params_dense(c->params) + td__params_total(c->params) - td_params_trainable(c->params);
    w->scripts = (td__round_scripts){
        .map = c->map, .set = c->set, .ps = c->params, .params = c->config->zero == 3};
    TD_TRY(td__buckets_init(&w->buckets, c->params, c->own, c->n_own, c->config->bucket_nbytes));
    TD_TRY(td__rank_tree_init(&w->tree, (td__work_partition){w->ranks, c->bounds}, c->micro_batches,
                              c->accumulate));
    return td__rank_tree_plan(&w->tree, c->batches, c->last_rows, &changed);
}

/* "the model, job.yaml:3 to 9": params lie in the order in which gradients become final. */
static td_status name_model(td__planner *w)
{
    const td_params *ps = w->at->params;
    int n = td_params_count(ps);
    char name[128], origin[TD__ORIGIN] = "";
    const char *first = NULL, *last = NULL;
    for (int i = 0; i < n; i++) {
        const char *at = td__params_origin(ps, i);
        last = last ? last : at;
        first = at && !td_params_info(ps, i).is_state ? at : first;
    }
    td__origin_text(first, last, origin);
    snprintf(name, sizeof name, "the model%s%s", *origin ? ", " : "", origin);
    return td__plan_name_chunk(w->p, 0, name);
}

static td_status write_lists(td__planner *w)
{
    int tensor = w->at->config->mesh.size[TD_AXIS_TENSOR];
    td__rank_mesh mesh = {
        {[TD_AXIS_DATA] = w->ranks, [TD_AXIS_PIPELINE] = 1, [TD_AXIS_TENSOR] = tensor}};
    int chunks = w->buckets.n;
    mesh.size[TD_AXIS_TENSOR] = tensor > 1 ? tensor : 1;
    chunks = w->at->map && w->at->map->n > chunks ? w->at->map->n : chunks;
    TD_TRY(td__plan_create(&mesh, TD_AXIS_DATA, 1 + chunks, &w->p));
    TD_TRY(name_model(w));
    for (w->rank = 0; !w->st && w->rank < w->ranks; w->rank++) {
        w->ran = w->called = TD__PLAN_NONE;
        w->overlaps = false;
        w->rule->plan(w);
    }
    return w->st;
}

td_status td__step_plan(const td__sync_ops *rule, const td__plan_case *at, td__plan **out)
{
    td__planner w = {.at = at, .rule = rule, .ranks = at->world.ranks};
    *out = NULL;
    if (!rule->plan)
        return TD_FAIL(TD_ENOTSUP, "the sync rule %s has no plan of a step: %s", rule->name,
                       rule->unplanned);
    td_status st = prepare(&w);
    if (!st)
        st = write_lists(&w);
    td__buckets_fini(&w.buckets);
    td__rank_tree_fini(&w.tree);
    td__round_scripts_fini(&w.scripts);
    if (st)
        td__plan_destroy(w.p);
    else
        *out = w.p;
    return st;
}

int td__step_kind(const td__sync_ops *rule, const td__plan_case *at)
{
    return rule->kind ? rule->kind(at->config, at->step, at->steps) : 0;
}

/* The pieces, by bucket, in which the role runs the phase of a micro-batch that i is of. */
static int pieces_of(const td__plan_list *l, int i)
{
    const td__plan_op *of = &l->ops[i];
    int n = 0;
    for (int k = 0; of->chunk && k < l->n; k++) {
        const td__plan_op *o = &l->ops[k];
        n += o->kind == TD_PLAN_RUN && o->chunk && o->phase == of->phase &&
             o->micro_batch == of->micro_batch;
    }
    return n ? n : 1;
}

void td__step_plan_costs(td__plan *p, const td_program *of)
{
    static const double FLOPS = 20e9;
    double work[TD_RUN_PHASE_COUNT];
    td__program_work(of, work);
    for (int r = 0; r < td__plan_roles(p); r++)
        for (int i = 0; i < p->roles[r].n; i++) {
            td__plan_op *o = &p->roles[r].ops[i];
            if (o->kind != TD_PLAN_RUN)
                continue;
            double all = o->phase == TD_RUN_FORWARD ? work[TD_RUN_FORWARD]
                                                    : work[TD_RUN_BACKWARD] + work[TD_RUN_WEIGHT];
            o->seconds = all / FLOPS / pieces_of(&p->roles[r], i);
        }
}
