/* sync_skeleton.c -- random partition with a skeleton network (parallel.partition: skeleton).
 *
 * Of every weight matrix the connections of highest |weight| + |gradient| are the skeleton, which
 * all ranks hold; what is left of a neuron, a row of the matrix, is held by one rank, drawn at
 * random. A rank trains the network that it holds, with zeros for what it does not, on its own
 * micro-batches:
 *
 *     skeleton    g = mean over the step's rows     summed up over ranks in each step
 *     own rest    g = mean over this rank's rows    no message
 *     others'     is 0 here, and stays it
 *
 * Every k steps ranks bring together weights, gradients and the optimizer's states of their rests,
 * and skeleton and rests are drawn anew: the highest by layer, of equal ones the first; a neuron's
 * rank by its number, the number of the draw and the seed. Params without rows (biases, scales of
 * norms) and statistics are part of the skeleton. Before params are evaluated or saved the rests
 * are brought together, too: the model is skeleton and all rests. Which connections are the
 * skeleton is a state of checkpoints, so that a run that is resumed goes on as one that was not
 * interrupted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/rng.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "parallel/step_plan.h"
#include "parallel/compress/top_k.h"

/* Floats that are exchanged at once; bits of the skeleton in a float of a checkpoint, and floats
 * before them: the number of the draw. */
enum { PIECE = 1 << 18, BITS = 16, HEAD = 3 };
enum { STREAM = 0x736b656c }; /* of random numbers */

typedef enum part { SKELETON, OWN, OTHERS } part;

typedef struct skeleton {
    td__sync base;
    int rank, ranks;
    size_t dense, floats; /* elements of dense params; of the gradient block, with statistics */
    uint8_t *part;        /* (dense) */
    uint32_t *list;       /* (dense) elements: of the skeleton, then of the rests; rising */
    size_t n_skeleton;
    float *drawn; /* HEAD, then the skeleton's bits */
    size_t n_drawn;
    float *sum, *packed; /* (floats) the step's gradient; (PIECE) what is exchanged */
    uint32_t *index;     /* (the largest param) */
    uint64_t step;
    bool whole; /* params are those of all ranks; rests of others are to be left out again */
    bool begun;
} skeleton;

static bool asked(const td__sync_config *c)
{
    return c->partition != 0;
}

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    return asked(c) && w->ranks > 1;
}

static const char *beside(const td__sync_config *c, const td__sync_job *j)
{
    return c->mesh.size[TD_AXIS_PIPELINE] > 1 ? "parallel.pipeline"
           : c->mesh.size[TD_AXIS_TENSOR] > 1 ? "parallel.tensor"
           : c->zero                          ? "parallel.zero"
           : c->compressor                    ? "parallel.compress"
           : c->backup                        ? "parallel.backup"
           : j->verify > 0                    ? "train.verify"
                                              : NULL;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    const char *optimizer = j->optim && j->optim->name ? j->optim->name : "sgd", *with;
    with = beside(c, j);
    if (with)
        return TD_FAIL(TD_EINVAL,
                       "parallel.partition skeleton: not with %s: its ranks train networks of "
                       "their own; leave one of them out",
                       with);
    if (w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "parallel.partition skeleton: not on elastic ranks: a lost rank is the only "
                       "one that has its part of the weights; start fixed ranks (-n N)");
    if (j->optim && j->optim->clip_norm > 0)
        return TD_FAIL(TD_EINVAL,
                       "parallel.partition skeleton: not with train.clip.norm: no rank has all "
                       "gradients; use train.clip.value");
    if (!strcmp(optimizer, "lamb") || !strcmp(optimizer, "lars"))
        return TD_FAIL(TD_EINVAL,
                       "parallel.partition skeleton: not with %s, which needs the norms of whole "
                       "layers; use adam or sgd",
                       optimizer);
    return td__sync_needs_host(j, "parallel.partition");
}

/* Neurons are rows of a matrix, or filters. */
static bool has_neurons(const td_param_info *info)
{
    return !info->is_state && !info->sparse && info->shape.ndim > 1 && info->count > 0;
}

