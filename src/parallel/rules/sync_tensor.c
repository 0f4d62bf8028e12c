/* sync_tensor.c -- the sync rule of tensor parallel ranks: those of a replica have pieces of each
 * wide layer, run the same micro-batches and exchange activations while they do (graph/tensor.h);
 * replicas add up gradients as another rule does it for whole models.
 *
 * What ranks have of the params: parallel/tensor_peers.h. Together with a pipeline, its rule is the
 * one (pipeline/sync_pipeline.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "parallel/sync.h"
#include "parallel/tensor_peers.h"

typedef struct tensor {
    td__sync base;
    td__sync *inner; /* how replicas add up gradients; its engine is this rule's */
    td__sync_config inner_config;
    td__tensor_peers peers; /* ranks of this replica */
    td_comm *data;          /* ranks with the same pieces; NULL: one replica */
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

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    td__rank_mesh mesh = c->mesh;
    const td__compressor_ops *compressor =
        c->compressor ? td__compressor_find(c->compressor) : NULL;
    if (compressor && (compressor->takes_momentum || compressor->whole))
        return TD_FAIL(TD_EINVAL,
                       "parallel.compress %s needs all gradients in one place, and parallel.tensor "
                       "has pieces of them; use bf16, f16 or powersgd",
                       c->compressor);
    if (c->backup)
        return TD_FAIL(TD_EINVAL,
                       "parallel.tensor: not with parallel.backup: the ranks of a replica need "
                       "each other in every layer; use parallel.data alone");
    if (w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "parallel.tensor: not on elastic ranks: a rank that is lost takes pieces of "
                       "every layer with it; use parallel.data and parallel.pipeline, or start "
                       "fixed ranks");
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with parallel.tensor; use parallel.data");
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

/* Of what replicas add up. */
static size_t exchange(const td__sync_sizes *z)
{
    td__sync_config inner = *z->config;
    td__sync_sizes replicas = *z;
    inner.mesh = (td__rank_mesh){0};
    inner.rule = NULL;
    replicas.config = &inner;
    replicas.world.ranks /= size_of(z->config);
    return replicas.world.ranks > 1 ? td__sync_exchange(&replicas) : 0;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status create(td__sync *s)
{
    tensor *t = (tensor *)s;
    td_comm *world = s->x.comm;
    td__sync_ctx x = s->x;
    int size = size_of(s->x.config), rank = td_comm_rank(world);
    TD_TRY(td__tensor_peers_open(&t->peers, world, size, s->x.step.cuts));
    if (td_comm_size(world) > size)
        TD_TRY(td_comm_split(world, rank % size, 0, &t->data));
    td__micro_batch_set_comm(s->x.step.set, t->peers.comm);
    t->inner_config = *s->x.config;
    t->inner_config.mesh = (td__rank_mesh){0};
    t->inner_config.rule = NULL;
    x.config = &t->inner_config;
    x.comm = t->data;
    x.step.cuts = &t->peers.cuts;
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
    td__tensor_peers_close(&t->peers);
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
    TD_TRY(td__tensor_peers_sum(&t->peers, numbers, TD_REQUESTS));
    TD_TRY(t->inner->ops->step(t->inner, lr, out));
    out->seconds = NULL; /* are those of one rank of each replica */
    return TD_OK;
}

static td_status gather(td__sync *s)
{
    td__sync *inner = ((tensor *)s)->inner;
    return inner->ops->gather ? inner->ops->gather(inner) : TD_OK;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    if (why == TD_MEET_BEGIN)
        return TD_OK;
    return td__tensor_peers_fill(&((tensor *)s)->peers, s->x.step.params, s->x.step.optimizer, NULL,
                                 0);
}

static void abandon(td__sync *s, const char *why)
{
    tensor *t = (tensor *)s;
    if (t->inner && t->inner->ops->abandon)
        t->inner->ops->abandon(t->inner, why);
    td__tensor_peers_abort(&t->peers, why);
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
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .batch = batch,
    .step = step,
    .gather = gather,
    .meet = meet,
    .abandon = abandon,
};
