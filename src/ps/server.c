/* server.c -- what every server does with its shard: update it, hand it out; and the servers that
 * follow server 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "coll/hang.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "ps/order.h"
#include "ps/ps.h"

static const td_coll_opts IDLE = {.timeout_ms = TD__LINK_IDLE_MS};

/* ---- The engine ------------------------------------------------------------------------------ */

static td_status sum_squares(void *user, double *squares, size_t n)
{
    return td__ps_copy_squares(user, squares, n);
}

static float *statistics(void *user)
{
    td__ps_rule *r = user;
    return td_runner_grads(td__micro_batch_any_runner(r->base.x.step.set), NULL);
}

static void fold(void *user)
{
    td__ps_rule *r = user;
    td_runner_update_states(td__micro_batch_any_runner(r->base.x.step.set));
}

static td_status turn(void *user)
{
    return td__ps_copy_turn(user);
}

/* With several servers, one that updates the params of this server alone. */
static td_status limit_engine(td__ps_rule *r)
{
    td__step_opts o = *td__step_opts_of(r->base.engine);
    r->held = td__ps_held_of(r, r->server);
    r->stage = (td__step_stage){.user = r,
                                .own = r->held.at,
                                .n_own = r->held.n,
                                .turn = turn,
                                .sum_squares = sum_squares,
                                .statistics = statistics,
                                .fold = fold};
    o.stage = &r->stage;
    td__step_engine_destroy(r->base.engine);
    r->base.engine = NULL;
    return td__step_engine_create(&o, &r->base.engine);
}

td_status td__ps_server_create(td__ps_rule *r)
{
    return r->servers > 1 ? limit_engine(r) : TD_OK;
}

void td__ps_server_destroy(td__ps_rule *r)
{
    td__free(r->adds);
    td__ps_copy_fini(r);
    td_comm_destroy(r->peers);
}

/* ---- Updates --------------------------------------------------------------------------------- */

static float *address(const td__ps_rule *r, td__rank_slot s)
{
    return r->lanes[s.rank].push + (size_t)s.slot * td__step_floats(r->base.engine);
}

static void add_range(void *user, size_t begin, size_t count)
{
    td__ps_rule *r = user;
    td__grad_blend_ops(NULL, r->adds, r->tree.n_adds, r->adding + begin, count);
}

/* The partials of all workers become one. */
static td_status add_up(td__ps_rule *r, const td__ps_command *c, const float **total)
{
    td__rank_tree *t = &r->tree;
    bool changed;
    TD_TRY(td__rank_tree_plan(t, c->batches, c->last_rows, &changed));
    if (t->n_adds > r->room_adds) {
        td__free(r->adds);
        r->room_adds = 0;
        r->adds = td__calloc((size_t)t->n_adds, sizeof *r->adds);
        if (!r->adds)
            return TD_FAIL(TD_ENOMEM, "no memory for %d sums", t->n_adds);
        r->room_adds = t->n_adds;
    }
    for (int i = 0; i < t->n_adds; i++)
        r->adds[i] = (td__blend_op){address(r, t->adds[i].dst), address(r, t->adds[i].src), 1, 1};
    *total = address(r, t->total);
    td__ps_held held = td__ps_held_of(r, r->server);
    for (int i = 0; t->n_adds && i < held.n; i++) {
        r->adding = held.at[i].begin;
        TD_TRY(td__step_in_ranges(r->base.engine, held.at[i].end - held.at[i].begin, add_range, r));
    }
    return TD_OK;
}

/* Rows of tables have their own way (tables.h). */
static td_sparse_grad no_rows(void *user, int k)
{
    td__ps_rule *r = user;
    const char *name = td__program_sparse(r->base.x.step.program, k).name;
    return (td_sparse_grad){.param = td_params_find(r->base.x.step.params, name)};
}

static td_status find_grads(td__ps_rule *r, const td__ps_command *c)
{
    if (r->policy->together)
        return add_up(r, c, &r->late.grads);
    r->late.grads = r->lanes[c->worker].push;
    return TD_OK;
}

td_status td__ps_apply(td__ps_rule *r, const td__ps_command *c)
{
    td__step_sum sum = {.user = r, .rows = no_rows};
    bool pushed = c->verb == TD__PS_APPLY;
    r->late.what = *c;
    if (!r->late.now)
        r->late.grads = NULL;
    if (pushed && !r->late.now)
        TD_TRY(find_grads(r, c));
    sum.grads = r->late.grads;
    TD_TRY(pushed ? td__step_update(r->base.engine, c->lr, &sum) : td__ps_copy_turn(r));
    return td__ps_tables_apply(r->tables, c->worker, c->step);
}

td_status td__ps_publish(td__ps_rule *r, int worker)
{
    td__ps_lane *l = &r->lanes[worker];
    td__param_range own = r->map.at[r->server];
    td__mapping map;
    TD_TRY(
        td__params_map(r->base.x.step.params, own.begin, own.end - own.begin, TD_MAP_READ, &map));
    memcpy(l->pull + own.begin, map.at, (own.end - own.begin) * sizeof *l->pull);
    td__mem_map_drop(&map);
    return TD_OK;
}

