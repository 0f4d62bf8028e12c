/* stage_params.c -- see stage_params.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/stage_params.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/cost.h"
#include "graph/params.h"
#include "pipeline/chunks.h"

/* The chunk that updates these elements; -1: none does. */
static int chunk_of(const td__cut *cut, size_t element)
{
    for (int c = 0; c < cut->n_pieces; c++)
        for (int i = 0; i < cut->pieces[c].n_params; i++)
            if (cut->pieces[c].params[i].begin <= element && element < cut->pieces[c].params[i].end)
                return c;
    return -1;
}

/* ---- Who holds what -------------------------------------------------------------------------- */

/* The rank of the first replica of a stage. */
static int first_of(const td__rank_mesh *mesh, int stage)
{
    return td__rank_mesh_peer(mesh, 0, TD_AXIS_PIPELINE, stage);
}

static int stage_of_param(const td__cut *cut, const td__pipeline_shape *shape, const td_params *ps,
                          int i)
{
    int c = chunk_of(cut, td_params_info(ps, i).offset);
    return c < 0 ? 0 : td__schedule_stage(shape->schedule, shape->stages, c);
}

/* The replicas of a stage each have the optimizer's states of a part of its params, tensor by
 * tensor, of about the same size. */
static void deal_out(const td__cut *cut, const td__pipeline_shape *shape, const td_params *ps,
                     int stage, int *owner)
{
    size_t all = 0, before = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < td_params_count(ps); i++) {
            td_param_info info = td_params_info(ps, i);
            if (info.is_state || info.sparse || stage_of_param(cut, shape, ps, i) != stage)
                continue;
            size_t replica = turn ? (before + info.count / 2) * (size_t)shape->replicas / all : 0;
            if (turn)
                owner[i] = td__rank_mesh_peer(&shape->mesh, first_of(&shape->mesh, stage),
                                              TD_AXIS_DATA, (int)replica);
            before += turn ? info.count : 0;
            all += turn ? 0 : info.count;
        }
}

/* owner: by param. */
static void find_owners(const td__sync_hold *h, const td__cut *cut, const td__pipeline_shape *shape,
                        int *owner)
{
    for (int i = 0; i < td_params_count(h->params); i++)
        owner[i] = first_of(&shape->mesh, stage_of_param(cut, shape, h->params, i));
    for (int s = 0; h->config->zero && s < shape->stages; s++)
        deal_out(cut, shape, h->params, s, owner);
}

static int lanes_of(const td__pipeline_shape *shape)
{
    return shape->mesh.size[TD_AXIS_TENSOR];
}

bool td__stage_holds_steps(bool elastic, const td_params *ps)
{
    return elastic && td_params_trainable(ps) == td__params_dense(ps);
}

/* The rank whose shards a rank has, too; itself: nobody's. Of several replicas, the one in its
 * place of the first replica; with parallel.zero replicas have states of their own. mirror: of
 * elastic ranks, what td__holdings_of() says. */
static int twin_of(const td__sync_hold *h, const td__pipeline_shape *shape, int rank, int mirror)
{
    const td__rank_mesh *mesh = &shape->mesh;
    int replica = td__rank_mesh_coordinate(mesh, rank, TD_AXIS_DATA), last = shape->replicas - 1;
    if (h->elastic && !last)
        return mirror;
    if (h->elastic && h->config->zero)
        return td__rank_mesh_peer(mesh, rank, TD_AXIS_DATA, replica ? -1 : last);
    return h->config->zero ? rank : td__rank_mesh_peer(mesh, rank, TD_AXIS_DATA, -replica);
}

/* By rank. */
static void find_holdings(const td__sync_hold *h, const td__pipeline_shape *shape, int ranks,
                          td__holding *of)
{
    for (int r = 0; r < ranks; r++) {
        int twin = twin_of(h, shape, r, of[r].mirror);
        of[r] = (td__holding){ranks, r, twin == r ? -1 : twin};
    }
}

/* Who has what, in room for numbers by param, and twice by rank: kin have the same params, a group
 * the same states of params that are not in pieces. */
