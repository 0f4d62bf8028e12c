/* generation.c -- what a generation does once its ranks have the same state (elastic/elastic.h):
 * rank 0 takes the lead, then steps until the run or the generation ends. A run of fixed ranks is
 * one generation, whose rank 0 leads from the start. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/fail.h"
#include "base/log.h"
#include "fault/faults.h"
#include "elastic/best_replica.h"
#include "elastic/catch_up.h"
#include "train/sharded.h"
#include "train/trainer_impl.h"

static td_status save_now(td__trainer *t)
{
    const td__train_state *s = &t->replica.state;
    td__checkpoint_event told_to_nobody;
    bool done;

    td__train_heartbeat(t, TD_PHASE_DISK, "checkpoint", "of where the run is");
    TD_TRY(td__states_save(t));
    TD_TRY(td__checkpointer_save(t->run.checkpointer, s, t->replica.params, t->replica.optimizer,
                                 s->best_step == s->step));
    TD_TRY(td__checkpointer_wait(t->run.checkpointer));
    return td__checkpointer_poll(t->run.checkpointer, &done, &told_to_nobody);
}

/* What the last rank 0 alone has done is done again: the latest checkpoint must not be of that. A
 * full disk is no reason not to go on. (Where all ranks write one, none of them is ahead.) */
static td_status go_back(td__trainer *t)
{
    const char *dir = t->o.checkpoint_dir;
    uint64_t step = t->replica.state.step, valid = t->replica.state.valid_step;
    bool ahead;

    TD_TRY(td__checkpoint_ahead(dir, step, valid, &ahead));
    if (!ahead)
        return TD_OK;
    TD_LOG(INFO, TRAIN,
           "%s: the latest checkpoint has steps that only the previous rank 0 had done; going back "
           "to step %llu",
           dir, (unsigned long long)step);
    /* Some of it is not here to be saved. */
    bool beside = t->elastic.sharded || td__trainer_traits(t).holds_rows;
    td_status st = step > 0 && !beside ? save_now(t) : TD_EIO;
    if (st == TD_ETIMEDOUT) /* it is still being written: another process has to lead */
        return TD_FAIL(TD_EIO, "%s", td_last_error());
    if (st != TD_EIO)
        return st;
    td__checkpointer_excuse(t->run.checkpointer);
    st = td__checkpoint_go_back(dir, td__faults_points(t->o.faults), step, valid);
    if (st == TD_EIO)
        TD_LOG(WARN, TRAIN, "%s", td_last_error());
    return st == TD_EIO ? TD_OK : st;
}

static td_status open_checkpoints(td__trainer *t,
                                  td_status (*open)(const char *, int, td__checkpointer **))
{
    if (!t->o.checkpoint_dir)
        return TD_OK;
    TD_TRY(open(t->o.checkpoint_dir, t->o.checkpoint_keep, &t->run.checkpointer));
    td__checkpointer_points(t->run.checkpointer, td__faults_points(t->o.faults));
    return td__train_save_fit(t);
}

/* Rank 0 now, and not before: its files and observers, and what they have missed. */
static td_status take_lead(td__trainer *t)
{
    const td__train_lead *lead = t->o.lead;
    const td__train_state *s = &t->replica.state;

    TD_TRY(open_checkpoints(t, td__checkpointer_take_over));
    t->report.leads = true;
    t->report.n_own = t->report.n_observers;
    if (t->run.checkpointer)
        TD_TRY(go_back(t)); /* before metrics.jsonl does */
    t->report.told_step = s->step;
    t->report.told_valid = s->valid_step;
    t->report.told_end = t->report.told_test = false;
    if (lead)
        TD_TRY(lead->begin(lead->user, t, s->step, s->valid_step, &t->report.told_step,
                           &t->report.told_valid));
    return td__train_tell_begin(t);
}

/* Steps that others did and rank 0's observers have not heard of. */
static td_status tell_past(td__trainer *t)
{
    const char *names[TD__MAX_METRICS + 1] = {"loss"};
    for (int i = 0; i < t->plan.facts.n_metrics; i++)
        names[i + 1] = t->plan.facts.metric[i];
    for (int i = t->report.n_own; i < t->report.n_observers; i++)
        TD_TRY(td__event_log_tell(&t->replica.event_log, t->report.told_step, t->report.told_valid,
                                  names, td__part_name(TD_PART_VALID), t->report.observers[i]));
    t->report.told_step = t->replica.state.step;
    t->report.told_valid = t->replica.state.valid_step;
    return TD_OK;
}

