/* catch_up_slices.c -- coming to the same moment of an elastic run in which ranks hold optimizer
 * state, or params, in slices (parallel.zero), each with the slices of a second rank (mirrors).
 *
 * What is there. After a failure every rank has finished step s or s + 1. If any has finished s + 1
 * then all others are prepared for it (step_zero.h): each can make the update of its slices alone,
 * and does so now. So all slices of the furthest step are there, each of them twice but for those
 * that the lost ranks had. Where both holders of a slice are lost, the run goes back to the newest
 * checkpoint.
 *
 *   1. settle    the update that this rank is prepared for is made, if others have made it
 *   2. move      slices go to where the map of the new world wants them (elastic/shard_move.h)
 *   3. gather    at stages 1 and 2: all params to all, if somebody misses some
 *   4. drop      all have theirs (a barrier): what was held before is given back
 *
 * Until 4 a rank keeps, and tells the next generation of, both what it held before and what it has
 * got: whoever is lost meanwhile, of one of the two worlds nothing is missing.
 *
 * Ranks that leave at the border of a step, as they are asked to, hand over their slices before
 * (hand over), however many they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "elastic/shard_move.h"
#include "train/catch_up.h"
#include "train/slices.h"

/* ---- What this rank holds -------------------------------------------------------------------- */

static void drop_old(td__trainer *t)
{
    for (int i = 0; i < t->n_old; i++)
        td_optimizer_destroy(t->old_optimizer[i]);
    t->n_old = 0;
}

/* Nothing is held any more; the optimizer has no elements, but says what kind it is. */
static td_status release(td__trainer *t)
{
    td_optimizer *none;
    drop_old(t);
    t->has_state = t->whole = false;
    t->holding = (td__holding){.ranks = 0};
    TD_TRY(td__optim_create_own(&t->o.optim, t->params, &(td__optim_range){0, 0}, 0, &none));
    td_optimizer_destroy(t->optimizer);
    t->optimizer = none;
    return TD_OK;
}

/* The optimizers of all holdings: the newest first, as the hello says them. */
static void held(td__trainer *t, td_optimizer *out[TD__MOST_HOLDINGS])
{
    out[0] = t->optimizer;
    for (int i = 0; i < t->n_old; i++)
        out[1 + i] = t->old_optimizer[t->n_old - 1 - i];
}

/* o, of holding l, is what is held from now on; what was before is kept until drop_old. */
static void take(td__trainer *t, td_optimizer *o, td__holding l)
{
    enum { MOST_OLD = TD__MOST_HOLDINGS - 1 };
    if (o == t->optimizer)
        return;
    if (!t->holding.ranks) {
        td_optimizer_destroy(t->optimizer);
    } else {
        if (t->n_old == MOST_OLD) {
            td_optimizer_destroy(t->old_optimizer[0]);
            t->n_old--;
            memmove(t->old_optimizer, t->old_optimizer + 1,
                    (size_t)t->n_old * sizeof *t->old_optimizer);
            memmove(t->old_holding, t->old_holding + 1, (size_t)t->n_old * sizeof *t->old_holding);
        }
        t->old_optimizer[t->n_old] = t->optimizer;
        t->old_holding[t->n_old++] = t->holding;
    }
    t->optimizer = o;
    t->holding = l;
}

void td__slices_say(const td__trainer *t, td__hello *h)
{
    h->has = h->has && t->holding.ranks;
    h->holding[0] = t->holding;
    for (int i = 0; i < t->n_old; i++)
        h->holding[1 + i] = t->old_holding[t->n_old - 1 - i];
    h->n_holdings = h->has ? 1 + t->n_old : 0;
    h->prepared = td__sync_prepared(t->sync);
    h->whole = t->whole;
}

/* ---- 1 --------------------------------------------------------------------------------------- */

/* forward: make the update that the last generation has prepared. */
static td_status settle(td__trainer *t, bool forward)
{
    td_status st = TD_OK;
    if (forward) {
        st = td__sync_forward(t->sync);
        t->whole = false;
    }
    td__slices_close(t);
    return st;
}

/* ---- 2, 3, 4 --------------------------------------------------------------------------------- */

/* The world of this generation. */
static td_status join(td__trainer *t)
{
    t->o.sync.zero = t->ranks > 1 ? t->stage : 0;
    return t->o.sync.zero ? td__slices_join(t) : TD_OK;
}

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

