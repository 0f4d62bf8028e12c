/* sync_sync.c -- synchronous SGD on a parameter server: the batch of a step is dealt out to all
 * workers, the servers add up their partials in the micro-batch tree, and update once:
 *
 *     w <- update(w, mean of the gradients of all rows)
 *
 * as one rank would, bit for bit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step_plan.h"
#include "ps/ps.h"

/* ---- The plan of a step ---------------------------------------------------------------------- */

/* What it is made of, in the numbers of the planner's ranks. */
typedef struct step_shape {
    int servers, workers;
    bool copies;
    td__ps_map map;
} step_shape;

static td__work_partition deal(const step_shape *s)
{
    return (td__work_partition){.size = s->workers};
}

/* Bytes of a shard. */
static uint64_t params(const step_shape *s, int server)
{
    return td__ps_map_count(&s->map, server) * sizeof(float);
}

/* Of the partials of a worker, what a server has of them. */
static uint64_t sums(const td__planner *w, const step_shape *s, int worker, int server)
{
    td__ps_held held = td__ps_map_held(&s->map, server, s->copies);
    int n = td__work_partials(deal(s), w->at->batches * w->at->micro_batches, worker, NULL);
    uint64_t floats = 0;
    for (int i = 0; i < held.n; i++)
        floats += held.at[i].end - held.at[i].begin;
    return (uint64_t)n * floats * sizeof(float);
}

static void plan_server(td__planner *w, const step_shape *s)
{
    for (int k = 0; k < s->workers; k++)
        td__planner_send(w, TD__PLAN_PARAMS, s->servers + k, params(s, w->rank));
    for (int k = 0; k < s->workers; k++)
        td__planner_recv(w, TD__PLAN_SUMS, s->servers + k, sums(w, s, k, w->rank));
    td__planner_update(w, 0);
}

static void plan_worker(td__planner *w, const step_shape *s)
{
    int worker = w->rank - s->servers;
    td__micro_batch_range own =
        td__work_micro_batches(deal(s), w->at->batches * w->at->micro_batches, worker);
    for (int k = 0; k < s->servers; k++)
        td__planner_recv(w, TD__PLAN_PARAMS, k, params(s, k));
    for (int m = own.begin; m < own.end; m++) {
        td__planner_run(w, TD_RUN_FORWARD, 0, m);
        td__planner_run(w, TD_RUN_BACKWARD, 0, m);
    }
    for (int k = 0; k < s->servers; k++)
        td__planner_send(w, TD__PLAN_SUMS, k, sums(w, s, worker, k));
}

/* Params go out, partials come in, every server updates its shard. Messages go through lanes, links
 * of their own (`apart`). Not in it are words between servers: commands, and sums of squares where
 * gradients are clipped; nor rows of tables, which are as many as a batch has. */
static void plan(td__planner *w)
{
    const td__plan_case *c = w->at;
    step_shape s = {.servers = td__ps_servers_of(c->config, w->ranks, c->world.elastic)};
    s.workers = w->ranks - s.servers;
    s.copies = c->config->replicas > 0 && s.servers > 1;
    if (s.workers < 1 || s.servers < 1) {
        td__planner_runs(w);
        td__planner_update(w, 0);
        return;
    }
    td_status st = td__ps_map_init(&s.map, c->params, s.servers);
    w->st = w->st ? w->st : st;
    if (!st && w->rank < s.servers)
        plan_server(w, &s);
    else if (!st)
        plan_worker(w, &s);
    td__ps_map_fini(&s.map);
}

static td_status create(td__sync *s)
{
    static const td__ps_policy POLICY = {.together = true};
    return td__ps_create(s, &POLICY);
}

const td__sync_ops td__sync_sync = {
    .name = "sync",
    .help = "parameter servers, in lockstep: gradients of all workers make one update "
            "(parallel.servers)",
    .promise = "the bits of one rank",
    .plan = plan,
    .apart = true,
    .traits = td__ps_traits_together,
    .create = create,
    TD__PS_RULE,
};