/* Elastic ranks: another process may lead now. */
static td_status find_lead(td__trainer *t)
{
    if (t->world.rank > 0) {
        td__train_drop_lead(t);
        return TD_OK;
    }
    if (!t->report.leads) {
        TD_TRY(take_lead(t));
        TD_TRY(td__best_replica_write(&t->run.best_replica, &t->replica, t->run.checkpointer,
                                      t->o.checkpoint_dir));
        t->replica.received = true;
    }
    return tell_past(t);
}

/* A state that was received: was its checkpoint written by the rank 0 of that time? */
static void find_owed(td__trainer *t)
{
    const td__train_state *s = &t->replica.state;
    bool best = s->best_step == s->step && s->step > 0;
    if (t->run.checkpointer && t->replica.received) {
        t->run.dirty = s->step > 0 && !td__checkpointer_has(t->run.checkpointer, s->step, best);
        t->run.owes_best = t->run.dirty && best;
    }
    t->replica.received = false;
}

void td__train_drop_lead(td__trainer *t)
{
    if (!t->report.leads)
        return;
    td__checkpointer_destroy(t->run.checkpointer); /* what is being written is finished */
    t->run.checkpointer = NULL;
    t->report.n_observers = t->report.n_own;
    t->report.leads = false;
    if (t->o.lead)
        t->o.lead->end(t->o.lead->user);
}

/* A generation that a leader has ended at the border of a step: all ranks take its state along, as
 * those that hold it may be about to go. Collective. */
static td_status share_state(td__trainer *t)
{
    td__sharded_close(t); /* what the rule keeps is part of it */
    return td__catch_up(&t->elastic);
}

/* Final barrier of elastic ranks: if rank 0 died while writing, the survivors repeat the write. */
static td_status all_done(td__trainer *t, bool *over)
{
    if (t->o.members)
        TD_TRY(td_barrier(t->world.comm, NULL));
    *over = true;
    return TD_OK;
}

/* A rank beside a leader, until that ends the generation or the run. */
static td_status serve(td__trainer *t, td__train_result *out, bool *over)
{
    td__sync *s = t->run.sync;
    td__train_heartbeat(t, TD_PHASE_COMM, "orders of the leader", NULL);
    TD_TRY(td__sync_serve(s));
    if (s->resized) {
        bool goes = t->run.stop && atomic_load(t->run.stop);
        t->world.phase = goes ? TD_RUN_LEAVING : TD_RUN_CHANGING;
        return share_state(t);
    }
    TD_TRY(td__train_follow_end(t, out));
    return all_done(t, over);
}

/* The rule, what it measures, and the samples of this rank from the state's position on. */
static td_status set_up(td__trainer *t)
{
    bool none = !t->run.loader; /* else of a run before */
    if (none)
        TD_TRY(td__trainer_balance(t));
    TD_TRY(td__train_sync(t));
    TD_TRY(td__sync_meet_for(t->run.sync, TD_MEET_BEGIN));
    TD_TRY(td__states_begin(t));
    td__rank_stats_destroy(t->report.stats);
    bool apart = t->run.sync->traits.apart; /* each then knows of itself alone */
    TD_TRY(td__rank_stats_create(apart || td__sync_leads(t->run.sync) ? NULL : t->world.comm,
                                 apart ? 1 : td__trainer_ranks(t), &t->report.stats));
    if (t->report.spans)
        TD_TRY(td__span_log_start(t->report.spans, t->world.comm));
    if (none)
        TD_TRY(td__trainer_loader(t));
    td__loader_seek(t->run.loader, t->replica.state.epoch, t->replica.state.batch_in_epoch);
    return TD_OK;
}

/* What the operator asks of the rule, as it is now. Collective. */
static td_status resize(td__trainer *t)
{
    return td__sync_resize(&t->o.sync, &(td__sync_resizing){.comm = t->world.comm,
                                                            .params = t->replica.params,
                                                            .checkpoint_dir = t->o.checkpoint_dir,
                                                            .step = t->replica.state.step,
                                                            .begins = t->world.generation == 1});
}