static td_status check_params(const td__sync_config *c, const td_params *ps)
{
    bool any = false;
    (void)c;
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (info.sparse)
            return TD_FAIL(TD_EINVAL,
                           "parallel.partition skeleton: not with row-sparse gradients ('%s'); "
                           "leave `sparse` out",
                           info.name);
        any = any || has_neurons(&info);
    }
    return any ? TD_OK
               : TD_FAIL(TD_EINVAL,
                         "parallel.partition skeleton: the model has no layer with neurons");
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->own_params = out->own_data = true;
}

static size_t exchange_nbytes(const td__sync_sizes *z)
{
    return 2 * z->grads + z->params / 4 + PIECE * sizeof(float);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status create(td__sync *s)
{
    skeleton *k = (skeleton *)s;
    const td_params *ps = s->x.step.params;
    size_t most = 1;
    for (int i = 0; i < td_params_count(ps); i++)
        most = td_params_info(ps, i).count > most ? td_params_info(ps, i).count : most;
    k->rank = td_comm_rank(s->x.comm);
    k->ranks = td_comm_size(s->x.comm);
    k->dense = td__params_dense(ps);
    k->floats = td__step_floats(s->engine);
    k->n_drawn = HEAD + (k->dense + BITS - 1) / BITS;
    k->part = td__calloc(k->dense + 1, 1);
    k->list = td__calloc(k->dense + 1, sizeof *k->list);
    k->drawn = td__calloc(k->n_drawn, sizeof *k->drawn);
    k->sum = td__calloc(k->floats + 1, sizeof *k->sum);
    k->packed = td__calloc(PIECE, sizeof *k->packed);
    k->index = td__calloc(most, sizeof *k->index);
    return k->part && k->list && k->drawn && k->sum && k->packed && k->index
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "no memory for a skeleton of %zu params", k->dense);
}

static void destroy(td__sync *s)
{
    skeleton *k = (skeleton *)s;
    td__free(k->part);
    td__free(k->list);
    td__free(k->drawn);
    td__free(k->sum);
    td__free(k->packed);
    td__free(k->index);
}

/* ---- What a checkpoint holds ----------------------------------------------------------------- */

static uint64_t draw_number(const skeleton *k)
{
    uint64_t n = 0;
    for (int i = HEAD; i-- > 0;)
        n = n << BITS | (uint64_t)k->drawn[i];
    return n;
}

static void set_draw_number(skeleton *k, uint64_t n)
{
    for (int i = 0; i < HEAD; i++, n >>= BITS)
        k->drawn[i] = (float)(n & 0xffff);
}

static bool is_drawn(const skeleton *k, size_t element)
{
    uint32_t bits = (uint32_t)k->drawn[HEAD + element / BITS];
    return bits >> element % BITS & 1;
}

static void set_drawn(skeleton *k, size_t element)
{
    float *at = &k->drawn[HEAD + element / BITS];
    *at = (float)((uint32_t)*at | 1U << element % BITS);
}

static int states(td__sync *s, td__sync_block *out)
{
    skeleton *k = (skeleton *)s;
    out[0] = (td__sync_block){.name = "skeleton", .data = k->drawn, .count = k->n_drawn};
    return 1;
}

/* ---- Drawing --------------------------------------------------------------------------------- */

/* Connections of a param that are skeleton. */
static size_t drawn_of(const td_param_info *info, double share)
{
    return (size_t)(share * (double)info->count + 0.5);
}

/* importance: (dense) |weight| + |gradient|. */
static void draw(skeleton *k, const float *importance, uint64_t number)
{
    const td_params *ps = k->base.x.step.params;
    double share = k->base.x.config->skeleton_share;
    memset(k->drawn, 0, k->n_drawn * sizeof *k->drawn);
    set_draw_number(k, number);
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (!has_neurons(&info))
            continue;
        size_t n = drawn_of(&info, share);
        if (n)
            td__top_k(td__cpu_isa(), importance + info.offset, info.count, n, k->index);
        for (size_t e = 0; e < n; e++)
            set_drawn(k, info.offset + k->index[e]);
    }
}