static td__owners owners_of(const td__sync_hold *h, const td__cut *cut,
                            const td__pipeline_shape *shape, int ranks, int *room)
{
    int *kin = room + td_params_count(h->params), *group = kin + ranks;
    find_owners(h, cut, shape, room);
    for (int r = 0; r < ranks; r++) {
        kin[r] = td__rank_mesh_coordinate(&shape->mesh, r, TD_AXIS_PIPELINE);
        group[r] = h->config->zero ? r / lanes_of(shape) : kin[r];
    }
    return (td__owners){room, lanes_of(shape), group};
}

static td_status make_shards(const td__sync_hold *h, const td__cut *cut,
                             const td__pipeline_shape *shape, int *room, td__shards **out)
{
    int rank = td_comm_rank(h->comm), size = td_comm_size(h->comm);
    td__owners owners = owners_of(h, cut, shape, size, room);
    td__mirror_place place;
    TD_TRY(td__mirror_place_of(td__comm_host_of(h->comm), rank, size, &place));
    return td__shards_create(&(td__shards_opts){.comm = h->comm,
                                                .params = h->params,
                                                .of_params = true,
                                                .owners = &owners,
                                                .kin = room + td_params_count(h->params),
                                                .twin = twin_of(h, shape, rank, place.mirror),
                                                .bucket_nbytes = h->config->bucket_nbytes},
                             out);
}

/* For owners_of(). */
static td_status make_room(const td__sync_hold *h, int ranks, int **out)
{
    *out = td__calloc((size_t)td_params_count(h->params) + 2 * (size_t)ranks, sizeof **out);
    return *out ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the params of a stage");
}

static td_status fit(const td__sync_hold *h, int ranks, td__pipeline_shape *shape, td__cut **cut)
{
    td__pipeline_world w = {.ranks = ranks, .elastic = h->elastic};
    return td__pipeline_fit(h->config, &w, h->set, h->rows, shape, cut);
}

td_status td__stage_shards(const td__sync_hold *h, td__shards **out)
{
    td__pipeline_shape shape;
    td__cut *cut;
    int *room, ranks = td_comm_size(h->comm);
    TD_TRY(fit(h, ranks, &shape, &cut));
    td_status st = make_room(h, ranks, &room);
    if (!st)
        st = make_shards(h, cut, &shape, room, out);
    td__free(room);
    td__cut_destroy(cut);
    return st;
}

td_status td__stage_map(const td__sync_hold *h, int ranks, td__ownership *out,
                        td__holding *holdings)
{
    td__pipeline_shape shape;
    td__cut *cut;
    int *room;
    TD_TRY(fit(h, ranks, &shape, &cut));
    if (holdings)
        find_holdings(h, &shape, ranks, holdings);
    td_status st = make_room(h, ranks, &room);
    if (!st && out) {
        td__owners owners = owners_of(h, cut, &shape, ranks, room);
        st = td__ownership_init_whole(out, h->params, ranks, &owners, h->config->bucket_nbytes);
    }
    td__free(room);
    td__cut_destroy(cut);
    return st;
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

static td_status allocate(td__stage_ranges *out, const td__cut *cut, const bool *own,
                          const td_params *ps)
{
    int n = 2 * td_params_count(ps); /* a param in pieces may end a range and begin one */
    for (int c = 0; c < cut->n_pieces; c++)
        n += own[c] ? 3 * cut->pieces[c].n_params : 0;
    *out = (td__stage_ranges){.at = td__calloc((size_t)n + 1, sizeof *out->at),
                              .grads = td__calloc((size_t)n + 1, sizeof *out->grads),
                              .first = td__calloc((size_t)cut->n_pieces + 1, sizeof *out->first)};
    return out->at && out->grads && out->first
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "no memory for the params of a stage");
}

td_status td__each_shared(const td__cut *cut, const td__tensor_walk *like, td__shared_fn *each,
                          void *user)
{
    for (int c = 0; c < cut->n_pieces; c++)
        for (int i = 0; i < cut->pieces[c].n_shared; i++) {
            const td__param_range *r = &cut->pieces[c].shared[i];
            for (int owner = 0; owner < cut->n_pieces; owner++)
                for (int k = 0; k < cut->pieces[owner].n_params; k++) {
                    td__param_range own = cut->pieces[owner].params[k];
                    td__tensor_walk w = *like;
                    w.rest.begin = own.begin > r->begin ? own.begin : r->begin;
                    w.rest.end = own.end < r->end ? own.end : r->end;
                    while (td__tensor_own(&w, &own))
                        TD_TRY(each(user, owner, c, own));
                }
        }
    return TD_OK;
}

