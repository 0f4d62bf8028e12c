/* channels.c -- see channels.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/channels.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "ops/phase.h"

static int place_of(const td__channels *c, int from, int to, bool down)
{
    int stages = c->mesh.size[TD_AXIS_PIPELINE];
    return 2 * (from * stages + to) + down;
}

static bool goes_down(const td__plan_op *o)
{
    return o->lane == TD_LANE_SEND_DOWN || o->lane == TD_LANE_RECV_DOWN;
}

/* Has the plan values of micro-batches from one stage to another in this direction? */
static bool talk(const td__plan *p, int from, int to, bool down)
{
    for (int i = 0; i < p->roles[from].n; i++) {
        const td__plan_op *o = &p->roles[from].ops[i];
        if (o->kind == TD_PLAN_SEND && o->phase < TD_RUN_PHASE_COUNT && from + o->peer == to &&
            goes_down(o) == down)
            return true;
    }
    return false;
}

/* A communicator of its own; operations on it count as the world's do, for fault injection. */
static td_status split(td_comm *world, int color, td_comm **out)
{
    TD_TRY(td_comm_split(world, color, 0, out));
    if (*out)
        td__comm_points(*out, td__comm_points_of(world));
    return TD_OK;
}

/* Ranks of different pieces of a layer do not talk through channels. */
static int color_of(const td__channels *c, int group)
{
    return group * c->mesh.size[TD_AXIS_TENSOR] + c->peer;
}

static td_status open_pairs(td__channels *c, td_comm *world, const td__plan *p)
{
    int stages = c->mesh.size[TD_AXIS_PIPELINE];
    c->pairs = td__calloc(2 * (size_t)stages * (size_t)stages, sizeof(td_comm *));
    if (!c->pairs)
        return TD_FAIL(TD_ENOMEM, "no memory for the channels of a pipeline");
    for (int from = 0; from < stages; from++)
        for (int to = 0; to < stages; to++)
            for (int down = 0; down < 2; down++) {
                bool mine = c->stage == from || c->stage == to;
                if (from != to && talk(p, from, to, down))
                    TD_TRY(split(world, mine ? color_of(c, c->replica) : -1,
                                 &c->pairs[place_of(c, from, to, down)]));
            }
    return TD_OK;
}

td_status td__channels_open(td__channels *c, td_comm *world, const td__rank_mesh *mesh,
                            const td__plan *p)
{
    int rank = td_comm_rank(world);
    *c = (td__channels){.mesh = *mesh,
                        .stage = td__rank_mesh_coordinate(mesh, rank, TD_AXIS_PIPELINE),
                        .replica = td__rank_mesh_coordinate(mesh, rank, TD_AXIS_DATA),
                        .peer = td__rank_mesh_coordinate(mesh, rank, TD_AXIS_TENSOR)};
    if (mesh->size[TD_AXIS_DATA] > 1)
        TD_TRY(split(world, color_of(c, c->stage), &c->data));
    TD_TRY(split(world, color_of(c, c->replica), &c->pipeline));
    return open_pairs(c, world, p);
}

static size_t n_pairs(const td__channels *c)
{
    size_t stages = (size_t)c->mesh.size[TD_AXIS_PIPELINE];
    return c->pairs ? 2 * stages * stages : 0;
}

void td__channels_close(td__channels *c)
{
    for (size_t i = 0; i < n_pairs(c); i++)
        td_comm_destroy(c->pairs[i]);
    td__free(c->pairs);
    td_comm_destroy(c->pipeline);
    td_comm_destroy(c->data);
    *c = (td__channels){0};
}

void td__channels_abort(td__channels *c, const char *why)
{
    for (size_t i = 0; i < n_pairs(c); i++)
        if (c->pairs[i])
            td_comm_abort(c->pairs[i], why);
    if (c->pipeline)
        td_comm_abort(c->pipeline, why);
    if (c->data)
        td_comm_abort(c->data, why);
}

td_comm *td__channel_of(const td__channels *c, const td__plan_op *message, int *peer)
{
    int other = c->stage + message->peer;
    bool sends = message->kind == TD_PLAN_SEND;
    *peer = other > c->stage;
    return c->pairs[place_of(c, sends ? c->stage : other, sends ? other : c->stage,
                             goes_down(message))];
}
