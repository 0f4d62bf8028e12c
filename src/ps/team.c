/* team.c -- see team.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/team.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "plan/schedule.h"

struct td__ps_team {
    td_comm *comm;   /* of the worker's ranks: orders; they may be far between */
    td_comm *mesh;   /* the same ranks: their steps */
    td__sync *inner; /* the rule of the mesh */
    td__sync_config config;
    td__step_taker taker;
    double lr; /* of the order under way */
    /* On servers (of all workers) and workers (of this rank): what ranks hold. */
    td__ps_holding *holds;
};

static int at_least_one(int size)
{
    return size > 1 ? size : 1;
}

/* Axes that are not named are 1: what is left over are more workers. */
static td__rank_mesh mesh_of(const td__sync_config *c)
{
    return (td__rank_mesh){{[TD_AXIS_DATA] = at_least_one(c->mesh.size[TD_AXIS_DATA]),
                            [TD_AXIS_PIPELINE] = at_least_one(c->mesh.size[TD_AXIS_PIPELINE]),
                            [TD_AXIS_TENSOR] = 1}};
}

int td__ps_team_size(const td__sync_config *c)
{
    td__rank_mesh mesh = mesh_of(c);
    return td__rank_mesh_ranks(&mesh);
}

/* The job of the mesh of a worker. */
static td__sync_config config_of(const td__sync_config *c)
{
    return (td__sync_config){.bucket_nbytes = c->bucket_nbytes,
                             .in_flight = c->in_flight,
                             .mesh = mesh_of(c),
                             .schedule = c->schedule,
                             .chunks = c->chunks,
                             .stages = c->stages,
                             .in_order = c->in_order};
}

td_status td__ps_team_check(const td__sync_config *c, const td__sync_job *j,
                            const td__sync_world *w)
{
    td__sync_config inner = config_of(c);
    const td__sync_ops *rule = c->rule ? td__sync_named(c->rule) : NULL;
    const td__schedule_def *schedule = NULL;
    int team = td__ps_team_size(c), ranks = w->ranks - c->servers;
    char mesh[TD__RANK_MESH_TEXT];
    td__rank_mesh_text(&inner.mesh, mesh);
    if (team == 1)
        return TD_OK;
    if (rule && rule->traits == td__ps_traits_together)
        return TD_FAIL(TD_EINVAL,
                       "train.sync: workers of the rule %s share each batch themselves, and cannot "
                       "be meshes (%s): use asgd, stale, ssp or downpour",
                       rule->name, mesh);
    if (w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "parallel.servers: workers that are meshes (%s) not with elastic ranks: "
                       "start fixed ones",
                       mesh);
    if (c->schedule)
        TD_TRY(td__schedule_find(c->schedule, &schedule));
    if (schedule && schedule->delay)
        return TD_FAIL(TD_EINVAL,
                       "parallel.schedule %s: not with parallel.servers: a worker has the params "
                       "of servers when a batch begins; use 1f1b",
                       schedule->name);
    if (ranks > 0 && ranks % team)
        return TD_FAIL(TD_EINVAL,
                       "parallel.servers: %d rank%s cannot be workers of %d ranks each (%s): start "
                       "a multiple of %d (-n)",
                       ranks, ranks > 1 ? "s" : "", team, mesh, team);
    return td__sync_check(&inner, j,
                          &(td__sync_world){.ranks = ranks > 0 ? team : 1, .starts = w->starts});
}

void td__ps_team_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    td__sync_config inner = config_of(c);
    int team = td__ps_team_size(c), member = (w->rank - c->servers) % team;
    if (team == 1 || w->rank < c->servers)
        return;
    td__sync_world own = {.rank = member, .ranks = team, .shared = w->shared};
    td__sync_traits t = td__sync_traits_of(&inner, &own);
    out->no_partials = t.no_partials;
    out->threads = t.threads;
    out->in_flight = t.in_flight;
    out->parts = inner.mesh.size[TD_AXIS_DATA];
    out->part = td__rank_mesh_coordinate(&inner.mesh, member, TD_AXIS_DATA);
}

