/* sync_tensor.c -- the sync rule of tensor parallel ranks: those of a replica have pieces of each
 * wide layer, run the same micro-batches and exchange activations while they do (graph/tensor.h);
 * replicas add up gradients as another rule does it for whole models.
 *
 * Every rank has the block of all params. Of params that are cut it keeps its own pieces up to
 * date: the others' have gradients of zero here. Before all params are wanted (evaluation,
 * checkpoint, the end) ranks hand out their pieces, with those of the optimizer's states. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "parallel/sync.h"

typedef struct tensor {
    td__sync base;
    td__sync *inner; /* how replicas add up gradients; its engine is this rule's */
    td__sync_config inner_config;
    td_comm *peers; /* ranks of this replica */
    td_comm *data;  /* ranks with the same pieces; NULL: one replica */
    td__step_cuts cuts;
    td__staging staging;
} tensor;

static int size_of(const td__sync_config *c)
{
    return c->mesh.size[TD_AXIS_TENSOR];
}

static bool asked(const td__sync_config *c)
{
    return size_of(c) > 1;
}

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    return asked(c) && w->ranks > 1;
}

static const char *beside(const td__sync_config *c)
{
    return c->mesh.size[TD_AXIS_PIPELINE] > 1 ? "parallel.pipeline"
           : c->zero                          ? "parallel.zero"
           : c->compressor                    ? "parallel.compress"
           : c->backup                        ? "parallel.backup"
                                              : NULL;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    td__rank_mesh mesh = c->mesh;
    if (beside(c))
        return TD_FAIL(TD_EINVAL, "parallel.tensor: not with %s yet", beside(c));
    if (w->elastic)
        return TD_FAIL(TD_EINVAL, "parallel.tensor: not on elastic ranks yet");
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with parallel.tensor");
    if (j->threads > 1)
        return TD_FAIL(TD_EINVAL,
                       "parallel.tensor: ranks run one compute thread each, not %d; start more "
                       "ranks instead",
                       j->threads);
    if (j->optim && j->optim->name &&
        (!strcmp(j->optim->name, "lamb") || !strcmp(j->optim->name, "lars")))
        return TD_FAIL(TD_EINVAL,
                       "train.optimizer: %s needs the norms of whole layers, which "
                       "parallel.tensor cuts; use adam or sgd",
                       j->optim->name);
    if (c->tensor_pieces && c->tensor_pieces % size_of(c))
        return TD_FAIL(TD_EINVAL,
                       "parallel.tensor_pieces: %d pieces do not divide by %d ranks "
                       "(parallel.tensor); use 2, 4 or 8 of each",
                       c->tensor_pieces, size_of(c));
    return w->starts || w->ranks > 1 ? td__rank_mesh_complete(&mesh, w->ranks) : TD_OK;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    out->no_partials = true; /* those of the inner rule */
    out->threads = 1;
    out->replicas = w->ranks / size_of(c);
    out->parts = w->ranks / size_of(c);
    out->part = w->rank / size_of(c);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status sum(void *user, double *numbers, size_t n)
{
    return td_allreduce(((tensor *)user)->peers, numbers, numbers, n, TD_F64, TD_REDUCE_SUM, NULL);
}

static td_status create(td__sync *s)
{
    tensor *t = (tensor *)s;
    td_comm *world = s->x.comm;
    td__sync_ctx x = s->x;
    int size = size_of(s->x.config), rank = td_comm_rank(world);
    TD_TRY(td_comm_split(world, rank / size, 0, &t->peers));
    if (td_comm_size(world) > size)
        TD_TRY(td_comm_split(world, rank % size, 0, &t->data));
    td__micro_batch_set_comm(s->x.step.set, t->peers);
    t->inner_config = *s->x.config;
    t->inner_config.mesh = (td__rank_mesh){0};
    t->inner_config.rule = NULL;
    if (s->x.step.cuts)
        t->cuts = *s->x.step.cuts;
    t->cuts.sum = sum;
    t->cuts.user = t;
    x.config = &t->inner_config;
    x.comm = t->data;
    x.step.cuts = &t->cuts;
    x.step.bounds = NULL;
    TD_TRY(td__sync_create(&x, &t->inner));
    td__step_engine_destroy(s->engine);
    s->engine = t->inner->engine;
    return TD_OK;
}

static void destroy(td__sync *s)
{
    tensor *t = (tensor *)s;
    td__micro_batch_set_comm(s->x.step.set, NULL);
    if (t->inner) {
        s->engine = NULL; /* it is the inner rule's */
        td__sync_destroy(t->inner);
    }
    td_comm_destroy(t->data);
    td_comm_destroy(t->peers);
    td__free(t->staging.at);
}

/* ---- A step ---------------------------------------------------------------------------------- */

static td_status begin(td__sync *s, const td__sync_place *at)
{
    td__sync *inner = ((tensor *)s)->inner;
    return inner->ops->begin ? inner->ops->begin(inner, at) : TD_OK;
}

static td_status batch(td__sync *s, const td__batch *b)
{
    return td__sync_batch(((tensor *)s)->inner, b);
}

/* Peers have the same losses; what each asks for is told to the replicas' ranks by one of them. */
static td_status step(td__sync *s, double lr, td__step_result *out)
{
    tensor *t = (tensor *)s;
    size_t n;
    double *numbers = td__step_numbers(s->engine, &n);
    TD_TRY(sum(t, numbers, TD_REQUESTS));
    TD_TRY(t->inner->ops->step(t->inner, lr, out));
    out->seconds = NULL; /* are those of one rank of each replica */
    return TD_OK;
}

static td_status gather(td__sync *s)
{
    td__sync *inner = ((tensor *)s)->inner;
    return inner->ops->gather ? inner->ops->gather(inner) : TD_OK;
}

/* ---- Params of other ranks ------------------------------------------------------------------- */

/* All pieces of the params in a block that lies as they do. */
static td_status fill(tensor *t, float *block)
{
    for (int i = 0; i < t->cuts.n; i++) {
        td_attr_pieces how = t->cuts.at[i].pieces;
        how.ranks = td_comm_size(t->peers);
        td_param_info info = td_params_info(t->base.x.step.params, t->cuts.at[i].param);
        TD_TRY(td__pieces_gather(t->peers, &how, block + info.offset, sizeof *block, &t->staging));
    }
    return TD_OK;
}

static td_status fill_map(tensor *t, td__mapping *map)
{
    td_status st = fill(t, map->at);
    if (!st)
        return td__mem_unmap(map);
    td__mem_map_drop(map);
    return st;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    tensor *t = (tensor *)s;
    td_params *ps = s->x.step.params;
    td_optimizer *o = s->x.step.optimizer;
    td__mapping map;
    if (why == TD_MEET_BEGIN)
        return TD_OK;
    TD_TRY(td__params_map(ps, 0, td__params_total(ps), TD_MAP_BOTH, &map));
    TD_TRY(fill_map(t, &map));
    td_params_touch(ps);
    for (int k = 0; k < td_optimizer_state_count(o); k++) {
        TD_TRY(td__optim_map_state(o, k, TD_MAP_BOTH, &map));
        TD_TRY(fill_map(t, &map));
    }
    return TD_OK;
}

static void abandon(td__sync *s, const char *why)
{
    tensor *t = (tensor *)s;
    if (t->inner && t->inner->ops->abandon)
        t->inner->ops->abandon(t->inner, why);
    if (t->peers)
        td_comm_abort(t->peers, why);
    if (t->data)
        td_comm_abort(t->data, why);
}

const td__sync_ops td__sync_tensor = {
    .name = "tensor",
    .help = "ranks have parts of each wide layer and exchange activations",
    .promise = "the bits of one rank with the same parallel.tensor_pieces",
    .size = sizeof(tensor),
    .key = "parallel.tensor",
    .sample = "2",
    .asked = asked,
    .fits = fits,
    .check = check,
    .traits = traits,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .batch = batch,
    .step = step,
    .gather = gather,
    .meet = meet,
    .abandon = abandon,
};
