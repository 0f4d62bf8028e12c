/* catch_up_shards.c -- coming to the same moment of an elastic run in which ranks hold optimizer
 * state, or params, in shards (parallel/shards.h), each with the shards of a second rank (mirrors).
 *
 * What is there. After a failure every rank has finished step s or s + 1. If any has finished s + 1
 * then all others are prepared for it (parallel/sync.h): each can make the update of its shards
 * alone, and does so now. So all shards of the furthest step are there, each of them twice but for
 * those that the lost ranks had. Where both holders of a shard are lost, the run goes back to the
 * newest checkpoint.
 *
 *   1. settle    the update that this rank is prepared for is made, if others have made it
 *   2. move      shards go to where the map of the new world wants them (shard_move.h)
 *   3. gather    unless params are sharded: all of them to all, if somebody misses some
 *   4. drop      all have theirs (a barrier): what was held before is given back
 *
 * Until 4 a rank keeps, and tells the next generation of, both what it held before and what it has
 * got: if a rank is lost meanwhile, one of the two sets of shards is still complete.
 *
 * Ranks that leave at the border of a step, as they are asked to, hand over their shards before
 * (hand over), however many they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "elastic/catch_up.h"
#include "elastic/shard_move.h"

/* Do ranks of this world hold params in shards? */
static bool params_sharded(const td__elastic *e)
{
    return e->world->ranks > 1 && e->sharded_params;
}

void td__shards_say(const td__elastic *e, td__hello *h)
{
    td_optimizer *unused[TD__MOST_HOLDINGS];
    int n = td__replica_held(e->replica, h->holding, unused);
    h->has = h->has && e->replica->holding.ranks;
    h->n_holdings = h->has ? n : 0;
    h->prepared = e->ops->prepared(e->trainer);
    h->whole = e->replica->whole;
}

/* ---- 1 --------------------------------------------------------------------------------------- */

/* forward: make the update that the last generation has prepared. */
static td_status settle(td__elastic *e, bool forward)
{
    td_status st = TD_OK;
    if (forward) {
        st = e->ops->forward(e->trainer);
        e->replica->whole = false;
    }
    e->ops->close(e->trainer);
    return st;
}

/* ---- 2, 3, 4 --------------------------------------------------------------------------------- */

typedef struct worlds {
    td__holder *from; /* by rank */
    bool *has_params; /* by rank: all of them, not only those of its shards */
    td__holding *to;  /* by rank */
    td__reshard plan;
} worlds;

static td_status make_worlds(int n, worlds *w)
{
    *w = (worlds){.from = td__calloc((size_t)n, sizeof *w->from)};
    w->has_params = td__calloc((size_t)n, sizeof *w->has_params);
    w->to = td__calloc((size_t)n, sizeof *w->to);
    return w->from && w->has_params && w->to ? TD_OK
                                             : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", n);
}

static void free_worlds(worlds *w)
{
    td__free(w->from);
    td__free(w->has_params);
    td__free(w->to);
    td__reshard_fini(&w->plan);
}

static td_status plan(const td__elastic *e, worlds *w)
{
    return td__reshard_plan(&w->plan, e->replica->params, &e->worlds, e->world->ranks, w->from,
                            w->to);
}

/* Move, and hold what has come; `steps`: of the optimizer. */
static td_status run_move(td__elastic *e, const worlds *w, uint64_t steps)
{
    td__replica *own = e->replica;
    td__holding unused[TD__MOST_HOLDINGS], to = w->to[e->world->rank];
    td_optimizer *from[TD__MOST_HOLDINGS], *o = NULL;
    bool same = td__holding_same(own->holding, to);

    if (same)
        o = own->optimizer;
    else if (to.ranks)
        TD_TRY(td__holding_optimizer(e->optim, own->params, to, &e->worlds, &o));
    (void)td__replica_held(own, unused, from);
    td_status st = td__shards_move(&(td__shard_move){.comm = e->world->comm,
                                                     .params = own->params,
                                                     .plan = &w->plan,
                                                     .holds = w->to,
                                                     .has_params = w->has_params,
                                                     .from = from,
                                                     .n_from = w->from[e->world->rank].n,
                                                     .to = o});
    if (st || !o) {
        if (!same)
            td_optimizer_destroy(o);
        return st;
    }
    td_optimizer_set_steps(o, steps);
    td__replica_take(own, o, to);
    own->has = TD_REPLICA_STATE;
    return TD_OK;
}

