/* rule.c -- what the rules of a parameter server share: what they can be combined with, and how
 * they are made. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "ps/server_order.h"
#include "ps/ps.h"
#include "ps/team.h"

bool td__ps_asked(const td__sync_config *c)
{
    return c->servers > 0;
}

int td__ps_servers_of(const td__sync_config *c, int ranks, bool elastic)
{
    return elastic && c->servers >= ranks ? ranks - 1 : c->servers;
}

/* Is the replay, if there is one, a record of a run on so many ranks? */
static td_status check_replay(const td__sync_config *c, int ranks)
{
    td__backup_sets *sets;
    if (!c->replay)
        return TD_OK;
    TD_TRY(td__backup_sets_read(c->replay, ranks, &sets));
    td_status st = td__backup_sets_check_whole(sets, 0);
    td__backup_sets_destroy(sets);
    return st;
}

td_status td__ps_check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    if (!c->rule)
        return TD_FAIL(TD_EINVAL, "parallel.servers: no sync rule that uses servers is named: set "
                                  "train.sync to sync, asgd, stale, ssp or downpour");
    if (w->elastic && c->servers > 1 && !c->replicas)
        return TD_FAIL(TD_EINVAL,
                       "parallel.servers: elastic ranks need copies of the shards of %d "
                       "servers: set parallel.replicas to 1",
                       c->servers);
    if (w->elastic && c->replay)
        return TD_FAIL(TD_EINVAL, "parallel.replay: not with elastic ranks: start fixed ones");
    /* Workers pull rows whenever a batch begins, in no order with what others have pushed. */
    if (c->replay && c->tables && w->ranks - c->servers > 1 && strcmp(c->rule, "sync") != 0)
        return TD_FAIL(TD_EINVAL,
                       "parallel.replay: not with tables on servers and %d workers, whose pulls of "
                       "rows are not in the record: replay with the rule sync or one worker",
                       w->ranks - c->servers);
    if (c->replicas && c->servers < 2)
        return TD_FAIL(TD_EINVAL, "parallel.replicas: a copy needs a second server: --servers 2");
    if (c->replicas && !w->elastic && w->ranks > 1)
        return TD_FAIL(TD_EINVAL, "parallel.replicas: a copy takes over where ranks are replaced: "
                                  "add --elastic");
    if (c->clients && c->tables)
        return TD_FAIL(TD_EINVAL, "parallel.clients: not with tables on servers, whose rows no "
                                  "client is answered with");
    if (c->clients &&
        (strncmp(c->clients, "0.0.0.0:", 8) == 0 || strncmp(c->clients, "[::]:", 5) == 0 ||
         !strchr(c->clients, ':') || strncmp(c->clients, "unix:", 5) == 0))
        return TD_FAIL(TD_EINVAL,
                       "parallel.clients: '%s' is no HOST:PORT of server 0 that clients can "
                       "connect to (port 0: any)",
                       c->clients);
    if (j->partition && c->tables)
        return TD_FAIL(TD_EINVAL, "data.partition: not with tables on servers, whose rows are "
                                  "fetched ahead in one order of samples");
    if (j->partition && c->mesh.size[TD_AXIS_DATA] > 1)
        return TD_FAIL(TD_EINVAL, "data.partition: not with workers of several ranks along data "
                                  "(parallel.data), which share each batch");
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with parallel.servers");
    TD_TRY(td__ps_team_check(c, j, w));
    if (!w->starts)
        return TD_OK;
    if (w->ranks <= c->servers)
        return TD_FAIL(TD_EINVAL,
                       "parallel.servers: %d server%s of %d rank%s leave no rank to train: start "
                       "more (-n)",
                       c->servers, c->servers > 1 ? "s" : "", w->ranks, w->ranks > 1 ? "s" : "");
    return w->rank == 0 ? check_replay(c, w->ranks) : TD_OK;
}

