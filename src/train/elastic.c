/* elastic.c -- the loop over generations; see elastic.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/elastic.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "fault/faults.h"
#include "train/trainer_impl.h"

/* A place may be long in coming: for a spare, or while a host is away. What bounds the wait is that
 * the agent lives; so often is looked whether this process was asked to go meanwhile. */
enum { NEXT_MS = 200 };

/* What is wrong with the job is wrong on all ranks: the others fail with the same words. */
static td_status end_run(td__trainer *t, td_status st)
{
    char text[360];
    snprintf(text, sizeof text, "%s", td_last_error());
    td__comm_poison_all(t->o.comm, st, text);
    return TD_FAIL(st, "%s", text);
}

/* A wait for this host's data or disk that has timed out: no peer is lost, since the comm has not
 * failed, and another generation would only wait again. */
static td_status local_timeout(td__trainer *t, td_status st)
{
    if (st != TD_ETIMEDOUT || td__comm_poisoned(t->o.comm))
        return st;
    char text[360];
    snprintf(text, sizeof text, "%s", td_last_error());
    return TD_FAIL(TD_EIO, "rank %d leaves at step %llu: %s", td__trainer_rank(t),
                   (unsigned long long)t->state.step + 1, text);
}

/* *all: it is wrong with the job, not with this process. */
static td_status generation(td__trainer *t, td__train_result *out, bool *over, bool *all)
{
    *over = *all = false;
    TD_TRY(td__catch_up(t));
    td_status st = local_timeout(t, td__train_generation(t, out, over));
    bool mine = st == TD_ENOMEM || st == TD_EIO; /* this host's trouble: the others go on */
    *all = st && !mine && !td__elastic_survives(st);
    return *all ? end_run(t, st) : st;
}

static void say(const td__generation *g, const td__trainer *t)
{
    if (g->rank == 0 && g->number > 1)
        TD_LOG(INFO, TRAIN, "generation %llu: %d ranks from step %llu on%s%s",
               (unsigned long long)g->number, g->size, (unsigned long long)t->state.step,
               *g->why ? "; " : "", g->why);
}

/* A rank 0 that goes: the others are given the next generation when it has left this one, and by
 * then what it has begun to write is there, so that no two processes write checkpoints. A disk that
 * takes nothing any more does not hold the others up for ever. */
static void let_go_of_lead(td__trainer *t)
{
    td__members *m = t->o.members;
    if (!t->leads || !(t->leaving || (m->ops->going && m->ops->going(m))))
        return;
    td__train_heartbeat(t, TD_PHASE_DISK, "the last checkpoint before it goes", NULL);
    td_status st = t->checkpointer ? td__checkpointer_wait(t->checkpointer) : TD_OK;
    if (st)
        TD_LOG(WARN, TRAIN, "rank 0 goes, and its last checkpoint is not written: %s",
               td_last_error());
    if (st != TD_ETIMEDOUT)
        td__train_drop_lead(t);
    td__train_heartbeat(t, TD_PHASE_IDLE, NULL, NULL);
}

/* One generation, from next() to leave(). *none: there is no more for this process. */
static td_status one(td__trainer *t, td__train_result *out, bool *over, bool *none)
{
    td__members *m = t->o.members;
    td__generation g = {0};
    td_comm *comm = NULL;
    char why[360] = "";
    bool all;

    *none = true;
    td__train_heartbeat(t, TD_PHASE_COMM, "a generation", "its members");
    TD_TRY(m->ops->next(m, td__deadline_in_ms(NEXT_MS), &g, &comm));
    *none = false;
    t->o.comm = comm;
    t->rank = g.rank;
    t->ranks = g.size;
    t->generation = g.number;
    td__comm_points(comm, td__faults_points(t->o.faults));
    td__faults_generation(t->o.faults, g.number, g.rank, g.size, comm);
    say(&g, t);
    td__train_heartbeat(t, TD_PHASE_COMM, "the state of the run", "catching up");
    if (m->ops->explain)
        m->ops->explain(m, td__train_explain, t);
    td_status st = generation(t, out, over, &all);
    if (st)
        snprintf(why, sizeof why, "%s", td_last_error());
    bool wrong = st == TD_EIO && td__verify_doubt(t->verify); /* who is outvoted */
    if (m->ops->explain)
        m->ops->explain(m, NULL, NULL);
    td__train_heartbeat(t, TD_PHASE_IDLE, NULL, NULL);
    td__faults_generation(t->o.faults, g.number, g.rank, g.size, NULL);
    td__train_close(t);
    t->o.comm = NULL;
    if (st) /* the others must not wait for this rank */
        td_comm_abort(comm, why);
    td_comm_destroy(comm);
    if (!*over)
        let_go_of_lead(t);
    if (t->leaving && m->ops->drain)
        m->ops->drain(m);
    /* TD_EINVAL ends the whole job: what is wrong with this process alone does not. A result that
     * cannot be written here does, as another rank would have no other disk to write it to. */
    td_status told = wrong ? TD_EMISMATCH : st == TD_EINVAL && !all ? TD_EIO : st;
    if (*over && !st && *out->unsaved) {
        told = TD_EINVAL;
        snprintf(why, sizeof why, "%.300s", out->unsaved);
    }
    if (*over && !st && out->end == TD_TRAIN_INTERRUPTED && m->ops->kept)
        m->ops->kept(m);
    m->ops->leave(m, g.number, told, *why ? why : *over ? "the run is over" : "");
    return st ? TD_FAIL(st, "%s", why) : TD_OK;
}

/* Asked to go while it waits for a place: it needs no step border for that. Who holds a state hands
 * it over at one first. */
static void go_without_place(td__trainer *t)
{
    td__members *m = t->o.members;
    if (!t->has_state && t->stop && atomic_load(t->stop) && m->ops->drain) {
        t->leaving = true;
        m->ops->drain(m);
    }
}

td_status td__train_elastic(td__trainer *t, td__train_result *out)
{
    for (bool over = false, none = false;;) {
        td_status st = one(t, out, &over, &none);
        if (over && !st)
            return TD_OK;
        if (none && st == TD_EABORTED && t->leaving) { /* as it was asked to */
            out->end = TD_TRAIN_INTERRUPTED;
            out->step = t->state.step;
            out->epoch = t->state.epoch;
            return TD_OK;
        }
        if (none && st == TD_ETIMEDOUT) {
            go_without_place(t);
            continue;
        }
        if (st && (none || !td__elastic_survives(st)))
            return st;
        if (st)
            TD_LOG(DEBUG, TRAIN, "rank %d leaves after step %llu: %s", t->rank,
                   (unsigned long long)t->state.step, td_last_error());
    }
}
