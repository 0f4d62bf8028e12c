/* catch_up.c -- at the start of a generation all ranks get the same state of the run.
 *
 *   1. hello      all-gather of what each rank holds: step, validation, a checksum of the weights,
 *                 and the rest of its state besides the blocks.
 *   2. source     The furthest state that any rank holds; among those that hold it, the weights
 *                 that most of them have (they should not differ), and the lowest rank.
 *   3. transfer   From one holder to all others: a broadcast. From several: each sends to its share
 *                 of those that are behind, one after the other; the rest do nothing.
 *   4. commit     What arrived is copied over the old state, which until then is whole.
 *
 * A failure anywhere leaves every rank with the state that it had, or with the new one. Where ranks
 * hold shards, 3 and 4 are those of catch_up_shards.c. Where those that are the furthest have parts
 * of the state, these are put together on one of them first (catch_up_parts.c). Of fixed ranks,
 * rank 0 is the source. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/sha256.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "elastic/cargo.h"
#include "elastic/catch_up.h"

/* ---- 1, 2 ------------------------------------------------------------------------------------ */

static td_status fill(td__elastic *e, td__hello *h)
{
    td__mapping map;
    memset(h, 0, sizeof *h); /* it travels with its padding */
    h->state = e->replica->state;
    h->optimizer_steps = td_optimizer_steps(e->replica->optimizer);
    h->tried = e->replica->tried;
    td__faults_tell(e->faults, &h->faults);
    h->agreement = e->agreement;
    h->has = e->replica->has == TD_REPLICA_STATE;
    h->sync_nbytes = e->replica->sync_states.nbytes;
    h->stopping = e->world->phase == TD_RUN_STOPPING;
    h->last = e->replica->last_generation;
    h->rank = e->replica->last_rank;
    h->size = e->replica->last_size;
    h->part = e->replica->part;
    h->prepared = e->ops->prepared(e->trainer);
    if (e->sharded)
        td__shards_say(e, h);
    else if (h->has && e->members && !h->part.n) {
        TD_TRY(td__params_map(e->replica->params, 0, td__params_total(e->replica->params),
                              TD_MAP_READ, &map));
        h->crc = td__crc32c(0, map.at, map.nbytes);
        td__mem_map_drop(&map);
    }
    return TD_OK;
}

int td__hello_compare(const td__hello *a, const td__hello *b)
{
    if (a->has != b->has)
        return a->has ? 1 : -1;
    if (a->state.step != b->state.step)
        return a->state.step > b->state.step ? 1 : -1;
    if (a->state.valid_step != b->state.valid_step)
        return a->state.valid_step > b->state.valid_step ? 1 : -1;
    if (a->sync_nbytes != b->sync_nbytes) /* one has no states of the rule yet, or lost them */
        return a->sync_nbytes > b->sync_nbytes ? 1 : -1;
    if (!a->part.n != !b->part.n) /* one has everything */
        return a->part.n ? -1 : 1;
    return 0;
}

/* Has rank r the same state as rank best? */
static bool is_holder(const td__hello *all, int r, int best)
{
    return td__hello_compare(&all[r], &all[best]) == 0 && all[r].crc == all[best].crc;
}

static int holders(const td__hello *all, int n, int who)
{
    int same = 0;
    for (int r = 0; r < n; r++)
        same += is_holder(all, r, who);
    return same;
}

static int furthest(const td__hello *all, int n)
{
    int best = 0;
    for (int r = 1; r < n; r++) {
        int c = td__hello_compare(&all[r], &all[best]);
        if (c > 0 || (c == 0 && holders(all, n, r) > holders(all, n, best)))
            best = r;
    }
    return best;
}

/* A rank with another job or other options cannot take part: it leaves with TD_EINVAL, and the
 * others form the next generation without it. */
static td_status check_jobs(const td__elastic *e, const td__hello *all, int best)
{
    for (int r = 0; r < e->world->ranks; r++)
        if (all[r].agreement != all[best].agreement) {
            TD_TRY(e->ops->agree(e->trainer, best));
            return TD_FAIL(TD_EPEER, "job or options of rank %d differ from those of rank %d", r,
                           best);
        }
    return TD_OK;
}

/* ---- 3, 4 ------------------------------------------------------------------------------------ */

/* Who sends to whom: every rank is to hold everything, and the holders of the best state do. */
static td_status plan(td__elastic *e, const td__hello *all, int best, td__reshard *out)
{
    static const td__holding EVERYTHING = {.ranks = 1, .rank = 0, .mirror = -1};
    td__holder *from = td__calloc((size_t)e->world->ranks, sizeof *from);
    td__holding *to = td__calloc((size_t)e->world->ranks, sizeof *to);
    td_status st =
        from && to ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", e->world->ranks);

    for (int r = 0; !st && r < e->world->ranks; r++) {
        from[r] = (td__holder){.n = is_holder(all, r, best), .of = {EVERYTHING}};
        to[r] = EVERYTHING;
    }
    if (!st)
        st = td__reshard_plan(out, e->replica->params, &e->worlds, e->world->ranks, from, to);
    td__free(from);
    td__free(to);
    return st;
}

