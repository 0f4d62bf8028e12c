/* elastic.c -- the loop over generations; see elastic.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "elastic/elastic.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "elastic/catch_up.h"

/* A place may be long in coming: for a spare, or while a host is away. What bounds the wait is that
 * the agent lives; so often is looked whether this process was asked to go meanwhile. */
enum { NEXT_MS = 200 };

bool td__elastic_goes(const td__elastic *e)
{
    td__members *m = e->members;
    return e->world->phase == TD_RUN_LEAVING || (m->ops->going && m->ops->going(m));
}

/* What is wrong with the job is wrong on all ranks: the others fail with the same words. */
static td_status end_run(td__elastic *e, td_status st)
{
    char text[360];
    snprintf(text, sizeof text, "%s", td_last_error());
    td__comm_poison_all(e->world->comm, st, text);
    return TD_FAIL(st, "%s", text);
}

/* The comm may have ended too: the others did not wait for as long. What it returns from then on is
 * its own cause. */
bool td__elastic_is_local(td_comm *comm, td_status st)
{
    char text[512];
    if (st != TD_ETIMEDOUT)
        return false;
    snprintf(text, sizeof text, "%s", td_last_error());
    bool of_comm = td__comm_cause(comm) && strstr(text, td_last_error());
    (void)TD_FAIL(st, "%s", text); /* the text of before */
    return !of_comm;
}

/* No peer is lost, and another generation would only wait again. */
static td_status local_timeout(td__elastic *e, td_status st)
{
    if (!td__elastic_is_local(e->world->comm, st))
        return st;
    char text[360];
    snprintf(text, sizeof text, "%s", td_last_error());
    return TD_FAIL(TD_EIO, "rank %d leaves at step %llu: %s", e->world->rank,
                   (unsigned long long)e->replica->state.step + 1, text);
}

/* *all: it is wrong with the job, not with this process. */
static td_status generation(td__elastic *e, td__train_result *out, bool *over, bool *all)
{
    *over = *all = false;
    TD_TRY(td__catch_up(e));
    if (e->world->phase != TD_RUN_STOPPING)
        e->world->phase = TD_RUN_TRAINING;
    td_status st = local_timeout(e, e->ops->run(e->trainer, out, over));
    bool mine = st == TD_ENOMEM || st == TD_EIO; /* this host's trouble: the others go on */
    *all = st && !mine && !td__elastic_survives(st);
    return *all ? end_run(e, st) : st;
}

static void say(const td__generation *g, const td__replica *r)
{
    if (g->rank == 0 && g->number > 1)
        TD_LOG(INFO, TRAIN, "generation %llu: %d ranks from step %llu on%s%s",
               (unsigned long long)g->number, g->size, (unsigned long long)r->state.step,
               *g->why ? "; " : "", g->why);
}

static void enter(td__elastic *e, const td__generation *g, td_comm *comm)
{
    /* That of fixed ranks is as the trainer was made, whose threads look at it. */
    if (e->world->comm != comm || e->world->generation != g->number)
        *e->world = (td__world){.comm = comm,
                                .rank = g->rank,
                                .ranks = g->size,
                                .generation = g->number,
                                .phase = e->world->phase};
    if (comm)
        td__comm_points(comm, td__faults_points(e->faults));
    td__faults_generation(e->faults, g->number, g->rank, g->size, comm);
    say(g, e->replica);
    e->ops->heartbeat(e->trainer, TD_PHASE_COMM, "the state of the run", "catching up");
    e->ops->explains(e->trainer, true);
}

/* failure: why this rank cannot go on; NULL: it can. */
static void leave(td__elastic *e, const td__generation *g, const char *failure)
{
    td_comm *comm = e->world->comm;
    e->ops->explains(e->trainer, false);
    e->ops->heartbeat(e->trainer, TD_PHASE_IDLE, NULL, NULL);
    td__faults_generation(e->faults, g->number, g->rank, g->size, NULL);
    e->ops->end(e->trainer);
    e->world->comm = NULL;
    if (failure) /* the others must not wait for this rank */
        td_comm_abort(comm, failure);
    td_comm_destroy(comm);
}

/* One generation, from next() to leave(). *none: there is no more for this process. */
static td_status one(td__elastic *e, td__train_result *out, bool *over, bool *none)
{
    td__members *m = e->members;
    td__generation g = {0};
    td_comm *comm = NULL;
    char why[360] = "";
    bool all;

    *none = true;
    e->ops->heartbeat(e->trainer, TD_PHASE_COMM, "a generation", "its members");
    TD_TRY(m->ops->next(m, td__deadline_in_ms(NEXT_MS), &g, &comm));
    *none = false;
    enter(e, &g, comm);
    td_status st = generation(e, out, over, &all);
    if (st)
        snprintf(why, sizeof why, "%s", td_last_error());
    bool wrong = st == TD_EIO && e->ops->outvoted(e->trainer);
    leave(e, &g, st ? why : NULL);
    /* The others are given the next generation when this rank has left, and by then what it has
     * begun to write is there, so that no two processes write checkpoints. */
    if (!*over && td__elastic_goes(e))
        e->ops->hand_lead(e->trainer);
    if (e->world->phase == TD_RUN_LEAVING && m->ops->drain)
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

/* Asked to leave while it waits for a place: no step border is needed for that. A process that
 * holds a state hands it over at one first. */
static void go_without_place(td__elastic *e)
{
    td__members *m = e->members;
    bool asked = e->stop && atomic_load(e->stop);
    if (e->replica->has != TD_REPLICA_STATE && asked && m->ops->drain) {
        e->world->phase = TD_RUN_LEAVING;
        m->ops->drain(m);
    }
}

/* The one generation of fixed ranks. */
static td_status fixed(td__elastic *e, td__train_result *out)
{
    td_comm *comm = e->world->comm;
    td__generation g = {
        .number = 1, .rank = comm ? td_comm_rank(comm) : 0, .size = comm ? td_comm_size(comm) : 1};
    bool over;

    enter(e, &g, comm);
    td_status st = e->ops->begin(e->trainer);
    if (!st)
        st = e->ops->run(e->trainer, out, &over);
    e->ops->explains(e->trainer, false);
    e->ops->heartbeat(e->trainer, TD_PHASE_IDLE, NULL, NULL); /* what comes is the program's own */
    return st;
}

td_status td__elastic_run(td__elastic *e, td__train_result *out)
{
    const td__train_state *s = &e->replica->state;
    if (!e->members)
        return fixed(e, out);
    for (bool over = false, none = false;;) {
        td_status st = one(e, out, &over, &none);
        if (over && !st)
            return TD_OK;
        if (none && st == TD_EABORTED && e->world->phase == TD_RUN_LEAVING) { /* as asked */
            out->end = TD_TRAIN_INTERRUPTED;
            out->step = s->step;
            out->epoch = s->epoch;
            return TD_OK;
        }
        if (none && st == TD_ETIMEDOUT) {
            go_without_place(e);
            continue;
        }
        if (st && (none || !td__elastic_survives(st)))
            return st;
        if (st)
            TD_LOG(DEBUG, TRAIN, "rank %d leaves after step %llu: %s", e->world->rank,
                   (unsigned long long)s->step, td_last_error());
    }
}