static td_status plan(const td__trainer *t, worlds *w)
{
    return td__reshard_plan(&w->plan, t->params, t->o.sync.bucket_nbytes, t->ranks, w->from, w->to);
}

/* Move, and hold what has come; `steps`: of the optimizer. */
static td_status run_move(td__trainer *t, const worlds *w, uint64_t steps)
{
    td_optimizer *from[TD__MOST_HOLDINGS], *o = NULL;
    td__holding to = w->to[t->rank];
    bool same = td__holding_same(t->holding, to);

    if (same)
        o = t->optimizer;
    else if (to.ranks)
        TD_TRY(td__holding_optimizer(&t->o.optim, t->params, to, t->o.sync.bucket_nbytes, &o));
    held(t, from);
    td_status st = td__shards_move(&(td__shard_move){.comm = t->o.comm,
                                                     .params = t->params,
                                                     .plan = &w->plan,
                                                     .holds = w->to,
                                                     .has_params = w->has_params,
                                                     .from = from,
                                                     .n_from = w->from[t->rank].n,
                                                     .to = o});
    if (st || !o) {
        if (!same)
            td_optimizer_destroy(o);
        return st;
    }
    td_optimizer_set_steps(o, steps);
    take(t, o, to);
    t->has_state = true;
    return TD_OK;
}