td_status td__ps_check_params(const td__sync_config *c, const td_params *ps)
{
    td__ps_map map;
    bool sparse = false;
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        sparse = sparse || info.sparse;
        if (sparse && td__ps_team_size(c) > 1)
            return TD_FAIL(TD_EINVAL,
                           "parallel.servers: a model with row-sparse gradients (%s) cannot be "
                           "trained by workers of %d ranks (parallel.data, parallel.pipeline)",
                           info.name, td__ps_team_size(c));
        if (sparse && info.is_state)
            return TD_FAIL(TD_EINVAL,
                           "parallel.servers: a model with row-sparse gradients and running "
                           "averages (%s) cannot be trained with servers",
                           info.name);
    }
    td_status st = td__ps_map_init(&map, ps, c->servers);
    td__ps_map_fini(&map);
    return st;
}

static void traits(const td__sync_config *c, const td__sync_world *w, bool together,
                   td__sync_traits *out)
{
    int servers = td__ps_servers_of(c, w->ranks, w->elastic), workers = w->ranks - servers;
    bool server = w->rank < servers;
    out->keeps_batch = true;
    out->holds_rows = c->tables;
    out->own_data = !together;
    if (workers < 1 || !servers) /* one rank that evaluates what others have trained */
        return;
    out->leads = true;
    out->no_rows = out->no_partials = server;
    out->parts = together ? workers : 1;
    out->part = together && !server ? w->rank - servers : 0;
    out->shares = together ? 0 : workers / td__ps_team_size(c);
    out->share = server ? -1 : (w->rank - servers) / td__ps_team_size(c);
    td__ps_team_traits(c, w, out);
}

void td__ps_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    traits(c, w, false, out);
}

void td__ps_traits_together(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    traits(c, w, true, out);
}

