/* plan.c -- see plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/plan.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/step_plan.h"
#include "train/trainer_impl.h"

/* The rule that the ranks of the world train by, and what it is made with where it is inside one
 * for groups of ranks: *sync and *w become what it sees. */
static td_status find_rule(td__trainer *t, td__sync_config *sync, td__sync_world *w,
                           const td__sync_ops **rule, td__sync_inside *in)
{
    td__sync_hold h = {.config = sync,
                       .elastic = w->elastic,
                       .params = t->replica.params,
                       .set = t->run.train_set,
                       .rows = t->plan.micro_batch_rows,
                       .micro_batches = t->o.micro_batches,
                       .accumulate = t->o.accumulate};
    if (w->ranks == 1)
        sync->mesh = (td__rank_mesh){0}; /* of ranks that are to come */
    TD_TRY(td__sync_find(sync, w, rule));
    if (!(*rule)->inside)
        return TD_OK;
    TD_TRY((*rule)->inside(&h, w->ranks, in));
    *sync = in->config;
    w->ranks = in->ranks;
    return td__sync_find(sync, w, rule);
}

/* The first step that does more than the usual one; the first of all, if none does. */
static uint64_t fullest(const td__sync_ops *rule, td__plan_case at)
{
    enum { LOOKED_AT = 4096 };
    uint64_t last = at.steps && at.steps < LOOKED_AT ? at.steps : LOOKED_AT;
    for (at.step = 1; at.step <= last; at.step++)
        if (td__step_kind(rule, &at))
            return at.step;
    return 1;
}

static td_status make(td__trainer *t, const td__sync_ops *rule, td__plan_case *at, td__plan **out)
{
    at->step = fullest(rule, *at);
    TD_TRY(td__step_plan(rule, at, out));
    td__step_plan_costs(*out, td__trainer_program(t));
    td_status st = td__plan_check(*out);
    if (st) {
        td__plan_destroy(*out);
        *out = NULL;
    }
    return st;
}

td_status td__trainer_step_plan(td__trainer *t, const td__memory_case *c, const td__sync_ops **rule,
                                td__plan **out)
{
    td__sync_config sync = c->sync ? *c->sync : t->o.sync;
    td__sync_world w = {.ranks = c->ranks,
                        .shared = c->shared,
                        .elastic = t->o.members || c->elastic,
                        .watched = t->o.verify > 0 && c->ranks > 1};
    td_params *ps = t->replica.params;
    td__sync_inside in = {.own = NULL};
    td__ownership map = {.n = 0};
    *out = NULL;
    td_status st = find_rule(t, &sync, &w, rule, &in);
    if (st || !(*rule)->plan) {
        td__free(in.own);
        return st;
    }
    td__plan_case at = {.config = &sync,
                        .world = w,
                        .params = ps,
                        .optim = td__plan_optim_of(t->replica.optimizer, ps),
                        .set = t->run.train_set,
                        .micro_batches = t->o.micro_batches,
                        .accumulate = t->o.accumulate,
                        .map = &map,
                        .mirrors = w.elastic,
                        .watched = w.watched,
                        .update_late = w.elastic,
                        .host_reads = td__device_host_reads(td__params_device(ps)),
                        .own = in.own,
                        .n_own = in.n_own,
                        .squares = in.shares ? (size_t)td_params_count(ps) : 0,
                        .steps = t->plan.total_steps,
                        .batches = t->o.accumulate,
                        .rows = t->o.batch,
                        .last_rows = t->o.batch};
    if (td__sync_traits_of(&sync, &w).takes_momentum) /* and the clipping with it */
        at.optim.clips = false;
    st = td__ownership_init(&map, ps, w.ranks, td__sync_bucket_nbytes(&sync, &w, ps));
    if (!st)
        st = make(t, *rule, &at, out);
    td__ownership_fini(&map);
    td__free(in.own);
    return st;
}