/* Params, row-sparse ones and states lie apart in a block of gradients, so a range ends where one
 * of these begins. */
td_status td__stage_ranges_init(td__stage_ranges *out, const td__cut *cut, const bool *own,
                                const td__tensor_walk *like)
{
    const td_params *ps = like->ps;
    const size_t ends[] = {td__params_dense(ps), td_params_trainable(ps), SIZE_MAX};
    TD_TRY(allocate(out, cut, own, ps));
    for (int c = 0; c < cut->n_pieces; c++) {
        for (int i = 0; own[c] && i < cut->pieces[c].n_params; i++) {
            td__param_range r = cut->pieces[c].params[i];
            for (int k = 0; k < 3; k++) {
                size_t end = r.end < ends[k] ? r.end : ends[k];
                td__tensor_walk w = *like;
                w.rest = (td__param_range){r.begin, end};
                while (td__tensor_own(&w, &out->at[out->n]))
                    out->n++;
                r.begin = r.begin < end ? end : r.begin;
            }
        }
        out->first[c + 1] = out->n;
    }
    for (int i = 0; i < out->n; i++)
        out->grads[i] = td__pipeline_grads_of(ps, out->at[i]);
    return TD_OK;
}

void td__stage_ranges_fini(td__stage_ranges *r)
{
    td__free(r->at);
    td__free(r->grads);
    td__free(r->first);
    *r = (td__stage_ranges){0};
}

td__sync_config td__stage_inner_config(const td__sync_config *c)
{
    td__sync_config inner = *c;
    inner.mesh = (td__rank_mesh){0};
    inner.rule = NULL;
    inner.zero = 0;
    return inner;
}

static td_status find_first(const td__sync_hold *h, const td__cut *cut,
                            const td__pipeline_shape *shape, td__stage_ranges *out)
{
    td__tensor_walk like = {.ps = h->params, .lanes = lanes_of(shape)};
    bool *own = td__calloc((size_t)cut->n_pieces, sizeof *own);
    if (!own)
        return TD_FAIL(TD_ENOMEM, "no memory for the params of a stage");
    for (int c = 0; c < cut->n_pieces; c++)
        own[c] = td__schedule_stage(shape->schedule, shape->stages, c) == 0;
    td_status st = td__stage_ranges_init(out, cut, own, &like);
    td__free(own);
    return st;
}

td_status td__stage_inside(const td__sync_hold *h, int ranks, td__sync_inside *out)
{
    td__pipeline_shape shape;
    td__stage_ranges ranges = {0};
    td__cut *cut;
    TD_TRY(fit(h, ranks, &shape, &cut));
    td_status st = find_first(h, cut, &shape, &ranges);
    td__cut_destroy(cut);
    *out = (td__sync_inside){.config = td__stage_inner_config(h->config),
                             .ranks = shape.replicas,
                             .own = ranges.at,
                             .n_own = ranges.n,
                             .shares = h->config->zero > 0 && shape.replicas > 1 &&
                                       !td__stage_holds_steps(h->elastic, h->params)};
    ranges.at = st ? ranges.at : NULL;
    out->own = st ? NULL : out->own;
    td__stage_ranges_fini(&ranges);
    return st;
}

/* ---- How much -------------------------------------------------------------------------------- */

/* Sums of a tree over so many micro-batches that may wait for others: one per level. */
static size_t levels_of(int micro_batches)
{
    size_t n = 1;
    for (; micro_batches > 1; micro_batches /= 2)
        n++;
    return n;
}

/* Elements of [begin, end) that the rank has of all in its stage which has most of them. */
static size_t held_of(const td_params *ps, int lanes, td__param_range r)
{
    size_t most = 0;
    for (int lane = 0; lane < lanes; lane++) {
        td__tensor_walk w = {ps, lanes, lane, r, 0};
        size_t sum = 0;
        for (td__param_range own; td__tensor_own(&w, &own);)
            sum += own.end - own.begin;
        most = sum > most ? sum : most;
    }
    return most;
}

static double work_of(const td__piece *piece)
{
    double work[TD_RUN_PHASE_COUNT];
    td__program_work(piece->program, work);
    return work[TD_RUN_FORWARD] + work[TD_RUN_BACKWARD] + work[TD_RUN_WEIGHT];
}