/* ---- Servers that follow --------------------------------------------------------------------- */

/* The push of a worker that was lost between two servers: no gradients, and statistics that leave
 * running averages where they are. */
static td_status push_nothing(td__ps_rule *r, td__ps_lane *l)
{
    td_params *params = r->base.x.step.params;
    td__param_range own = r->map.at[r->server];
    size_t dense = td__params_dense(params), states = own.begin > dense ? own.begin : dense;
    td__mapping map;
    if (own.begin < dense)
        memset(l->push + own.begin, 0,
               ((own.end < dense ? own.end : dense) - own.begin) * sizeof *l->push);
    if (states >= own.end)
        return TD_OK;
    TD_TRY(td__params_map(params, states, own.end - states, TD_MAP_READ, &map));
    memcpy(l->push + states, map.at, (own.end - states) * sizeof *l->push);
    td__mem_map_drop(&map);
    return TD_OK;
}

/* Is the other side of a lane lost to this server? It is gone; or what it had begun to say did not
 * come in time, which has ended the lane. With copies all servers wait for the same. */
static bool lost(const td__ps_rule *r, td_status st)
{
    return st == TD_EPEER || (st == TD_ETIMEDOUT && !r->copies);
}

static td_status receive_push(td__ps_rule *r, td__ps_lane *l, uint64_t step)
{
    td__ps_held own = td__ps_held_of(r, r->server);
    size_t floats = td__step_floats(r->base.engine);
    td__ps_push p;
    TD_TRY(td__ps_hear(l, &p, sizeof p, false));
    if (p.step != step || p.slots < 0 || (size_t)p.slots * floats > l->push_count)
        return TD_FAIL(TD_EPROTO, "rank %d pushes %d slots of step %llu, not of %llu", l->rank,
                       p.slots, (unsigned long long)p.step, (unsigned long long)step);
    for (int i = 0; i < p.slots * own.n; i++) {
        td__param_range at = own.at[i % own.n];
        TD_TRY(td__ps_take_range(l, l->push + (size_t)(i / own.n) * floats + at.begin, at));
    }
    return TD_OK;
}

/* Pushes of the workers of a command come into their lanes. */
static td_status receive(td__ps_rule *r, const td__ps_command *c)
{
    for (int w = 0; w < r->workers; w++) {
        if (c->worker >= 0 && w != c->worker)
            continue;
        td__ps_lane *l = &r->lanes[w];
        l->within_ms = (uint32_t)c->within_ms;
        td__ps_waits(r, "a push of a worker");
        td_status st = receive_push(r, l, c->step);
        td__ps_waits(r, NULL);
        if (st == TD_ETIMEDOUT && c->worker >= 0 && lost(r, st))
            TD_LOG(WARN, TRAIN, "rank %d has told server 0 of step %llu, and not server %d: %s",
                   l->rank, (unsigned long long)c->step, r->server, td_last_error());
        if (c->worker >= 0 && !r->copies && lost(r, st)) /* copies would differ then */
            return push_nothing(r, l);
        TD_TRY(st);
    }
    return TD_OK;
}

/* Elements of state k of the optimizer that are in the shard, from its beginning on. */
static size_t held(const td__mapping *map, td__param_range own)
{
    size_t count = map->nbytes / sizeof(float);
    return count <= own.begin ? 0 : (count < own.end ? count : own.end) - own.begin;
}

/* The shard, or a state of the optimizer of it, from one server to another, which both call. */
static td_status move(td__ps_rule *r, int from, int to, float *block, size_t count)
{
    if (!count)
        return TD_OK;
    return r->server == to ? td_recv(r->peers, block, count, TD_F32, from, NULL)
                           : td_send(r->peers, block, count, TD_F32, to, NULL);
}

static td_status hand_shard(td__ps_rule *r, int from, int to, bool states)
{
    td_params *params = r->base.x.step.params;
    td_optimizer *o = r->base.x.step.optimizer;
    td__param_range own = r->map.at[from];
    td__map_use use = r->server == to ? TD_MAP_BOTH : TD_MAP_READ;
    td__mapping map;
    TD_TRY(td__params_map(params, own.begin, own.end - own.begin, use, &map));
    td_status st = move(r, from, to, map.at, own.end - own.begin);
    TD_TRY(st ? (td__mem_map_drop(&map), st) : td__mem_unmap(&map));
    td_params_touch(params);
    for (int k = 0; states && k < td_optimizer_state_count(o); k++) {
        TD_TRY(td__optim_map_state(o, k, use, &map));
        size_t count = held(&map, own);
        st = move(r, from, to, count ? (float *)map.at + own.begin : NULL, count);
        TD_TRY(st ? (td__mem_map_drop(&map), st) : td__mem_unmap(&map));
    }
    return TD_OK;
}