static void make_list(skeleton *k)
{
    size_t n = 0;
    for (int rests = 0; rests < 2; rests++) {
        for (size_t e = 0; e < k->dense; e++)
            if ((k->part[e] != SKELETON) == rests)
                k->list[n++] = (uint32_t)e;
        k->n_skeleton = rests ? k->n_skeleton : n;
    }
}

/* Who holds what, as drawn. */
static void deal_out(skeleton *k)
{
    const td_params *ps = k->base.x.step.params;
    memset(k->part, SKELETON, k->dense);
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (!has_neurons(&info))
            continue;
        size_t row = info.count / (size_t)info.shape.dim[0];
        td__rng_key key = {.seed = td__micro_batch_options(k->base.x.step.set)->seed,
                           .stream = STREAM,
                           .step = (uint32_t)draw_number(k),
                           .micro_batch = (uint32_t)i};
        for (size_t e = 0; e < info.count; e++) {
            int owner = (int)(td__rng_u32(&key, e / row) % (uint32_t)k->ranks);
            if (!is_drawn(k, info.offset + e))
                k->part[info.offset + e] = owner == k->rank ? OWN : OTHERS;
        }
    }
    make_list(k);
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

/* The listed elements of the block become their sums over ranks; of the rests only what the holder
 * has counts. */
static td_status add_up(skeleton *k, float *block, const uint32_t *list, size_t count)
{
    for (size_t at = 0, n; at < count; at += n, list += n) {
        n = count - at < PIECE ? count - at : PIECE;
        for (size_t i = 0; i < n; i++)
            k->packed[i] = k->part[list[i]] == OTHERS ? 0 : block[list[i]];
        TD_TRY(td_allreduce(k->base.x.comm, k->packed, k->packed, n, TD_F32, TD_REDUCE_SUM, NULL));
        for (size_t i = 0; i < n; i++)
            block[list[i]] = k->packed[i];
    }
    td__step_times_of(k->base.engine)->sent_nbytes += count * sizeof *block;
    return TD_OK;
}

static td_status add_up_rests(skeleton *k, float *block)
{
    return add_up(k, block, k->list + k->n_skeleton, k->dense - k->n_skeleton);
}

/* Weights and the optimizer's states of all ranks. */
static td_status bring_together(skeleton *k)
{
    td_optimizer *o = k->base.x.step.optimizer;
    td__mapping map;
    if (k->whole)
        return TD_OK;
    TD_TRY(add_up_rests(k, td_params_block(k->base.x.step.params, NULL)));
    for (int i = 0; i < td_optimizer_state_count(o); i++) {
        TD_TRY(td__optim_map_state(o, i, TD_MAP_BOTH, &map));
        td_status st = add_up_rests(k, map.at);
        TD_TRY(td__mem_unmap(&map));
        TD_TRY(st);
    }
    td_params_touch(k->base.x.step.params);
    k->whole = true;
    return TD_OK;
}

static void leave_out(skeleton *k)
{
    float *w = td_params_block(k->base.x.step.params, NULL);
    for (size_t i = k->n_skeleton; i < k->dense; i++)
        if (k->part[k->list[i]] == OTHERS)
            w[k->list[i]] = 0;
    td_params_touch(k->base.x.step.params);
    k->whole = false;
}

/* ---- A step ---------------------------------------------------------------------------------- */

static td_status begin(td__sync *s, const td__sync_place *at)
{
    skeleton *k = (skeleton *)s;
    k->step = at->step;
    if (k->whole) {
        deal_out(k);
        leave_out(k);
    }
    return TD_OK;
}