void td__stage_needs(const td__cut *cut, const td__pipeline_shape *shape, const td_params *ps,
                     const int *slots, int micro_batches, td__stage_need *out)
{
    size_t dense = td__params_dense(ps), behind = td__params_total(ps) - dense;
    double all = 0;
    size_t versions =
        shape->schedule->delay ? (size_t)shape->schedule->delay(shape->stages) + 1 : 0;
    for (int s = 0; s < shape->stages; s++)
        out[s] = (td__stage_need){.read = behind};
    for (int c = 0; c < cut->n_pieces; c++)
        all += work_of(&cut->pieces[c]);
    for (int c = 0; c < cut->n_pieces; c++) {
        const td__piece *piece = &cut->pieces[c];
        td__stage_need *n = &out[td__schedule_stage(shape->schedule, shape->stages, c)];
        size_t own = 0;
        for (int i = 0; i < piece->n_params; i++) {
            td__param_range r = piece->params[i];
            r.begin = r.begin < dense ? r.begin : dense;
            r.end = r.end < dense ? r.end : dense;
            own += held_of(ps, lanes_of(shape), r);
        }
        for (int i = 0; i < piece->n_shared; i++)
            n->read += held_of(ps, lanes_of(shape), piece->shared[i]);
        n->params += own;
        n->read += versions * own;
        n->grads += own * sizeof(float) * ((size_t)slots[c] + levels_of(micro_batches));
        td_memory_plan m = td_program_memory(piece->program);
        n->packed += m.packed * (1 + versions);
        n->activations += m.scratch + m.constants;
        n->activations += piece->activations * (size_t)slots[c];
        n->work += all > 0 ? work_of(piece) / all : 0;
    }
}

size_t td__stage_nbytes(const td__stage_need *n, int states)
{
    return (n->params * (size_t)(1 + states) + n->read) * sizeof(float) + n->grads +
           n->activations + n->packed;
}

static td_status find_most(const td__sync_sizes *z, const td__cut *cut,
                           const td__pipeline_shape *shape, const int *slots, int micro_batches,
                           td__sync_need *out)
{
    td__stage_need *all = td__calloc((size_t)shape->stages, sizeof *all), *most = all;
    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory for the sizes of %d stages", shape->stages);
    td__stage_needs(cut, shape, z->ps, slots, micro_batches, all);
    for (int s = 1; s < shape->stages; s++)
        if (td__stage_nbytes(&all[s], z->states) > td__stage_nbytes(most, z->states))
            most = &all[s];
    size_t rows = td_params_trainable(z->ps) - td__params_dense(z->ps);
    size_t states = most->params / (size_t)(z->config->zero ? shape->replicas : 1);
    bool held = td__stage_holds_steps(z->world.elastic, z->ps), alone = shape->replicas == 1;
    size_t mirrored = held && alone ? most->params : 0; /* of another stage */
    if (held && (alone || z->config->zero))             /* those of a second rank */
        states *= 2;
    *out = (td__sync_need){
        .weights = (most->params + mirrored + most->read) * sizeof(float) + most->packed,
        .grads = most->grads + (held ? (most->params + mirrored) * sizeof(float) : 0),
        .optimizer = (states + rows) * (size_t)z->states * sizeof(float),
        .activations = most->activations};
    td__free(all);
    return TD_OK;
}

td_status td__stage_need_most(const td__sync_sizes *z, td__sync_need *out)
{
    td__pipeline_shape shape;
    td__cut *cut;
    td__plan *plan = NULL;
    int *slots = NULL;
    td__pipeline_world w = {.ranks = z->world.ranks, .elastic = z->world.elastic};
    TD_TRY(td__pipeline_fit(z->config, &w, z->set, z->rows, &shape, &cut));
    int batches = z->micro_batches / shape.replicas;
    batches = batches ? batches : 1;
    double *cost = td__calloc(3 * (size_t)cut->n_pieces, sizeof *cost);
    td_status st = cost ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d chunks", cut->n_pieces);
    if (!st) {
        td__pipeline_costs(cut, cost);
        st = td__pipeline_plan_of(cut, &shape.mesh, shape.schedule, batches,
                                  (td__plan_end){.clips = false}, cost, &plan, &slots);
    }
    td__free(cost);
    if (!st)
        st = find_most(z, cut, &shape, slots, batches, out);
    td__plan_destroy(plan);
    td__free(slots);
    td__cut_destroy(cut);
    return st;
}