td_status td__ps_fetch(td__ps_rule *r, bool states)
{
    const td__sync_host *h = &r->base.x.host;
    int takers = r->copies && states ? 2 : 1;
    for (int to = 0; to < takers; to++)
        for (int s = 0; s < r->servers; s++) {
            bool has = s == to || (r->copies && s == (to + r->servers - 1) % r->servers);
            if (!has && (r->server == to || r->server == s))
                TD_TRY(hand_shard(r, s, to, states));
        }
    if (takers == 2 && r->server < takers && !r->tables)
        h->holds(h->user, NULL, 0, 0);                       /* everything, until the next update */
    return takers == 2 ? td_barrier(r->peers, NULL) : TD_OK; /* all have applied all pushes */
}

static td_status hand_out(td__ps_rule *r, int worker, bool params)
{
    td__ps_lane *l = &r->lanes[worker];
    td__param_range own = r->map.at[r->server];
    uint64_t here = own.begin;
    if (params)
        TD_TRY(td__ps_publish(r, worker));
    TD_TRY(td__ps_tell(l, &here, sizeof here));
    return params ? td__ps_hand_range(l, l->pull + own.begin, own) : TD_OK;
}

static td_status obey(td__ps_rule *r, const td__ps_command *c)
{
    switch ((td__ps_verb)c->verb) {
    case TD__PS_APPLY:
    case TD__PS_NOTE:
        TD_TRY(td__ps_copy_begin(r));
        if (c->verb == TD__PS_APPLY)
            TD_TRY(receive(r, c));
        td__step_begin(r->base.engine, (uint32_t)c->step, c->batches, c->rows);
        TD_TRY(td__ps_apply(r, c));
        td__ps_copy_done(r);
        return TD_OK;
    case TD__PS_DROP: return receive(r, c);
    case TD__PS_PUBLISH:
    case TD__PS_ACK: {
        td_status st = hand_out(r, c->worker, c->verb == TD__PS_PUBLISH);
        return lost(r, st) && !r->policy->together ? TD_OK : st; /* server 0 will know too */
    }
    case TD__PS_FETCH: return td__ps_fetch(r, true);
    case TD__PS_SHOW: return td__ps_fetch(r, false);
    case TD__PS_END: return TD_OK;
    }
    return TD_FAIL(TD_EPROTO, "server 0 sent unknown request %d (version mismatch?)", c->verb);
}

td_status td__ps_silent(const td__ps_rule *r, int s)
{
    char why[512];
    snprintf(why, sizeof why, "%s", td_last_error());
    if (s == 0 && r->rank == 1) /* it is rank 0 that tells of failures else */
        TD_LOG(ERROR, TRAIN, "server 0 does not answer: %s", why);
    return TD_FAIL(TD_ETIMEDOUT, "server %d does not answer: %s", s, why);
}

static td_status follow(td__ps_rule *r)
{
    td__ps_command c;
    uint64_t step = 0;
    do {
        td__comm_says(r->base.x.comm, TD_PHASE_COMM, step, "commands of server 0");
        td__ps_waits(r, "commands of server 0");
        td_status st = td_recv(r->peers, &c, sizeof c, TD_U8, 0, &IDLE);
        td__ps_waits(r, NULL);
        TD_TRY(st);
        step = c.step ? c.step : step;
        td__comm_says(r->base.x.comm, TD_PHASE_COMPUTE, step, "a command of server 0");
        TD_TRY(obey(r, &c));
    } while (c.verb != TD__PS_END);
    r->base.alone = c.end == TD__PS_ALONE;
    for (int k = r->servers; r->base.alone && k < td_comm_size(r->base.x.comm); k++)
        td__ps_tables_lose(r->tables, k, "the run is over");
    r->base.resized = c.end == TD__PS_RESIZED;
    return c.end == TD__PS_ENDS ? td__ps_end_all(r) : TD_OK;
}

td_status td__ps_follow(td__ps_rule *r)
{
    td_status st = follow(r);
    return st == TD_ETIMEDOUT && td__comm_unanswered(r->peers) ? td__ps_silent(r, 0) : st;
}

/* A worker that is killed now leaves the params of server 0 as they are: all is done. */
static td_status lost_at_end(td__ps_rule *r, td_status st)
{
    if (st != TD_EPEER || r->policy->together || r->base.x.elastic)
        return st;
    TD_LOG(WARN, TRAIN, "%s, after the last step", td_last_error());
    r->base.alone = true;
    return TD_OK;
}

td_status td__ps_end_all(td__ps_rule *r)
{
    td_params *params = r->base.x.step.params;
    size_t count = td__params_total(params);
    td__mapping map;
    TD_TRY(td__params_map(params, 0, count, TD_MAP_BOTH, &map));
    td_status st = td_broadcast(r->base.x.comm, map.at, count, TD_F32, 0, NULL);
    TD_TRY(st ? (td__mem_map_drop(&map), lost_at_end(r, st)) : td__mem_unmap(&map));
    td_params_touch(params);
    return TD_OK;
}
