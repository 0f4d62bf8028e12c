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

td_status td__pipeline_tell_shared(td__pipeline_rule *p)
{
    float *block = td_params_block(p->base.x.step.params, NULL);
    bool any = false;
    for (int c = 0; c < p->chunks; c++)
        for (int i = 0; i < p->cut->pieces[c].n_shared; i++) {
            const td__param_range *r = &p->cut->pieces[c].shared[i];
            for (int owner = 0; owner < p->chunks; owner++)
                for (int k = 0; k < p->cut->pieces[owner].n_params; k++) {
                    td__param_range own = p->cut->pieces[owner].params[k];
                    size_t begin = own.begin > r->begin ? own.begin : r->begin;
                    size_t end = own.end < r->end ? own.end : r->end;
                    if (begin < end)
                        TD_TRY(tell(p, owner, c, block + begin, end - begin));
                    any = any || begin < end;
                }
        }
    if (any)
        td_params_touch(p->base.x.step.params);
    return TD_OK;
}

td_status td__pipeline_gather(td__sync *s)
{
    td__pipeline_rule *p = (td__pipeline_rule *)s;
    const td__ownership *m = td__shards_ownership(s->x.shards);
    float *block = td_params_block(s->x.step.params, NULL);
    for (int b = 0; td__pipeline_shares_states(p) && b < m->params; b++) {
        int owner = td__ownership_sole(m, b);
        td__mapping map;
        if (td__rank_mesh_coordinate(&p->mesh, owner, TD_AXIS_PIPELINE) != p->channels.stage)
            continue;
        TD_TRY(td__mem_map(td__params_device(s->x.step.params), block + m->begin[b],
                           (m->begin[b + 1] - m->begin[b]) * sizeof *block, TD_MAP_BOTH, &map));
        td_status st = td_broadcast(p->channels.data, map.at, m->begin[b + 1] - m->begin[b], TD_F32,
                                    td__rank_mesh_coordinate(&p->mesh, owner, TD_AXIS_DATA), NULL);
        if (st) {
            td__mem_map_drop(&map);
            return st;
        }
        TD_TRY(td__mem_unmap(&map));
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
