/* sync_ssgd.c -- synchronous SGD (Chen and others, 2016): gradients are added up over ranks by an
 * all-reduce of any algorithm, bucket by bucket while backward runs, and all ranks make the same
 * update. Unlike the exact rules the sum of a rank comes first, whatever the micro-batch tree
 * says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "parallel/rules/sync_buckets.h"

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    out->in_flight = w->ranks > 1 ? td__sync_buckets_in_flight(c, w->watched || w->shared) : 1;
}

static size_t exchange(const td__sync_sizes *z)
{
    return (z->world.shared ? (size_t)z->world.ranks : 1) * z->grads;
}

static void plan(td__planner *w)
{
    if (w->ranks > 1) {
        td__sync_buckets_plan(w, "allreduce", &(td__compressor_opts){0});
        return;
    }
    td__planner_runs(w);
    td__planner_update(w, 0);
}

static td_status create(td__sync *s)
{
    return s->x.comm ? td__sync_buckets_create(s, "allreduce", &(td__compressor_opts){0}) : TD_OK;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    if (s->x.comm)
        return td__sync_buckets_step(s, lr, out);
    TD_TRY(td__step_update(s->engine, lr, NULL));
    td__step_done(s->engine, out);
    return TD_OK;
}

static void abandon(td__sync *s, const char *why)
{
    if (s->x.comm)
        td__sync_buckets_abandon(s, why);
}

const td__sync_ops td__sync_ssgd = {
    .name = "ssgd",
    .help = "synchronous SGD: gradients added up by an all-reduce of any algorithm",
    .promise = "a function of the number of ranks, its algorithm and the seed",
    .size = sizeof(td__sync_buckets),
    .traits = traits,
    .plan = plan,
    .exchange = exchange,
    .create = create,
    .destroy = td__sync_buckets_destroy,
    .step = step,
    .abandon = abandon,
};
