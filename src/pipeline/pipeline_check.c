/* pipeline_check.c -- what jobs ask for a pipeline, or for ranks that share layers, and with what
 * neither can be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "pipeline/sync_pipeline_impl.h"

/* Replicas of layers in pieces that share the optimizer's states are a pipeline of one stage. */
bool td__pipeline_asked(const td__sync_config *c)
{
    bool in_pieces = c->mesh.size[TD_AXIS_TENSOR] > 1 || c->tensor_pieces > 1;
    /* With servers the mesh is that of a worker, which has a config of its own. */
    return !c->servers && (c->mesh.size[TD_AXIS_PIPELINE] > 1 || (c->zero && in_pieces));
}

static int at_least_one(int size)
{
    return size > 1 ? size : 1;
}

bool td__pipeline_fits(const td__sync_config *c, const td__sync_world *w)
{
    return td__pipeline_asked(c) && w->ranks > 1;
}

/* What a job says that has this rule. */
static const char *said(const td__sync_config *c)
{
    return c->mesh.size[TD_AXIS_PIPELINE] > 1 ? "parallel.pipeline"
           : c->mesh.size[TD_AXIS_TENSOR] > 1 ? "parallel.tensor"
                                              : "parallel.zero with parallel.tensor_pieces";
}

const td__schedule_def *td__pipeline_schedule(const td__sync_config *c)
{
    const td__schedule_def *d = NULL;
    td_status st = td__schedule_find(c->schedule ? c->schedule : "1f1b", &d);
    return st ? NULL : d; /* a job's is one of the list */
}

/* What a pipeline that is not emptied in each step cannot be with. */
static td_status check_flow(const td__sync_config *c, const td__sync_job *j,
                            const td__sync_world *w)
{
    int replicas = w->ranks / at_least_one(c->mesh.size[TD_AXIS_PIPELINE]);
    const td__schedule_def *d = td__pipeline_schedule(c);
    if (!d || !d->delay)
        return TD_OK;
    if (c->mesh.size[TD_AXIS_TENSOR] > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.schedule %s: not with parallel.tensor: its stages keep versions "
                       "of whole weights; use 1f1b, or parallel.tensor 1",
                       d->name);
    if (c->zero)
        return TD_FAIL(
            TD_EINVAL,
            "parallel.schedule %s: not with parallel.zero: stages keep versions of their "
            "weights; use 1f1b",
            d->name);
    if (j->optim && j->optim->clip_norm > 0)
        return TD_FAIL(TD_EINVAL,
                       "parallel.schedule %s: not with train.clip.norm: the norm of all stages' "
                       "gradients is never known at once; use train.clip.value, or 1f1b",
                       d->name);
    if (c->in_order)
        return TD_FAIL(TD_EINVAL,
                       "parallel.update in-order: stages of the schedule %s update when they can; "
                       "use together, or 1f1b",
                       d->name);
    if (j->accumulate > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.schedule %s: not with train.accumulate: a batch is a step; raise "
                       "train.batch and train.micro_batches instead",
                       d->name);
    if (j->micro_batches && j->micro_batches < replicas)
        return TD_FAIL(TD_EINVAL,
                       "parallel.schedule %s: every replica needs a micro-batch, and there are %d "
                       "for %d replicas: raise train.micro_batches",
                       d->name, j->micro_batches, replicas);
    return td__sync_needs_host(j, "parallel.schedule");
}

/* Where ranks may be lost, a step is made whole or not at all by all of them at once. Params that
 * are compressed between replicas are whole on ranks of which each keeps its pieces up to date. */
static td_status check_elastic(const td__sync_config *c)
{
    const td__schedule_def *d = td__pipeline_schedule(c);
    bool pieces = c->mesh.size[TD_AXIS_TENSOR] > 1;
    const char *with = c->compressor && pieces ? "parallel.compress"
                       : c->in_order           ? "parallel.update: in-order"
                       : d && d->delay         ? d->name
                                               : NULL;
    return with ? TD_FAIL(TD_EINVAL,
                          "%s: elastic ranks not with %s: leave it out, or start fixed ranks",
                          said(c), with)
                : TD_OK;
}

td_status td__pipeline_check(const td__sync_config *c, const td__sync_job *j,
                             const td__sync_world *w)
{
    td__pipeline_shape shape;
    const td__compressor_ops *compressor =
        c->compressor ? td__compressor_find(c->compressor) : NULL;
    if (c->zero > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.zero %d: stages of a pipeline, and ranks with pieces of layers, "
                       "have the params that they update; use 1, which has replicas share the "
                       "optimizer's states",
                       c->zero);
    if (compressor && (compressor->takes_momentum || compressor->whole))
        return TD_FAIL(TD_EINVAL,
                       "%s needs all gradients in one place, and replicas of a stage have part of "
                       "them; use bf16, f16 or powersgd",
                       c->compressor);
    if (c->backup)
        return TD_FAIL(TD_EINVAL, "%s: not with parallel.backup; use parallel.data alone", said(c));
    if (w->elastic)
        TD_TRY(check_elastic(c));
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with %s; use parallel.data alone", said(c));
    if (j->threads > 1)
        return TD_FAIL(TD_EINVAL,
                       "%s: ranks run one compute thread each, not %d; start more ranks instead",
                       said(c), j->threads);
    TD_TRY(check_flow(c, j, w));
    return w->starts || w->ranks > 1 ? td__pipeline_shape_of(c, w->ranks, w->elastic, &shape)
                                     : TD_OK;
}

/* ---- Ranks that share layers ----------------------------------------------------------------- */

bool td__tensor_asked(const td__sync_config *c)
{
    return c->mesh.size[TD_AXIS_TENSOR] > 1;
}

bool td__tensor_fits(const td__sync_config *c, const td__sync_world *w)
{
    return td__tensor_asked(c) && w->ranks > 1;
}

td_status td__tensor_check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    int size = c->mesh.size[TD_AXIS_TENSOR];
    if (j->optim && j->optim->name &&
        (!strcmp(j->optim->name, "lamb") || !strcmp(j->optim->name, "lars")))
        return TD_FAIL(TD_EINVAL,
                       "train.optimizer: %s needs the norms of whole layers, which "
                       "parallel.tensor cuts; use adam or sgd",
                       j->optim->name);
    if (c->tensor_pieces && c->tensor_pieces % size)
        return TD_FAIL(TD_EINVAL,
                       "parallel.tensor_pieces: %d pieces do not divide by %d ranks "
                       "(parallel.tensor); use 2, 4 or 8 of each",
                       c->tensor_pieces, size);
    return td__pipeline_check(c, j, w);
}