static td_status drop(td__trainer *t)
{
    TD_TRY(td_barrier(t->o.comm, NULL));
    drop_old(t);
    if (t->o.sync.zero == 3) {
        t->whole = false;
        td__zero_drop_all(t->zero);
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

static td_status go_on(td__trainer *t, const td__hello *all, int best, const worlds *w)
{
    td__event_log event_log = t->event_log;
    bool all_whole = true, behind = td__hello_compare(&all[t->rank], &all[best]) < 0;

    TD_TRY(td_broadcast(t->o.comm, &event_log, sizeof event_log, TD_U8, best, NULL));
    TD_TRY(settle(t, rolls(all, t->rank, best)));
    if (!is_there(all, t->rank, best))
        TD_TRY(release(t));
    if (is_there(all, t->rank, best) && behind) {
        t->event_log = event_log;
        td__catch_up_commit(t, &all[best]);
    }
    TD_TRY(join(t));
    TD_TRY(run_move(t, w, all[best].optimizer_steps));
    if (!is_there(all, t->rank, best)) {
        t->event_log = event_log;
        td__catch_up_commit(t, &all[best]);
    }
    for (int r = 0; r < t->ranks; r++)
        all_whole = all_whole && w->has_params[r];
    if (t->o.sync.zero && t->o.sync.zero < 3 && !all_whole)
        TD_TRY(td__zero_gather_all(t->zero));
    t->whole = t->o.sync.zero < 3;
    TD_TRY(drop(t));
    td_params_touch(t->params);
    return TD_OK;
}

/* ---- Nothing whole is left ------------------------------------------------------------------- */

typedef struct found {
    td__train_state state;
    uint64_t yes;
} found;

/* Rank 0 reads the newest checkpoint, or there is none and all begin. */
static td_status from_disk(td__trainer *t, td__holding to)
{
    td_optimizer *o;
    found f;

    td__train_drop_lead(t); /* steps that it has told are about to happen again */
    TD_TRY(settle(t, false));
    TD_TRY(release(t));
    t->event_log = (td__event_log){.n = 0};
    t->loss = (double)NAN;
    t->state = t->first;
    td_schedule_set_state(t->schedule, t->state.schedule);
    TD_TRY(join(t));
    TD_TRY(td__holding_optimizer(&t->o.optim, t->params, to, t->o.sync.bucket_nbytes, &o));
    td_optimizer_destroy(t->optimizer);
    t->optimizer = o;
    memset(&f, 0, sizeof f);
    bool yes = false;
    if (t->rank == 0)
        TD_TRY(td__trainer_resume(t, &yes));
    f.state = t->state;
    f.yes = yes;
    TD_TRY(td_broadcast(t->o.comm, &f, sizeof f, TD_U8, 0, NULL));
    t->state = f.state;
    td_schedule_set_state(t->schedule, t->state.schedule);
    t->resuming = false;
    if (!f.yes)
        TD_TRY(td__slices_fill(t));
    else if (t->zero)
        TD_TRY(td__slices_begin(t, true));
    if (f.yes && t->zero)
        TD_TRY(td__replicas_tell_steps(t));
    td_params_touch(t->params);
    t->holding = to;
    t->whole = t->o.sync.zero < 3;
    t->has_state = true;
    return TD_OK;
}

static void say_lost(const td__trainer *t, const td__hello *all, int best, size_t missing)
{
    if (t->rank == 0 && t->state.step < all[best].state.step)
        TD_LOG(WARN, TRAIN,
               "both holders of %zu of %zu weights and their optimizer state are gone at step "
               "%llu: the run goes back to step %llu",
               missing, td_params_trainable(t->params), (unsigned long long)all[best].state.step,
               (unsigned long long)t->state.step);
}

td_status td__slices_catch_up(td__trainer *t, const td__hello *all, int best)
{
    worlds w;
    td_status st = make_worlds(t->ranks, &w);

    for (int r = 0; !st && r < t->ranks; r++) {
        td__holder *h = &w.from[r];
        h->n = is_there(all, r, best) ? all[r].n_holdings : 0;
        memcpy(h->of, all[r].holding, sizeof h->of);
        w.has_params[r] = h->n && all[r].whole && !rolls(all, r, best);
    }
    if (!st)
        st = td__holdings_of(td__comm_host_of(t->o.comm), NULL, t->ranks, w.to);
    if (!st)
        st = plan(t, &w);
    if (!st && all[best].has && !w.plan.missing) {
        st = go_on(t, all, best, &w);
    } else if (!st) {
        st = from_disk(t, w.to[t->rank]);
        if (!st && all[best].has)
            say_lost(t, all, best, w.plan.missing);
        else if (!st && t->generation > 1)
            td__faults_over(t->o.faults);
    }
    free_worlds(&w);
    return st;
}

/* ---- Ranks that go --------------------------------------------------------------------------- */

/* Where the slices of those who stay are to be; rank 0 stays if nobody does. */
static td_status find_stay(const td__trainer *t, const int32_t *goes, td__holding *to)
{
    int n = 0, *stay = td__calloc((size_t)t->ranks, sizeof *stay);
    td__holding *holdings = td__calloc((size_t)t->ranks, sizeof *holdings);
    td_status st =
        stay && holdings ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", t->ranks);

    for (int r = 0; !st && r < t->ranks; r++)
        if (!goes[r])
            stay[n++] = r;
    if (!st && !n)
        stay[n++] = 0;
    if (!st)
        st = td__holdings_of(td__comm_host_of(t->o.comm), stay, n, holdings);
    for (int i = 0; !st && i < n; i++)
        to[stay[i]] = holdings[i];
    td__free(stay);
    td__free(holdings);
    return st;
}

static td_status hand_over(td__trainer *t, const int32_t *goes, worlds *w)
{
    td__holding *now = td__calloc((size_t)t->ranks, sizeof *now);
    td_status st = now ? td__holdings_of(td__comm_host_of(t->o.comm), NULL, t->ranks, now)
                       : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", t->ranks);
    for (int r = 0; !st && r < t->ranks; r++)
        w->from[r] = (td__holder){.n = 1, .of = {now[r]}};
    for (int r = 0; !st && r < t->ranks; r++)
        w->has_params[r] = t->o.sync.zero < 3;
    td__free(now);
    if (!st)
        st = find_stay(t, goes, w->to);
    TD_TRY(st);
    TD_TRY(plan(t, w));
    td__sync_destroy(t->sync); /* which knows the optimizer */
    t->sync = NULL;
    TD_TRY(run_move(t, w, td_optimizer_steps(t->optimizer)));
    t->whole = t->o.sync.zero < 3 || t->holding.ranks == 1;
    TD_TRY(td_barrier(t->o.comm, NULL));
    drop_old(t);
    return TD_OK;
}

td_status td__slices_hand_over(td__trainer *t)
{
    td__members *m = t->o.members;
    int32_t mine = t->leaving || (m->ops->going && m->ops->going(m)), some = 0;
    worlds w = {.from = NULL};

    if (!t->zero)
        return TD_OK;
    int32_t *goes = td__calloc((size_t)t->ranks, sizeof *goes);
    td_status st = goes ? td_all_gather(t->o.comm, &mine, goes, 1, TD_I32, NULL)
                        : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", t->ranks);
    for (int r = 0; !st && r < t->ranks; r++)
        some += goes[r];
    if (!st && some)
        st = make_worlds(t->ranks, &w);
    if (!st && some)
        st = hand_over(t, goes, &w);
    free_worlds(&w);
    td__free(goes);
    return st;
}
