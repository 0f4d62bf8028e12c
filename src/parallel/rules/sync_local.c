/* sync_local.c -- see sync_local.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_local.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"

td_status td__sync_local_check(const td__sync_config *c, const td__sync_job *j,
                               const td__sync_world *w)
{
    (void)w;
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL,
                       "train.verify: not with the sync rule %s, whose ranks have params of their "
                       "own",
                       c->rule);
    return TD_OK;
}

void td__sync_local_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->own_params = out->own_data = true;
}

/* The mean, the centre and the momentum. */
size_t td__sync_local_exchange(const td__sync_sizes *z)
{
    return 3 * z->params;
}

static td_status find_frozen(td__sync_local *l)
{
    const td__step_opts *o = &l->base.x.step;
    l->frozen = td__calloc((size_t)td_params_count(o->params) + 1, sizeof *l->frozen);
    if (!l->frozen)
        return TD_FAIL(TD_ENOMEM, "no memory for the places of %d params",
                       td_params_count(o->params));
    for (int i = 0; i < td_params_count(o->params); i++) {
        td_param_info info = td_params_info(o->params, i);
        if (td__program_frozen(o->program, info.name))
            l->frozen[l->n_frozen++] = (td__param_range){info.offset, info.offset + info.count};
    }
    return TD_OK;
}

void td__local_keep_frozen(td__sync_local *l, const float *x)
{
    for (int i = 0; i < l->n_frozen; i++) {
        td__param_range r = l->frozen[i];
        memcpy(l->mean + r.begin, x + r.begin, (r.end - r.begin) * sizeof *x);
    }
}

td_status td__sync_local_create(td__sync *s, const td__local_ops *ops)
{
    td__sync_local *l = (td__sync_local *)s;
    l->ops = ops;
    l->ranks = s->x.comm ? td_comm_size(s->x.comm) : 1;
    l->count = td__params_total(s->x.step.params);
    l->to = l->count;
    l->mean = td__calloc(l->count + 1, sizeof *l->mean);
    l->centre = ops->blocks > 0 ? td__calloc(l->count + 1, sizeof *l->centre) : NULL;
    l->momentum = ops->blocks > 1 ? td__calloc(l->count + 1, sizeof *l->momentum) : NULL;
    if (!l->mean || (ops->blocks > 0 && !l->centre) || (ops->blocks > 1 && !l->momentum))
        return TD_FAIL(TD_ENOMEM, "no memory for %d blocks of params", 1 + ops->blocks);
    return find_frozen(l);
}

void td__sync_local_destroy(td__sync *s)
{
    td__sync_local *l = (td__sync_local *)s;
    td__free(l->mean);
    td__free(l->centre);
    td__free(l->momentum);
    td__free(l->frozen);
}

int td__sync_local_states(td__sync *s, td__sync_block *out)
{
    td__sync_local *l = (td__sync_local *)s;
    out[0] = (td__sync_block){.name = "centre", .data = l->centre, .count = l->count};
    out[1] = (td__sync_block){.name = "momentum", .data = l->momentum, .count = l->count};
    return l->ops->blocks;
}

void td__local_take_mean(td__sync_local *l, float *x)
{
    memcpy(x, l->mean, l->count * sizeof *x);
}

void td__local_take_centre(td__sync_local *l, float *x)
{
    memcpy(x, l->centre, l->count * sizeof *x);
}

