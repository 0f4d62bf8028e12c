/* sync_plugin.c -- the sync rule of a plug-in (td_plugin_sync in tandem/plugin.h): gradients of the
 * ranks pass a function of the plug-in bucket by bucket, and so do the params after the update.
 * What either leaves out is what data parallel training does: gradients are added up by an
 * all-reduce, params stay as they are. When ranks meet, all get the params of rank 0 after the
 * plug-in's function was called. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/sync.h"
#include "tandem/plugin.h"

typedef struct own_rule {
    td__sync base;
    const td_plugin_sync *of;
    uint64_t step;
    size_t count;  /* floats of a gradient block, statistics of states included */
    size_t params; /* floats of all params and states */
    float *sum;    /* (count) */
} own_rule;

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    (void)w;
    return c->plugin != NULL;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    if (!c->plugin)
        return TD_FAIL(TD_EINVAL, "train.sync: plugin needs plugin.sync, which names a rule of a "
                                  "plug-in: leave train.sync out");
    if (c->zero || c->compressor || c->backup || c->mesh.size[TD_AXIS_PIPELINE] > 1 ||
        c->mesh.size[TD_AXIS_TENSOR] > 1)
        return TD_FAIL(TD_EINVAL, "plugin.sync: not with parallel.zero, compress, backup, pipeline "
                                  "or tensor");
    if (w->elastic)
        return TD_FAIL(TD_EINVAL, "plugin.sync: not with elastic ranks");
    return td__sync_needs_host(j, "plugin.sync");
}

static td_status check_params(const td__sync_config *c, const td_params *ps)
{
    (void)c;
    for (int i = 0; i < td_params_count(ps); i++)
        if (td_params_info(ps, i).sparse)
            return TD_FAIL(TD_EINVAL,
                           "plugin.sync: %s has row-sparse gradients, which a plug-in "
                           "does not get: leave `sparse` out",
                           td_params_info(ps, i).name);
    return TD_OK;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)w;
    out->own_params = out->own_data = c->plugin && c->plugin->params;
}

static td_status create(td__sync *s)
{
    own_rule *r = (own_rule *)s;
    r->of = s->x.config->plugin;
    r->count = td__step_floats(s->engine);
    r->params = td__params_total(s->x.step.params);
    r->sum = td__calloc(r->count, sizeof *r->sum);
    return r->sum ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the sum of gradients");
}

static void destroy(td__sync *s)
{
    td__free(((own_rule *)s)->sum);
}

static td_status begin(td__sync *s, const td__sync_place *at)
{
    ((own_rule *)s)->step = at->step;
    return TD_OK;
}

static td_plugin_step place(const own_rule *r, size_t at, bool meeting)
{
    td_comm *comm = r->base.x.comm;
    return (td_plugin_step){.comm = comm,
                            .rank = comm ? td_comm_rank(comm) : 0,
                            .ranks = comm ? td_comm_size(comm) : 1,
                            .step = r->step,
                            .begin = at,
                            .meeting = meeting};
}

static td_status add_up(const own_rule *r, float *data, size_t n)
{
    td_comm *comm = r->base.x.comm;
    return comm ? td_allreduce(comm, data, data, n, TD_F32, TD_REDUCE_SUM, NULL) : TD_OK;
}

/* Gradients bucket by bucket; statistics of states behind them are added up in any case. */
static td_status reduce(own_rule *r)
{
    size_t grads = td__params_dense(r->base.x.step.params);
    size_t bucket = r->base.x.config->bucket_nbytes / sizeof(float);
    bucket = bucket ? bucket : 1 << 20;
    for (size_t at = 0, n; at < grads; at += n) {
        td_plugin_step s = place(r, at, false);
        n = grads - at < bucket ? grads - at : bucket;
        TD_TRY(r->of->gradients ? r->of->gradients(&s, r->sum + at, n) : add_up(r, r->sum + at, n));
    }
    return grads < r->count ? add_up(r, r->sum + grads, r->count - grads) : TD_OK;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    own_rule *r = (own_rule *)s;
    td__grad_share own;
    td__step_sum sum = {.user = r, .grads = r->sum};

    TD_TRY(td__step_own_share(s->engine, &own));
    if (own.grads)
        memcpy(r->sum, own.grads, r->count * sizeof *r->sum);
    else
        memset(r->sum, 0, r->count * sizeof *r->sum);
    TD_TRY(reduce(r));
    TD_TRY(td__sync_sum_numbers(s));
    TD_TRY(td__step_update(s->engine, lr, &sum));
    td__step_done(s->engine, out);
    return TD_OK;
}

static td_status exchange_params(own_rule *r, bool meeting)
{
    td_params *ps = r->base.x.step.params;
    td_comm *comm = r->base.x.comm;
    td_plugin_step at = place(r, 0, meeting);
    td__mapping map;

    if (!r->of->params)
        return TD_OK;
    TD_TRY(td__params_map(ps, 0, r->params, TD_MAP_BOTH, &map));
    td_status st = r->of->params(&at, map.at, r->params);
    if (!st && meeting && comm)
        st = td_broadcast(comm, map.at, r->params, TD_F32, 0, NULL);
    if (st) {
        td__mem_map_drop(&map);
        return st;
    }
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(ps);
    return TD_OK;
}

static td_status gather(td__sync *s)
{
    return exchange_params((own_rule *)s, false);
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    return why == TD_MEET_BEGIN ? TD_OK : exchange_params((own_rule *)s, true);
}

const td__sync_ops td__sync_plugin = {
    .name = "plugin",
    .help = "a gradient hook or sync rule of a plug-in (plugin.sync)",
    .promise = "what the plug-in promises",
    .unplanned = "a plug-in may make calls of its own",
    .size = sizeof(own_rule),
    .fits = fits,
    .check = check,
    .check_params = check_params,
    .traits = traits,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .step = step,
    .gather = gather,
    .meet = meet,
};