/* Server 0 has most: an area for pushes and one for pulls of every worker. */
size_t td__ps_exchange(const td__sync_sizes *z)
{
    int ranks = z->world.ranks - td__ps_servers_of(z->config, z->world.ranks, z->world.elastic);
    int workers = ranks / td__ps_team_size(z->config);
    return workers < 1 ? 0 : (size_t)workers * (z->grads + z->params);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status no_memory(const td__ps_rule *r)
{
    return TD_FAIL(TD_ENOMEM, "no memory for %d servers and %d workers", r->servers, r->workers);
}

static td_status open_lanes(td__ps_rule *r)
{
    size_t floats = td__step_floats(r->base.engine);
    size_t slots = r->policy->together ? (size_t)r->tree.slots : 1;
    td_status st = TD_OK;
    td__ps_lane_size *sizes = td__calloc((size_t)r->servers, sizeof *sizes);
    r->n_lanes = r->server < 0 ? r->servers : r->workers;
    r->lanes = td__calloc((size_t)r->n_lanes, sizeof *r->lanes);
    if (!sizes || !r->lanes)
        st = no_memory(r);
    /* Areas have the places of whole blocks; pages of other shards are never touched. */
    for (int s = 0; !st && s < r->servers; s++)
        sizes[s] = (td__ps_lane_size){slots * floats, floats};
    if (!st)
        st = td__ps_lanes_open(r->base.x.comm, r->servers, r->team_size, sizes, r->lanes);
    td__free(sizes);
    return st;
}

static td_status make_leader(td__ps_rule *r)
{
    const td__sync_ctx *x = &r->base.x;
    size_t workers = (size_t)r->workers, ranks = (size_t)td_comm_size(x->comm);
    size_t numbers = TD_REQUESTS + workers + TD__STEP_WORDS +
                     (size_t)x->step.micro_batches * (size_t)x->step.accumulate;
    r->seats = td__calloc(workers, sizeof *r->seats);
    r->pushed = td__calloc(workers, sizeof *r->pushed);
    r->counted = td__calloc(ranks, sizeof *r->counted);
    r->only = td__calloc(ranks, sizeof *r->only);
    r->again = td__calloc(workers, sizeof *r->again);
    if (!r->seats || !r->pushed || !r->counted || !r->only || !r->again)
        return no_memory(r);
    if (x->config->replay) {
        TD_TRY(td__backup_sets_read(x->config->replay, (int)ranks, &r->replay));
        TD_TRY(td__backup_sets_check_whole(r->replay, x->steps));
    }
    if (x->own_data && !r->policy->together) {
        r->parts = td__calloc((size_t)r->steps_of_epoch, sizeof *r->parts);
        if (!r->parts)
            return no_memory(r);
        TD_TRY(td__ps_parts_fill(r->workers, x->n_weights ? x->weights : NULL, x->n_weights,
                                 (int64_t)r->steps_of_epoch, r->parts));
    }
    int every = r->policy->push_every ? r->policy->push_every(r) : 1;
    if (every > 1 && (uint64_t)every > x->steps / workers)
        TD_LOG(WARN, TRAIN,
               "train.sync.n_push: %d batches between two pushes, of %llu that %d workers share: "
               "sums that are not pushed at the end are dropped",
               every, (unsigned long long)x->steps, r->workers);
    return td__ps_inbox_create(r->lanes, r->workers, td__step_floats(r->base.engine),
                               td__ps_held_of(r, 0), numbers, &r->inbox);
}

/* Faults may befall what servers and workers say to each other too. */
static void pass_points(td__ps_rule *r)
{
    td__points *p = td__comm_points_of(r->base.x.comm);
    for (int i = 0; i < r->n_lanes; i++)
        td__comm_points(r->lanes[i].link, p);
    if (r->peers)
        td__comm_points(r->peers, p);
}

/* Whoever waits for a server waits as long as that one answers; of elastic ranks agents look after
 * those who stand still. */
static void keep_vigil(td__ps_rule *r)
{
    for (int i = 0; !r->base.x.elastic && r->server < 0 && i < r->n_lanes; i++)
        td__comm_keep_vigil(r->lanes[i].link);
    if (!r->base.x.elastic && r->server > 0)
        td__comm_keep_vigil(r->peers);
}

td_status td__ps_create(td__sync *s, const td__ps_policy *policy)
{
    td__ps_rule *r = (td__ps_rule *)s;
    const td__sync_ctx *x = &s->x;
    int64_t batches = (x->samples + x->batch - 1) / x->batch;
    if (td_comm_size(x->comm) < 2)
        return TD_FAIL(TD_EPEER, "a server is left without workers");
    r->policy = policy;
    r->rank = td_comm_rank(x->comm);
    r->servers = td__ps_servers_of(x->config, td_comm_size(x->comm), x->elastic);
    r->copies = x->config->replicas > 0 && r->servers > 1;
    r->steps_of_epoch = (uint64_t)((batches + x->step.accumulate - 1) / x->step.accumulate);
    r->done = td__calloc((size_t)r->steps_of_epoch, sizeof *r->done);
    if (!r->done)
        return TD_FAIL(TD_ENOMEM, "no memory for the steps of an epoch");
    r->team_size = td__ps_team_size(x->config);
    r->workers = (td_comm_size(x->comm) - r->servers) / r->team_size;
    r->server = r->rank < r->servers ? r->rank : -1;
    r->ordered = x->config->servers; /* what td__ps_resize has found: a later order is another */
    size_t tables =
        td_params_trainable(x->step.params) - td__params_dense(x->step.params); /* elements */
    TD_ASSERT(td__step_floats(s->engine) + tables == td__params_total(x->step.params),
              "%zu gradients and statistics of %zu params and states", td__step_floats(s->engine),
              td__params_total(x->step.params));
    TD_TRY(td__ps_map_init(&r->map, x->step.params, r->servers));
    TD_TRY(td__rank_tree_init(&r->tree,
                              (td__work_partition){.size = policy->together ? r->workers : 1},
                              x->step.micro_batches, x->step.accumulate));
    TD_TRY(open_lanes(r));
    TD_TRY(td__ps_tables_create(&s->x, r->servers, policy->together, &r->tables));
    for (int i = 0; td__ps_tables_crowded(r->tables) && i < r->n_lanes; i++)
        td__ps_lane_waits(&r->lanes[i], TD__PS_BLOCK);
    if (r->servers > 1) {
        static const td_comm_opts PATIENT = {.stall_ms = UINT32_MAX};
        TD_TRY(td__comm_split_with(x->comm, r->server < 0 ? -1 : 0, r->rank, &PATIENT, &r->peers));
    }
    pass_points(r);
    TD_TRY(td__ps_team_create(r));
    keep_vigil(r);
    if (r->server >= 0)
        TD_TRY(td__ps_server_create(r));
    return r->server == 0 ? make_leader(r) : TD_OK;
}

int td__ps_notes(td__sync *s, td__step_note *out)
{
    td__ps_rule *r = (td__ps_rule *)s;
    uint64_t pushes = r->pushes - r->noted_pushes, sum = r->stale_sum - r->noted_sum;
    r->noted_pushes = r->pushes;
    r->noted_sum = r->stale_sum;
    out[0] = (td__step_note){"age", pushes ? (double)sum / (double)pushes : 0};
    out[1] = (td__step_note){"age_max", (double)r->noted_most};
    r->noted_most = 0;
    return pushes ? 2 : 0;
}

void td__ps_destroy(td__sync *s)
{
    td__ps_rule *r = (td__ps_rule *)s;
    if (r->pushes)
        TD_LOG(INFO, TRAIN, "%llu pushes, on params %.2f updates old in the mean, %llu at most",
               (unsigned long long)r->pushes, (double)r->stale_sum / (double)r->pushes,
               (unsigned long long)r->stale_most);
    if (s->x.elastic && !r->parted) /* a generation that has failed, wherever: nobody waits */
        td__ps_abandon(s, "the generation is over");
    td__ps_outputs_destroy(r->outputs);
    td__ps_tables_destroy(r->tables);
    td__ps_inbox_destroy(r->inbox);
    td__ps_team_destroy(r);
    td__ps_lanes_close(r->lanes, r->n_lanes);
    td__ps_server_destroy(r);
    td__rank_tree_fini(&r->tree);
    td__ps_map_fini(&r->map);
    td__backup_sets_destroy(r->replay);
    td__free(r->lanes);
    td__free(r->seats);
    td__free(r->pushed);
    td__free(r->counted);
    td__free(r->only);
    td__free(r->again);
    td__free(r->parts);
    td__free(r->done);
}

/* Elastic: a rank that does not answer a request in time counts as lost. The links know, and the
 * generation is told, or this rank would seem to have waited for something of its own. */
static void tell_late(td__ps_rule *r, const char *why)
{
    bool late = r->timed_out || (r->peers && td__comm_cause(r->peers) == TD_ETIMEDOUT);
    for (int i = 0; r->lanes && i < r->n_lanes; i++)
        late = late || (r->lanes[i].link && td__comm_cause(r->lanes[i].link) == TD_ETIMEDOUT);
    late = r->base.x.elastic && (late || td__ps_tables_late(r->tables));
    if (late)
        td__comm_poison_all(r->base.x.comm, TD_ETIMEDOUT, why);
}

static void abandon(td__ps_rule *r, const char *why)
{
    td__ps_tables_abandon(r->tables, why);
    td__ps_team_abandon(r, why);
    td__ps_lanes_abort(r->lanes, r->n_lanes, why);
    if (r->peers)
        td_comm_abort(r->peers, why);
    if (!r->late.ready)
        return;
    /* The rule outlives its comms, for an update that others may have made. */
    td__ps_tables_close(r->tables);
    td__ps_inbox_destroy(r->inbox);
    td__ps_lanes_close(r->lanes, r->n_lanes);
    td_comm_destroy(r->peers);
    r->inbox = NULL;
    r->peers = NULL;
}

void td__ps_abandon(td__sync *s, const char *why)
{
    td__ps_rule *r = (td__ps_rule *)s;
    char text[512];
    snprintf(text, sizeof text, "%s", why); /* of the last error, which changes */
    tell_late(r, text);
    abandon(r, text);
    r->parted = true;
}

td_status td__ps_serve(td__sync *s)
{
    td__ps_rule *r = (td__ps_rule *)s;
    td_status st = r->server < 0 ? td__ps_work(r) : td__ps_follow(r);
    r->parted = !st;
    return st;
}

td_status td__ps_no_batch(void *user, const td__batch *batch, int number, double *losses)
{
    (void)user;
    (void)batch;
    (void)number;
    (void)losses;
    return TD_OK;
}