static td_status lead_and_train(td__trainer *t, td__train_result *out, bool *over)
{
    if (t->o.members) {
        TD_TRY(resize(t));
        TD_TRY(find_lead(t));
    }
    td__train_warn(t);
    find_owed(t);
    TD_TRY(td__sharded_owed(t));
    TD_TRY(set_up(t));
    bool leads = td__sync_leads(t->run.sync);
    if (leads && t->world.rank > 0)
        return serve(t, out, over);
    if (!t->o.members) /* of elastic ranks, each that takes the lead does */
        TD_TRY(td__train_tell_begin(t));
    TD_TRY(td__train_steps(t));
    if (td__train_changes(t) && !td__train_over(t)) {
        TD_TRY(td__sync_meet_for(t->run.sync, TD_MEET_RESIZE));
        TD_TRY(td__sync_leave(t->run.sync)); /* its destroy is local */
        return leads ? share_state(t) : td__hand_over_shards(&t->elastic);
    }
    TD_TRY(td__train_finish(t, out));
    if (t->report.leads && t->o.lead && t->o.lead->conclude) {
        td__train_heartbeat(t, TD_PHASE_DISK, "the report",
                            NULL); /* however long: it does not hang */
        t->o.lead->conclude(t->o.lead->user, out);
    }
    return all_done(t, over);
}

/* After a failure the other ranks must not wait for this one in what the rule has of its own. */
static td_status run(td__trainer *t, td__train_result *out, bool *over)
{
    *over = false;
    char why[512];
    td_status st = lead_and_train(t, out, over);
    if (!st)
        return TD_OK;
    snprintf(why, sizeof why, "%s", td_last_error());
    td__sync_abandon(t->run.sync, why);
    return TD_FAIL(st, "%s", why);
}

void td__train_close(td__trainer *t)
{
    if (td__sync_prepared(t->run.sync)) { /* others may have made this step */
        td__sync_shed(t->run.sync);
        if (t->replica.shards)
            td__shards_leave(t->replica.shards);
    } else {
        td__sharded_close(t);
    }
    td__verify_destroy(t->run.verify);
    t->run.verify = NULL;
    td__loader_destroy(t->run.loader); /* its threads ask which rows are this rank's */
    t->run.loader = NULL;
    td__rank_stats_destroy(t->report.stats);
    t->report.stats = NULL;
}

/* ---- For the loop over generations ----------------------------------------------------------- */

static td_status begin(td__trainer *t)
{
    TD_TRY(td__trainer_agree(t, 0));
    TD_TRY(open_checkpoints(t, td__checkpointer_create));
    return td__replicas_begin(t);
}

static bool prepared(td__trainer *t)
{
    return td__sync_prepared(t->run.sync);
}

static td_status forward(td__trainer *t)
{
    return td__sync_forward(t->run.sync);
}

static td_status find(td__trainer *t, bool *found)
{
    const td__train_lead *lead = t->o.lead;
    TD_TRY(td__trainer_resume(t, found));
    if (*found || !lead || !lead->first_weights)
        return TD_OK;
    TD_TRY(lead->first_weights(lead->user));
    *found = true;
    return TD_OK;
}

static td_status load(td__trainer *t, bool resumed)
{
    t->run.resuming = false;
    return td__sharded_begin(t, resumed);
}

static void rewind_lead(td__trainer *t)
{
    td__train_drop_lead(t);
    td__sync_keep_drop(&t->run.rule_keep);
}

/* A disk that takes nothing any more does not hold the others up for ever. */
static void hand_lead(td__trainer *t)
{
    if (!t->report.leads)
        return;
    td__train_heartbeat(t, TD_PHASE_DISK, "the last checkpoint before leaving", NULL);
    td_status st = t->run.checkpointer ? td__checkpointer_wait(t->run.checkpointer) : TD_OK;
    if (st)
        TD_LOG(WARN, TRAIN, "rank 0 is leaving before its last checkpoint is written: %s",
               td_last_error());
    if (st != TD_ETIMEDOUT)
        td__train_drop_lead(t);
    td__train_heartbeat(t, TD_PHASE_IDLE, NULL, NULL);
}

static bool outvoted(td__trainer *t)
{
    return td__verify_outvoted(t->run.verify);
}

const td__elastic_ops td__train_elastic_ops = {.begin = begin,
                                               .run = run,
                                               .end = td__train_close,
                                               .close = td__sharded_close,
                                               .prepared = prepared,
                                               .forward = forward,
                                               .agree = td__trainer_agree,
                                               .join = td__sharded_join,
                                               .fill = td__sharded_fill,
                                               .find = find,
                                               .load = load,
                                               .rewind = rewind_lead,
                                               .hand_lead = hand_lead,
                                               .outvoted = outvoted,
                                               .heartbeat = td__train_heartbeat,
                                               .explains = td__train_explains};