/* ---- Who holds what -------------------------------------------------------------------------- */

/* What this rank updates in its mesh; one with no stages, everything. */
static td_status find_own(td__ps_rule *r, int member, int *n)
{
    td__ps_team *t = r->team;
    const td__step_stage *stage = td__step_opts_of(t->inner->engine)->stage;
    bool pushes = td__rank_mesh_coordinate(&t->config.mesh, member, TD_AXIS_DATA) == 0;
    *n = stage ? stage->n_own : 1;
    t->holds = td__calloc((size_t)*n + 1, sizeof *t->holds);
    if (!t->holds)
        return TD_FAIL(TD_ENOMEM, "no memory for the params of a worker");
    for (int i = 0; i < *n; i++)
        t->holds[i] = (td__ps_holding){
            member, pushes,
            stage ? stage->own[i] : (td__param_range){0, td__step_floats(r->base.engine)}};
    return TD_OK;
}

static td_status tell_own(td__ps_rule *r, int n)
{
    for (int s = 0; s < r->servers; s++) {
        td__ps_lane *l = &r->lanes[s];
        l->holds = r->team->holds;
        l->n_holds = n;
        TD_TRY(td_send(l->link, &n, sizeof n, TD_U8, 0, NULL));
        TD_TRY(td_send(l->link, r->team->holds, (size_t)n * sizeof *l->holds, TD_U8, 0, NULL));
    }
    return TD_OK;
}

/* The ranges of one rank are added to those of its worker. */
static td_status hear_own(td__ps_rule *r, td__ps_lane *l, int member, td__ps_holding *out, int most)
{
    size_t floats = td__step_floats(r->base.engine);
    int n = 0;
    TD_TRY(td_recv(l->link, &n, sizeof n, TD_U8, 1 + member, NULL));
    if (n < 0 || n > most)
        return TD_FAIL(TD_EPROTO, "rank %d holds %d ranges", l->rank + member, n);
    TD_TRY(td_recv(l->link, out, (size_t)n * sizeof *out, TD_U8, 1 + member, NULL));
    for (int i = 0; i < n; i++)
        if (out[i].member != member || out[i].at.begin > out[i].at.end || out[i].at.end > floats)
            return TD_FAIL(TD_EPROTO, "rank %d reports ranges outside the params",
                           l->rank + member);
    l->n_holds += n;
    return TD_OK;
}