/* The gradient that this rank's update is made with: its rows weigh all in its rest. */
static td_status find_gradient(skeleton *k, const td__grad_share *own)
{
    double all = k->base.x.step.weights ? 1 : (double)td__step_rows(k->base.engine);
    double mine = td__step_own_weight(k->base.engine);
    float scale = mine > 0 ? (float)(all / mine) : 0;
    if (own->grads)
        memcpy(k->sum, own->grads, k->floats * sizeof *k->sum);
    else
        memset(k->sum, 0, k->floats * sizeof *k->sum);
    TD_TRY(add_up(k, k->sum, k->list, k->n_skeleton));
    for (size_t i = k->n_skeleton; i < k->dense; i++)
        k->sum[k->list[i]] *= k->part[k->list[i]] == OWN ? scale : 0;
    if (k->floats > k->dense) /* statistics */
        TD_TRY(td_allreduce(k->base.x.comm, k->sum + k->dense, k->sum + k->dense,
                            k->floats - k->dense, TD_F32, TD_REDUCE_SUM, NULL));
    return TD_OK;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    skeleton *k = (skeleton *)s;
    td__grad_share own;
    TD_TRY(td__step_own_share(s->engine, &own));
    TD_TRY(td__sync_sum_numbers(s));
    td__step_times_of(s->engine)->sent_nbytes = 0;
    TD_TRY(find_gradient(k, &own));
    TD_TRY(td__step_update(s->engine, lr, &(td__step_sum){.user = k, .grads = k->sum}));
    leave_out(k);
    td__step_done(s->engine, out);
    out->times.plain_nbytes = k->floats * sizeof(float);
    return TD_OK;
}

/* Every k steps all is drawn anew. */
static td_status gather(td__sync *s)
{
    skeleton *k = (skeleton *)s;
    const float *w = td_params_block(s->x.step.params, NULL);
    if (!td__sync_kind(s))
        return TD_OK;
    TD_TRY(add_up_rests(k, k->sum));
    TD_TRY(bring_together(k));
    for (size_t e = 0; e < k->dense; e++)
        k->sum[e] = fabsf(w[e]) + fabsf(k->sum[e]);
    draw(k, k->sum, draw_number(k) + 1);
    return TD_OK;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    skeleton *k = (skeleton *)s;
    if (why != TD_MEET_BEGIN)
        return bring_together(k);
    if (!k->begun) /* no gradient is known yet */
        draw(k, td_params_block(s->x.step.params, NULL), 0);
    k->begun = k->whole = true;
    return TD_OK;
}

/* ---- The plan -------------------------------------------------------------------------------- */

/* 1: all is drawn anew after the step. */
static int kind(const td__sync_config *c, uint64_t step, uint64_t steps)
{
    (void)steps;
    return step % (uint64_t)c->skeleton_every == 0;
}

static void plan_sum(td__planner *w, size_t count)
{
    for (size_t at = 0; at < count; at += PIECE)
        td__planner_coll(w, TD_PLAN_ALLREDUCE,
                         (count - at < PIECE ? count - at : PIECE) * sizeof(float), 0);
}

static void plan(td__planner *w)
{
    const td_params *ps = w->at->params;
    size_t dense = td__params_dense(ps), rests = 0;
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (has_neurons(&info))
            rests += info.count - drawn_of(&info, w->at->config->skeleton_share);
    }
    td__planner_runs(w);
    td__planner_numbers(w);
    plan_sum(w, dense - rests);
    if (w->floats > dense)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, (w->floats - dense) * sizeof(float), 0);
    td__planner_update(w, 0);
    for (int i = -2; td__planner_kind(w) && i < w->at->optim.states; i++)
        plan_sum(w, rests); /* gradients, params, the optimizer's states */
}

const td__sync_ops td__sync_skeleton = {
    .name = "skeleton",
    .help = "random partition: ranks train the important connections together, others alone",
    .promise = "a function of the number of ranks, the seed, the share and the interval",
    .size = sizeof(skeleton),
    .key = "parallel.partition",
    .sample = "skeleton",
    .asked = asked,
    .fits = fits,
    .check = check,
    .check_params = check_params,
    .traits = traits,
    .exchange = exchange_nbytes,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .step = step,
    .gather = gather,
    .plan = plan,
    .kind = kind,
    .meet = meet,
    .states = states,
};