static td_status transfer(td__elastic *e, const td__hello *all, int best, const td__cargo *c)
{
    td__reshard p;
    td_status st = TD_OK;

    if (!e->members || holders(all, e->world->ranks, best) == 1)
        return td__cargo_broadcast(c, e->world->comm, best);
    TD_TRY(plan(e, all, best, &p));
    for (int r = 0; r < e->world->ranks && !st; r++) {
        int from = p.whole_from[r];
        if (from != r && e->world->rank == from)
            st = td__cargo_send(c, e->world->comm, r);
        else if (from != r && e->world->rank == r)
            st = td__cargo_receive(c, e->world->comm, from);
    }
    td__reshard_fini(&p);
    return st;
}

void td__catch_up_commit(td__elastic *e, const td__hello *from)
{
    char digest[TD_SHA256_HEX];
    memcpy(digest, e->replica->state.job_digest, sizeof digest);
    e->replica->state = from->state;
    memcpy(e->replica->state.job_digest, digest, sizeof digest);
    td_schedule_set_state(e->replica->schedule, e->replica->state.schedule);
    td_optimizer_set_steps(e->replica->optimizer, from->optimizer_steps);
    td_params_touch(e->replica->params);
    e->replica->has = TD_REPLICA_STATE;
    e->replica->part.n = 0;
    e->replica->received = true;
    if (e->members && e->replica->event_log.n)
        e->replica->loss =
            e->replica->event_log.step[(e->replica->event_log.n - 1) % TD__EVENT_LOG_STEPS].loss;
}

/* This rank is behind. A state that it has stays whole until the new one is. */
static td_status receive_with(td__elastic *e, const td__hello *all, int best,
                              td__block_copies *states)
{
    td__cargo own, c;
    char *staging = NULL;

    TD_TRY(td__cargo_load(&own, e->replica, TD_MAP_WRITE, states));
    c = own;
    if (e->replica->has == TD_REPLICA_STATE) {
        staging = td__alloc_block(own.total);
        if (!staging) {
            td__cargo_drop(&own);
            return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of a peer's state", own.total);
        }
        size_t at = 0;
        for (int i = 0; i < c.n; at += td__align_up(c.nbytes[i++], 64))
            c.at[i] = staging + at;
    } else {
        e->replica->has = TD_REPLICA_INVALID; /* until all of it is there */
    }
    td_status st = transfer(e, all, best, &c);
    for (int i = 0; staging && !st && i < c.n; i++)
        memcpy(own.at[i], c.at[i], c.nbytes[i]);
    td__free_block(staging, own.total);
    if (!st)
        st = td__cargo_keep(&own);
    else
        td__cargo_drop(&own);
    if (!st)
        td__catch_up_commit(e, &all[best]);
    return st;
}

static td_status receive(td__elastic *e, const td__hello *all, int best)
{
    td__block_copies states = {.nbytes = 0}, old = e->replica->sync_states;
    td_status st = td__block_copies_reserve(&states, all[best].sync_nbytes);
    if (!st)
        st = receive_with(e, all, best, &states);
    if (!st)
        e->replica->sync_states = states;
    td__block_copies_fini(st ? &states : &old);
    return st;
}

/* ---- No rank has a state --------------------------------------------------------------------- */

/* The blocks as they were when the run was about to begin. */
static td_status begin_again(td__elastic *e)
{
    td__replica *r = e->replica;
    td_optimizer *o;

    e->ops->rewind(e->trainer);
    r->state = r->first;
    r->loss = (double)NAN;
    td_schedule_set_state(r->schedule, r->state.schedule);
    TD_TRY(e->ops->fill(e->trainer));
    TD_TRY(td_optimizer_create(e->optim, r->params, &o));
    td_optimizer_destroy(r->optimizer);
    r->optimizer = o;
    td__block_copies_fini(&r->sync_states);
    r->event_log = (td__event_log){.n = 0};
    r->part.n = 0;
    r->has = TD_REPLICA_BEGINNING;
    td_params_touch(r->params);
    return TD_OK;
}

/* Rank 0 looks for a checkpoint, or for first weights from elsewhere; the others are told by
 * another hello. */
static td_status from_disk(td__elastic *e)
{
    bool found = false, lost = e->replica->has == TD_REPLICA_INVALID;
    if (lost)
        TD_TRY(begin_again(e));
    if (e->world->rank == 0)
        TD_TRY(e->ops->find(e->trainer, &found));
    if (e->world->rank == 0 && lost)
        TD_LOG(WARN, TRAIN,
               "all ranks that held the state of the run were lost: it goes back to step %llu",
               (unsigned long long)e->replica->state.step);
    if (e->world->generation > 1)
        td__faults_over(e->faults);
    e->replica->has = found ? TD_REPLICA_STATE : TD_REPLICA_BEGINNING;
    return TD_OK;
}