void td__local_elastic(td__sync_local *l, float *x)
{
    float beta = (float)td__sync_value(&l->base, "beta"), alpha = beta / (float)l->ranks;
    for (size_t i = 0; i < l->count; i++) {
        float c = l->centre[i];
        x[i] -= alpha * (x[i] - c);
        l->centre[i] = c + beta * (l->mean[i] - c);
    }
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

static td_status find_mean(td__sync_local *l, const float *x)
{
    td_comm *comm = l->base.x.comm;
    size_t from = l->from, n = l->to - from;
    if (comm)
        TD_TRY(td_allreduce(comm, x + from, l->mean + from, n, TD_F32, TD_REDUCE_SUM, NULL));
    else
        memcpy(l->mean + from, x + from, n * sizeof *x);
    for (size_t i = from; i < l->to; i++)
        l->mean[i] /= (float)l->ranks;
    td__local_keep_frozen(l, x);
    td__step_times *times = td__step_times_of(l->base.engine);
    times->sent_nbytes = times->plain_nbytes = comm ? n * sizeof *x : 0;
    return TD_OK;
}

static td_status exchange(td__sync_local *l, bool merge, bool settle)
{
    td_params *params = l->base.x.step.params;
    td__mapping map;
    TD_TRY(td__params_map(params, 0, l->count, TD_MAP_BOTH, &map));
    td_status st = merge ? find_mean(l, map.at) : TD_OK;
    if (st) {
        td__mem_map_drop(&map);
        return st;
    }
    if (merge) {
        l->ops->merge(l, map.at);
        l->merged = l->step;
    }
    if (settle && l->ops->settle)
        l->ops->settle(l, map.at);
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(params);
    return TD_OK;
}

td_status td__local_merge(td__sync_local *l)
{
    return exchange(l, true, false);
}

td_status td__sync_local_begin(td__sync *s, const td__sync_place *at)
{
    ((td__sync_local *)s)->step = at->step;
    return TD_OK;
}

td_status td__sync_local_step(td__sync *s, double lr, td__step_result *out)
{
    int64_t rows = td__step_own_rows(s->engine);
    td__grad_share own;

    TD_TRY(td__step_own_share(s->engine, &own));
    TD_TRY(td__sync_sum_numbers(s));
    if (rows) /* the last batch of an epoch may have too few for all */
        TD_TRY(td__step_apply(s->engine, NULL, 0, lr, out));
    td__step_done(s->engine, out);
    return TD_OK;
}

td_status td__sync_local_gather(td__sync *s)
{
    td__sync_local *l = (td__sync_local *)s;
    return td__sync_kind(s) ? exchange(l, true, false) : TD_OK;
}

/* ---- The plan -------------------------------------------------------------------------------- */

int td__sync_local_kind(const td__sync_config *c, uint64_t step, uint64_t steps)
{
    (void)steps;
    return step % (uint64_t)td__sync_option(c, "tau") == 0;
}

void td__local_plan_step(td__planner *w)
{
    td__planner_runs(w);
    td__planner_numbers(w);
    td__planner_update(w, 0);
}

void td__local_plan_mean(td__planner *w, size_t count)
{
    td__planner_coll(w, TD_PLAN_ALLREDUCE, count * sizeof(float), 0);
    td__planner_update(w, 0);
}

void td__sync_local_plan(td__planner *w)
{
    td__local_plan_step(w);
    if (td__planner_kind(w))
        td__local_plan_mean(w, td__params_total(w->at->params));
}

/* ---- Meetings -------------------------------------------------------------------------------- */

/* Ranks that have made other updates have other states of their optimizers, of which a checkpoint
 * holds one: all go on with the mean, as those that resume do. */
td_status td__local_share_optimizer(td__sync_local *l)
{
    td_optimizer *o = l->base.x.step.optimizer;
    td_comm *comm = l->base.x.comm;
    int64_t steps = (int64_t)td_optimizer_steps(o);
    td__mapping map;

    if (!comm || l->shared == l->step)
        return TD_OK;
    for (int k = 0; k < td_optimizer_state_count(o); k++) {
        TD_TRY(td__optim_map_state(o, k, TD_MAP_BOTH, &map));
        size_t n = map.nbytes / sizeof(float);
        td_status st = td_allreduce(comm, map.at, l->mean, n, TD_F32, TD_REDUCE_SUM, NULL);
        for (size_t i = 0; !st && i < n; i++)
            ((float *)map.at)[i] = l->mean[i] / (float)l->ranks;
        if (st)
            td__mem_map_drop(&map);
        TD_TRY(st ? st : td__mem_unmap(&map));
    }
    /* a rank without rows in a step has made none */
    TD_TRY(td_allreduce(comm, &steps, &steps, 1, TD_I64, TD_REDUCE_MAX, NULL));
    td_optimizer_set_steps(o, (uint64_t)steps);
    l->shared = l->step;
    return TD_OK;
}

td_status td__sync_local_meet(td__sync *s, td__sync_meet why)
{
    td__sync_local *l = (td__sync_local *)s;
    td_params *params = s->x.step.params;
    if (why != TD_MEET_BEGIN) {
        if (l->merged != l->step || l->ops->settle)
            TD_TRY(exchange(l, l->merged != l->step, true));
        return td__local_share_optimizer(l);
    }
    l->merged = l->shared = l->step;
    if (l->momentum && !s->ended) /* a run that has ended goes on with what it has come to */
        memset(l->momentum, 0, l->count * sizeof *l->momentum);
    return l->centre ? td__mem_read(td__params_device(params), l->centre,
                                    td_params_block(params, NULL), l->count * sizeof *l->centre)
                     : TD_OK;
}
