/* sync_compress.c -- data parallel in which a compressor (compressor.h) adds up the gradients of
 * the ranks, bucket by bucket: with fewer bytes, or by any algorithm.
 *
 * A compressor that takes the momentum (topk, onebit) applies it, and clipping by the norm, on
 * every rank before the sum; the optimizer then has neither. Its weight decay becomes wd / (1 -
 * momentum): the pull that it has with momentum once that is under way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "coll/comm.h"
#include "parallel/rules/sync_buckets.h"

enum { WARMUP_SHARE = 10 };

static bool asked(const td__sync_config *c)
{
    return c->compressor != NULL;
}

/* One rank alone has nothing to reduce. */
static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    return c->compressor && w->ranks > 1;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    const td__compressor_ops *ops = c->compressor ? td__compressor_find(c->compressor) : NULL;
    const char *optimizer = j->optim->name ? j->optim->name : "sgd";
    if (!ops)
        return TD_FAIL(TD_EINVAL, "unknown gradient compressor '%s'; see docs/compression.md",
                       c->compressor ? c->compressor : "none");
    if (ops->compresses && c->zero > 0)
        return TD_FAIL(TD_EINVAL, "%s needs whole gradients on all ranks: parallel.zero must be 0",
                       ops->name);
    if (ops->takes_momentum && w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "parallel.compress: %s is not for elastic ranks: the momentum that it keeps "
                       "would be lost with a rank; use bf16, f16 or powersgd",
                       ops->name);
    if (ops->sgd_only && strcmp(optimizer, "sgd") != 0)
        return TD_FAIL(TD_EINVAL,
                       "%s needs the optimizer sgd: what it sends late adds up where updates are "
                       "sums of gradients, which those of %s are not; bf16, f16 and powersgd go "
                       "with all",
                       ops->name, optimizer);
    if (ops->takes_momentum && j->optim->momentum > 0 && j->optim->dampening > 0)
        return TD_FAIL(TD_EINVAL, "%s applies the momentum itself, without dampening: leave it out",
                       ops->name);
    return TD_OK;
}

static void resolve(td__sync_config *c, const td__sync_job *j, td_optim_opts *optim)
{
    c->compress_with.seed = j->seed;
    if (!td__compressor_find(c->compressor)->takes_momentum)
        return;
    c->compress_with.momentum = optim->momentum;
    c->compress_with.nesterov = optim->nesterov;
    c->compress_with.clip_norm = optim->clip_norm;
    optim->weight_decay /= 1 - optim->momentum;
    optim->momentum = TD_ZERO;
    optim->nesterov = false;
    optim->clip_norm = TD_ZERO;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    const td__compressor_ops *ops = td__compressor_find(c->compressor);
    out->in_step = true;
    out->takes_momentum = ops && ops->takes_momentum;
    out->in_flight = td__sync_buckets_in_flight(c, w->watched || w->shared || (ops && ops->whole));
}

/* The sum, which is registered with all ranks of the host, and what is still owed. */
static size_t exchange(const td__sync_sizes *z)
{
    const td__compressor_ops *ops = td__compressor_find(z->config->compressor);
    size_t sums = z->world.shared ? (size_t)z->world.ranks : 1;
    bool velocity = ops->takes_momentum && z->momentum;
    return (sums + (size_t)ops->kept + velocity) * z->grads;
}

/* The warm-up in a run of that many steps. */
static int64_t warmup(const td__sync_config *c, uint64_t steps)
{
    int64_t given = c->compress_with.warmup_steps;
    if (given != TD__WARMUP_AUTO)
        return given > 0 ? given : 0;
    return strcmp(c->compressor, "topk") == 0 ? (int64_t)(steps / WARMUP_SHARE) : 0;
}

/* Of a run of that many steps. */
static td__compressor_opts options_of(const td__sync_config *c, uint64_t steps)
{
    td__compressor_opts with = c->compress_with;
    with.warmup_steps = warmup(c, steps);
    return with;
}

/* 1: a step of the warm-up. */
static int kind(const td__sync_config *c, uint64_t step, uint64_t steps)
{
    return step <= (uint64_t)warmup(c, steps);
}

static void plan(td__planner *w)
{
    td__compressor_opts with = options_of(w->at->config, w->at->steps);
    td__sync_buckets_plan(w, w->at->config->compressor, &with);
}

static td_status create(td__sync *s)
{
    const td__sync_config *c = s->x.config;
    td__compressor_opts with = options_of(c, s->x.steps);
    return td__sync_buckets_create(s, c->compressor, &with);
}

const td__sync_ops td__sync_compress = {
    .name = "compress",
    .help = "data parallel, gradients added up by a compressor (parallel.compress)",
    .promise = "a function of the number of ranks and the seed",
    .size = sizeof(td__sync_buckets),
    .key = "parallel.compress",
    .sample = "bf16",
    .asked = asked,
    .fits = fits,
    .check = check,
    .resolve = resolve,
    .traits = traits,
    .plan = plan,
    .kind = kind,
    .exchange = exchange,
    .create = create,
    .destroy = td__sync_buckets_destroy,
    .step = td__sync_buckets_step,
    .abandon = td__sync_buckets_abandon,
};