static td_status exchange(td__elastic *e, td__hello *all)
{
    td__hello mine;
    TD_TRY(fill(e, &mine));
    return td_all_gather(e->world->comm, &mine, all, sizeof mine, TD_U8, NULL);
}

/* Which faults are past: those that any rank knows of, and those of ranks that are gone, which may
 * have been a step ahead of all that are left. */
static void note_faults(td__elastic *e, const td__hello *all)
{
    const td__hello *last = &all[0];
    for (int r = 0; r < e->world->ranks; r++) {
        e->replica->tried = all[r].tried > e->replica->tried ? all[r].tried : e->replica->tried;
        td__faults_learn(e->faults, &all[r].faults);
        last = all[r].last > last->last ? &all[r] : last;
    }
    for (int gone = 0; e->faults && last->last && gone < last->size; gone++) {
        bool here = false;
        for (int r = 0; r < e->world->ranks; r++)
            here = here || (all[r].last == last->last && all[r].rank == gone);
        if (!here)
            td__faults_gone(e->faults, gone, last->size, e->replica->tried);
    }
    e->replica->last_generation = e->world->generation;
    e->replica->last_rank = e->world->rank;
    e->replica->last_size = e->world->ranks;
}

/* A rank that did not finish the step in which the others agreed to stop, or that is new, does not
 * know of it. */
static void note_stopping(td__elastic *e, const td__hello *all)
{
    for (int r = 0; r < e->world->ranks; r++)
        if (all[r].stopping)
            e->world->phase = TD_RUN_STOPPING;
}

static td_status bring_parts(td__elastic *e, td__hello *all, int *best)
{
    bool changed;
    TD_TRY(td__parts_settle(e, all, *best, &changed));
    if (changed)
        TD_TRY(exchange(e, all));
    *best = furthest(all, e->world->ranks);
    if (!all[*best].has || !all[*best].part.n)
        return TD_OK;
    TD_TRY(td__parts_bring(e, all, *best));
    TD_TRY(exchange(e, all));
    *best = furthest(all, e->world->ranks);
    return TD_OK;
}

static td_status agree(td__elastic *e, td__hello *all)
{
    TD_TRY(exchange(e, all));
    int best = furthest(all, e->world->ranks);
    TD_TRY(check_jobs(e, all, best));
    note_faults(e, all);
    note_stopping(e, all);
    if (e->sharded)
        return td__catch_up_shards(e, all, best);
    TD_TRY(bring_parts(e, all, &best));
    if (!all[best].has) {
        TD_TRY(from_disk(e));
        TD_TRY(exchange(e, all));
        best = furthest(all, e->world->ranks);
    }
    if (!all[best].has) { /* all begin, with the same weights: they are made from the seed */
        e->replica->has = TD_REPLICA_STATE;
        return TD_OK;
    }
    bool behind = td__hello_compare(&all[e->world->rank], &all[best]) < 0;
    if (!behind && all[e->world->rank].crc != all[best].crc) {
        if (!e->own_params)
            TD_LOG(WARN, TRAIN,
                   "weights of rank %d differ from those of rank %d at step %llu: replaced by them",
                   e->world->rank, best, (unsigned long long)e->replica->state.step);
        behind = true;
    }
    if (behind)
        return receive(e, all, best);
    if (holders(all, e->world->ranks, best) == e->world->ranks)
        return TD_OK;
    td__cargo c;
    TD_TRY(td__cargo_load(&c, e->replica, TD_MAP_READ, &e->replica->sync_states));
    td_status st = transfer(e, all, best, &c);
    td__cargo_drop(&c);
    return st;
}

td_status td__catch_up(td__elastic *e)
{
    td__hello *all = td__calloc((size_t)e->world->ranks, sizeof *all);
    if (!all)
        return TD_FAIL(TD_ENOMEM, "no memory for the states of %d ranks", e->world->ranks);
    td_status st = agree(e, all);
    td__free(all);
    return st;
}

td_status td__catch_up_first(td__elastic *e)
{
    td__replica *own = e->replica;
    td_comm *comm = e->world->comm;
    td__hello first;
    td__cargo c;

    TD_TRY(fill(e, &first));
    TD_TRY(td_broadcast(comm, &first, sizeof first, TD_U8, 0, NULL));
    if (own->shards) {
        TD_TRY(td__states_broadcast(&own->sync_states, first.sync_nbytes, comm, 0));
        if (e->world->rank > 0)
            td__catch_up_commit(e, &first);
        return e->ops->load(e->trainer, first.has);
    }
    if (e->world->rank > 0)
        return receive(e, &first, 0);
    TD_TRY(td__cargo_load(&c, own, TD_MAP_READ, &own->sync_states));
    td_status st = td__cargo_broadcast(&c, comm, 0);
    td__cargo_drop(&c);
    return st;
}