static td_status hear_all(td__ps_rule *r)
{
    int most = 3 * td_params_count(r->base.x.step.params) + 1; /* of a rank */
    size_t each = (size_t)most * (size_t)r->team_size;
    r->team->holds = td__calloc((size_t)r->workers * each, sizeof *r->team->holds);
    if (!r->team->holds)
        return TD_FAIL(TD_ENOMEM, "no memory for what %d workers hold", r->workers);
    for (int w = 0; w < r->workers; w++) {
        td__ps_lane *l = &r->lanes[w];
        td__ps_holding *holds = r->team->holds + (size_t)w * each;
        for (int m = 0; m < r->team_size; m++)
            TD_TRY(hear_own(r, l, m, holds + l->n_holds, most));
        l->holds = holds;
    }
    return TD_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status take(void *user, const float *sum, size_t begin, size_t count)
{
    td__ps_rule *r = user;
    td_device *d = td__params_device(r->base.x.step.params);
    td__mapping map;
    TD_TRY(td__mem_map(d, (float *)(uintptr_t)sum, count * sizeof *sum, TD_MAP_READ, &map));
    td_status st = td__ps_accrue(r, map.at, r->team->lr, (td__param_range){begin, begin + count});
    td__mem_map_drop(&map);
    return st;
}

static td_status make_inner(td__ps_rule *r)
{
    td__ps_team *t = r->team;
    td__sync_ctx x = r->base.x;
    t->taker = (td__step_taker){.user = r, .take = take};
    x.config = &t->config;
    x.comm = t->mesh;
    x.elastic = false;
    x.shards = NULL;
    x.step.taker = &t->taker;
    TD_TRY(td__sync_create(&x, &t->inner));
    td__step_engine_destroy(r->base.engine);
    r->base.engine = t->inner->engine;
    return td__sync_meet_for(t->inner, TD_MEET_BEGIN);
}

td_status td__ps_team_create(td__ps_rule *r)
{
    static const td_comm_opts PATIENT = {.stall_ms = UINT32_MAX};
    td_comm *all = r->base.x.comm;
    int place = r->rank - r->servers, worker = r->server < 0 ? place / r->team_size : -1, n;
    if (r->team_size == 1)
        return TD_OK;
    if (r->tables)
        return TD_FAIL(TD_EINVAL,
                       "tables on servers: not with workers of %d ranks (parallel.data, "
                       "parallel.pipeline)",
                       r->team_size);
    td__ps_team *t = r->team = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for a worker of %d ranks", r->team_size);
    t->config = config_of(r->base.x.config);
    TD_TRY(td__comm_split_with(all, worker, r->rank, &PATIENT, &t->comm));
    TD_TRY(td_comm_split(all, worker, r->rank, &t->mesh));
    if (r->server >= 0)
        return hear_all(r);
    td__comm_points(t->mesh, td__comm_points_of(all));
    TD_TRY(make_inner(r));
    TD_TRY(find_own(r, place % r->team_size, &n));
    return tell_own(r, n);
}

void td__ps_team_destroy(td__ps_rule *r)
{
    td__ps_team *t = r->team;
    if (!t)
        return;
    if (t->inner) {
        r->base.engine = NULL; /* it is the inner rule's */
        td__sync_destroy(t->inner);
    }
    td_comm_destroy(t->mesh);
    td_comm_destroy(t->comm);
    td__free(t->holds);
    td__free(t);
    r->team = NULL;
}

void td__ps_team_abandon(td__ps_rule *r, const char *why)
{
    td__ps_team *t = r->team;
    if (!t)
        return;
    if (t->inner && t->inner->ops->abandon)
        t->inner->ops->abandon(t->inner, why);
    if (t->mesh)
        td_comm_abort(t->mesh, why);
    if (t->comm)
        td_comm_abort(t->comm, why);
}

/* ---- A batch --------------------------------------------------------------------------------- */

td_status td__ps_team_order(td__ps_rule *r, td__ps_order *order)
{
    static const td_coll_opts IDLE = {.timeout_ms = TD__LINK_IDLE_MS};
    return r->team ? td_broadcast(r->team->comm, order, sizeof *order, TD_U8, 0, &IDLE) : TD_OK;
}

td_status td__ps_team_ready(td__ps_rule *r)
{
    return r->team ? td_barrier(r->team->comm, NULL) : TD_OK;
}

td_status td__ps_team_begin(td__ps_rule *r, const td__sync_place *at)
{
    return r->team ? td__sync_inner_begin(r->team->inner, at) : TD_OK;
}

td_status td__ps_team_batch(td__ps_rule *r, const td__batch *batch)
{
    return td__sync_batch(r->team->inner, batch);
}

td_status td__ps_team_step(td__ps_rule *r, const td__ps_order *order, td__ps_push *p)
{
    const td__sync_host *h = &r->base.x.host;
    td__step_say say = {.requests[TD_REQUEST_STOP] = h->stopping(h->user)};
    td__step_result out;
    p->rows = td__step_rows(r->base.engine);
    r->team->lr = order->lr;
    TD_TRY(td__sync_end(r->team->inner, order->lr, say, &out));
    p->loss = out.loss;
    p->stop = out.requests[TD_REQUEST_STOP] > 0;
    return TD_OK;
}