static td_status drop(td__elastic *e)
{
    TD_TRY(td_barrier(e->world->comm, NULL));
    td__replica_drop_old(e->replica);
    if (params_sharded(e)) {
        e->replica->whole = false;
        td__shards_drop_all(e->replica->shards);
    }
    return TD_OK;
}

/* Does rank r hold, or can it make, the moment of rank best? */
static bool is_there(const td__hello *all, int r, int best)
{
    uint64_t step =
        all[r].state.step + (all[r].state.step < all[best].state.step && all[r].prepared);
    return all[r].has && step == all[best].state.step;
}

static bool rolls(const td__hello *all, int r, int best)
{
    return is_there(all, r, best) && all[r].state.step < all[best].state.step;
}

static td_status go_on(td__elastic *e, const td__hello *all, int best, const worlds *w)
{
    td__replica *own = e->replica;
    td__event_log event_log = own->event_log;
    int rank = e->world->rank;
    bool all_whole = true, behind = td__hello_compare(&all[rank], &all[best]) < 0;

    TD_TRY(td_broadcast(e->world->comm, &event_log, sizeof event_log, TD_U8, best, NULL));
    TD_TRY(settle(e, rolls(all, rank, best)));
    if (!is_there(all, rank, best))
        TD_TRY(td__replica_release(own, e->optim));
    if (is_there(all, rank, best) && behind) {
        own->event_log = event_log;
        td__catch_up_commit(e, &all[best]);
    }
    TD_TRY(e->ops->join(e->trainer));
    TD_TRY(run_move(e, w, all[best].optimizer_steps));
    if (!is_there(all, rank, best)) {
        own->event_log = event_log;
        td__catch_up_commit(e, &all[best]);
    }
    for (int r = 0; r < e->world->ranks; r++)
        all_whole = all_whole && w->has_params[r];
    if (own->shards && !params_sharded(e) && !all_whole)
        TD_TRY(td__shards_gather_all(own->shards));
    own->whole = !params_sharded(e);
    TD_TRY(drop(e));
    td_params_touch(own->params);
    return TD_OK;
}

/* ---- Nothing whole is left ------------------------------------------------------------------- */

typedef struct disk_state {
    td__train_state state;
    uint64_t yes;
} disk_state;

/* Rank 0 looks for the newest checkpoint; *yes: there is one, whose state all have now. */
static td_status find_state(td__elastic *e, bool *yes)
{
    td__replica *own = e->replica;
    disk_state f;

    memset(&f, 0, sizeof f);
    *yes = false;
    if (e->world->rank == 0)
        TD_TRY(e->ops->find(e->trainer, yes));
    f.state = own->state;
    f.yes = *yes;
    TD_TRY(td_broadcast(e->world->comm, &f, sizeof f, TD_U8, 0, NULL));
    *yes = f.yes != 0;
    own->state = f.state;
    td_schedule_set_state(own->schedule, own->state.schedule);
    return TD_OK;
}

/* All begin with the newest checkpoint; or, if there is none, from the start. */
static td_status from_disk(td__elastic *e, td__holding to)
{
    td__replica *own = e->replica;
    td_optimizer *o;
    bool found;

    e->ops->rewind(e->trainer);
    TD_TRY(settle(e, false));
    TD_TRY(td__replica_release(own, e->optim));
    own->event_log = (td__event_log){.n = 0};
    own->loss = (double)NAN;
    own->state = own->first;
    td_schedule_set_state(own->schedule, own->state.schedule);
    TD_TRY(e->ops->join(e->trainer));
    TD_TRY(td__holding_optimizer(e->optim, own->params, to, &e->worlds, &o));
    td_optimizer_destroy(own->optimizer);
    own->optimizer = o;
    TD_TRY(find_state(e, &found));
    if (!found)
        TD_TRY(e->ops->fill(e->trainer));
    else if (own->shards)
        TD_TRY(e->ops->load(e->trainer, true));
    td_params_touch(own->params);
    own->holding = to;
    own->whole = !params_sharded(e);
    own->has = TD_REPLICA_STATE;
    return TD_OK;
}

static void say_lost(const td__elastic *e, const td__hello *all, int best, size_t missing)
{
    const td__replica *own = e->replica;
    unsigned long long from = all[best].state.step, to = own->state.step;
    if (e->world->rank != 0 || from <= to)
        return;
    if (e->worlds.map)
        TD_LOG(WARN, TRAIN,
               "all holders of %zu numbers of the model were lost at step %llu: the run goes back "
               "to step %llu",
               missing, from, to);
    else
        TD_LOG(WARN, TRAIN,
               "both holders of %zu of %zu weights and their optimizer state were lost at step "
               "%llu: the run goes back to step %llu",
               missing, td_params_trainable(own->params), from, to);
}

