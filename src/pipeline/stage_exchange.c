/* stage_exchange.c -- params that stages of a pipeline, or replicas of a stage, hand to each other.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "pipeline/sync_pipeline_impl.h"

static int stage_of(const td__pipeline_rule *p, int chunk)
{
    return td__schedule_stage(p->schedule, p->mesh.size[TD_AXIS_PIPELINE], chunk);
}

/* `count` elements from the stage that updates chunk `owner`: to that of chunk `reader`, or to all
 * (-1). */
static td_status tell(td__pipeline_rule *p, int owner, int reader, float *at, size_t count)
{
    td_comm *comm = p->channels.pipeline;
    int from = stage_of(p, owner), to = reader < 0 ? -1 : stage_of(p, reader);
    td__mapping map;
    if (from == to || (to >= 0 && p->channels.stage != from && p->channels.stage != to))
        return TD_OK;
    TD_TRY(td__mem_map(td__params_device(p->base.x.step.params), at, count * sizeof *at,
                       TD_MAP_BOTH, &map));
    td_status st = to < 0 ? td_broadcast(comm, map.at, count, TD_F32, from, NULL)
                   : p->channels.stage == from ? td_send(comm, map.at, count, TD_F32, to, NULL)
                                               : td_recv(comm, map.at, count, TD_F32, from, NULL);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

/* Call `each` for every piece of params that chunk `reader` reads and `owner` updates. */
typedef td_status shared_fn(td__pipeline_rule *p, void *user, int owner, int reader,
                            td__param_range r);
static td_status each_shared(td__pipeline_rule *p, shared_fn *each, void *user)
{
    for (int c = 0; c < p->chunks; c++)
        for (int i = 0; i < p->cut->pieces[c].n_shared; i++) {
            const td__param_range *r = &p->cut->pieces[c].shared[i];
            for (int owner = 0; owner < p->chunks; owner++)
                for (int k = 0; k < p->cut->pieces[owner].n_params; k++) {
                    td__param_range own = p->cut->pieces[owner].params[k];
                    size_t begin = own.begin > r->begin ? own.begin : r->begin;
                    size_t end = own.end < r->end ? own.end : r->end;
                    td__tensor_walk w = td__pipeline_walk(p, (td__param_range){begin, end});
                    while (td__tensor_own(&w, &own))
                        TD_TRY(each(p, user, owner, c, own));
                }
        }
    return TD_OK;
}

static td_status count_one(td__pipeline_rule *p, void *user, int owner, int reader,
                           td__param_range r)
{
    (void)p;
    (void)owner;
    (void)reader;
    (void)r;
    ++*(int *)user;
    return TD_OK;
}

int td__pipeline_shared(td__pipeline_rule *p)
{
    int n = 0;
    return each_shared(p, count_one, &n) ? 0 : n;
}

static td_status tell_one(td__pipeline_rule *p, void *user, int owner, int reader,
                          td__param_range r)
{
    (void)user;
    return tell(p, owner, reader, td_params_block(p->base.x.step.params, NULL) + r.begin,
                r.end - r.begin);
}

td_status td__pipeline_tell_shared(td__pipeline_rule *p)
{
    TD_TRY(each_shared(p, tell_one, NULL));
    if (td__pipeline_shared(p))
        td_params_touch(p->base.x.step.params);
    return TD_OK;
}

typedef struct ahead {
    float *block;
    td__shared_works *works;
} ahead;

static td_status send_one(td__pipeline_rule *p, void *user, int owner, int reader,
                          td__param_range r)
{
    ahead *a = user;
    td_comm *comm = p->channels.pipeline;
    int from = stage_of(p, owner), to = stage_of(p, reader);
    td_coll_opts opts = {.work = &a->works->at[a->works->n]};
    if (from == to)
        return TD_OK;
    if (p->channels.stage == to)
        return td_recv(comm, a->block + r.begin, r.end - r.begin, TD_F32, from, NULL);
    if (p->channels.stage != from)
        return TD_OK;
    TD_TRY(td_send(comm, a->block + r.begin, r.end - r.begin, TD_F32, to, &opts));
    a->works->n++;
    return TD_OK;
}

td_status td__pipeline_tell_ahead(td__pipeline_rule *p, td_params *of, td__shared_works *works)
{
    ahead a = {td_params_block(of, NULL), works};
    TD_TRY(each_shared(p, send_one, &a));
    td_params_touch(of);
    return TD_OK;
}

td_status td__pipeline_told(td__shared_works *works)
{
    td_status first = TD_OK;
    while (works->n) {
        td_status st = td_work_wait(works->at[--works->n]);
        first = first ? first : st;
    }
    return first;
}

td_status td__pipeline_tell_statistics(td__pipeline_rule *p, float *block)
{
    const td_params *ps = p->base.x.step.params;
    size_t states = td_params_trainable(ps);
    for (int c = 0; p->shape.stages > 1 && c < p->chunks; c++)
        for (int i = 0; i < p->cut->pieces[c].n_params; i++) {
            td__param_range r = p->cut->pieces[c].params[i];
            r.begin = r.begin > states ? r.begin : states;
            if (r.begin >= r.end)
                continue;
            r = td__pipeline_grads_of(ps, r);
            TD_TRY(tell(p, c, -1, block + r.begin, r.end - r.begin));
        }
    return TD_OK;
}

td_status td__pipeline_wait_turn(void *user)
{
    td__pipeline_rule *p = user;
    char turn;
    if (!p->channels.stage)
        return TD_OK;
    return td_recv(p->channels.pipeline, &turn, 1, TD_U8, p->channels.stage - 1, NULL);
}

td_status td__pipeline_pass_turn(td__pipeline_rule *p)
{
    char turn = 1;
    int next = p->channels.stage + 1;
    if (!p->base.x.config->in_order || next == p->mesh.size[TD_AXIS_PIPELINE])
        return TD_OK;
    return td_send(p->channels.pipeline, &turn, 1, TD_U8, next, NULL);
}

/* Elements [begin, end), which a replica has updated, to the others of this stage. */
static td_status gather_range(td__pipeline_rule *p, size_t begin, size_t end, int replica)
{
    td_params *ps = p->base.x.step.params;
    size_t n = end - begin;
    td__mapping map;
    TD_TRY(td__params_map(ps, begin, n, TD_MAP_BOTH, &map));
    td_status st = td_broadcast(p->channels.data, map.at, n, TD_F32, replica, NULL);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

td_status td__pipeline_gather(td__sync *s)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    const td__ownership *m = td__shards_ownership(s->x.shards);
    const td__rank_mesh *mesh = &p->mesh;
    for (int b = 0; td__pipeline_shares_states(p) && b < m->params; b++) {
        const size_t *cut = td__shards_of(m, b);
        bool whole = td__ownership_sole(m, b) >= 0;
        for (int r = 0; r < m->ranks; r++)
            if (cut[r] < cut[r + 1] &&
                td__rank_mesh_coordinate(mesh, r, TD_AXIS_PIPELINE) == p->channels.stage &&
                (whole || td__rank_mesh_coordinate(mesh, r, TD_AXIS_TENSOR) == p->channels.peer))
                TD_TRY(gather_range(p, cut[r], cut[r + 1],
                                    td__rank_mesh_coordinate(mesh, r, TD_AXIS_DATA)));
    }
    td_params_touch(s->x.step.params);
    return TD_OK;
}

td_status td__pipeline_tell_range(td__pipeline_rule *p, int c, td__param_range r)
{
    td_optimizer *o = p->base.x.step.optimizer;
    const td_params *ps = p->base.x.step.params;
    size_t first, held, trainable = td_params_trainable(ps), dense = td__params_dense(ps);
    size_t begin = r.begin > dense ? r.begin : dense, end = r.end < trainable ? r.end : trainable;
    float *state;
    if (begin >= r.end)
        return TD_OK;
    TD_TRY(tell(p, c, -1, td_params_block(p->base.x.step.params, NULL) + begin, r.end - begin));
    for (int k = 0; k < td_optimizer_state_count(o); k++)
        for (size_t at = begin; at < end; at = first + held) {
            held = td__optim_state_part(o, k, at, end, &first, &state);
            if (!held)
                break;
            TD_TRY(tell(p, c, -1, state, held));
        }
    return TD_OK;
}