/* What ranks hold whole, and may differ in, counts as lost with any of them. */
static size_t not_alike(const td__elastic *e)
{
    const td_params *ps = e->replica->params;
    return e->unlike ? td__params_total(ps) - td__params_dense(ps) : 0;
}

td_status td__catch_up_shards(td__elastic *e, const td__hello *all, int best)
{
    worlds w;
    int n = e->world->ranks;
    td_status st = make_worlds(n, &w);

    for (int r = 0; !st && r < n; r++) {
        td__holder *h = &w.from[r];
        h->n = is_there(all, r, best) ? all[r].n_holdings : 0;
        memcpy(h->of, all[r].holding, sizeof h->of);
        w.has_params[r] = h->n && all[r].whole && !rolls(all, r, best);
    }
    if (!st)
        st = td__worlds_holdings(&e->worlds, td__comm_host_of(e->world->comm), NULL, n, w.to);
    if (!st)
        st = plan(e, &w);
    w.plan.missing += not_alike(e);
    if (!st && all[best].has && !w.plan.missing) {
        st = go_on(e, all, best, &w);
    } else if (!st) {
        st = from_disk(e, w.to[e->world->rank]);
        if (!st && all[best].has)
            say_lost(e, all, best, w.plan.missing);
        else if (!st && e->world->generation > 1)
            td__faults_over(e->faults);
    }
    free_worlds(&w);
    return st;
}

/* ---- Ranks that go --------------------------------------------------------------------------- */

/* For so long a rank waits to be told of a change that others know of already. */
enum { TOLD_MS = 2000 };

/* Where the shards go: to the ranks that stay; to rank 0 if none does. */
static td_status find_stay(const td__elastic *e, const int32_t *goes, td__holding *to)
{
    const td__world *now = e->world;
    int n = 0, *stay = td__calloc((size_t)now->ranks, sizeof *stay);
    td__holding *of = td__calloc((size_t)now->ranks, sizeof *of);
    td_status st = stay && of ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", now->ranks);

    for (int r = 0; !st && r < now->ranks; r++)
        if (!goes[r])
            stay[n++] = r;
    if (!st && !n)
        stay[n++] = 0;
    if (!st)
        st = td__worlds_holdings(&e->worlds, td__comm_host_of(now->comm), stay, n, of);
    for (int i = 0; !st && i < n; i++)
        to[stay[i]] = of[i];
    td__free(stay);
    td__free(of);
    return st;
}

static td_status hand_over(td__elastic *e, const int32_t *goes, worlds *w)
{
    td__replica *own = e->replica;
    int n = e->world->ranks;
    bool whole = !params_sharded(e);
    td__holding *now = td__calloc((size_t)n, sizeof *now);
    td_status st =
        now ? td__worlds_holdings(&e->worlds, td__comm_host_of(e->world->comm), NULL, n, now)
            : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", n);
    for (int r = 0; !st && r < n; r++) {
        w->from[r] = (td__holder){.n = 1, .of = {now[r]}};
        w->has_params[r] = whole;
    }
    td__free(now);
    if (!st)
        st = find_stay(e, goes, w->to);
    TD_TRY(st);
    TD_TRY(plan(e, w));
    e->ops->close(e->trainer); /* what knows the optimizer */
    TD_TRY(run_move(e, w, td_optimizer_steps(own->optimizer)));
    own->whole = whole || own->holding.ranks == 1;
    TD_TRY(td_barrier(e->world->comm, NULL));
    td__replica_drop_old(own);
    return TD_OK;
}

td_status td__hand_over_shards(td__elastic *e)
{
    td__members *m = e->members;
    int32_t some = 0;
    int n = e->world->ranks;
    worlds w = {.from = NULL};

    if (!e->replica->shards)
        return TD_OK;
    if (m->ops->await_wanted) /* a rank that does not know that it goes would hand over nothing */
        m->ops->await_wanted(m, td__deadline_in_ms(TOLD_MS));
    int32_t mine = td__elastic_goes(e);
    int32_t *goes = td__calloc((size_t)n, sizeof *goes);
    td_status st = goes ? td_all_gather(e->world->comm, &mine, goes, 1, TD_I32, NULL)
                        : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", n);
    for (int r = 0; !st && r < n; r++)
        some += goes[r];
    if (!st && some)
        st = make_worlds(n, &w);
    if (!st && some)
        st = hand_over(e, goes, &w);
    free_worlds(&w);
    td__free(goes);
    return st;
}
