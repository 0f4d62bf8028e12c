/* generation.c -- what a generation of an elastic run does once its ranks have come to the same
 * moment (elastic.h): rank 0 takes the lead, then steps until the run or the generation is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "base/log.h"
#include "fault/faults.h"
#include "train/best_replica.h"
#include "train/slices.h"
#include "train/trainer_impl.h"

static td_status save_now(td__trainer *t)
{
    const td__train_state *s = &t->state;
    td__checkpoint_event told_to_nobody;
    bool done;

    td__train_heartbeat(t, TD_PHASE_DISK, "checkpoint", "of where the run is");
    TD_TRY(td__checkpointer_save(t->checkpointer, s, t->params, t->optimizer,
                                 s->best_step == s->step));
    TD_TRY(td__checkpointer_wait(t->checkpointer));
    return td__checkpointer_poll(t->checkpointer, &done, &told_to_nobody);
}

/* What the last rank 0 alone has done is done again: the latest checkpoint must not be of that. A
 * full disk is no reason not to go on. (Where all ranks write one, none of them is ahead.) */
static td_status go_back(td__trainer *t)
{
    const char *dir = t->o.checkpoint_dir;
    uint64_t step = t->state.step, valid = t->state.valid_step;
    bool ahead;

    TD_TRY(td__checkpoint_ahead(dir, step, valid, &ahead));
    if (!ahead)
        return TD_OK;
    TD_LOG(INFO, TRAIN,
           "%s: the latest is of what the last rank 0 did alone; the run is at step %llu", dir,
           (unsigned long long)step);
    td_status st = step > 0 && !t->stage ? save_now(t) : TD_EIO;
    if (st == TD_ETIMEDOUT) /* it is still being written: another process has to lead */
        return TD_FAIL(TD_EIO, "%s", td_last_error());
    if (st != TD_EIO)
        return st;
    td__checkpointer_excuse(t->checkpointer);
    st = td__checkpoint_go_back(dir, td__faults_points(t->o.faults), step, valid);
    if (st == TD_EIO)
        TD_LOG(WARN, TRAIN, "%s", td_last_error());
    return st == TD_EIO ? TD_OK : st;
}

/* Rank 0 now, and not before: its files and observers, and what they have missed. */
static td_status take_lead(td__trainer *t)
{
    const td__train_lead *lead = t->o.lead;
    const td__train_state *s = &t->state;

    if (t->o.checkpoint_dir) {
        TD_TRY(td__checkpointer_take_over(t->o.checkpoint_dir, t->o.checkpoint_keep,
                                          &t->checkpointer));
        td__checkpointer_points(t->checkpointer, td__faults_points(t->o.faults));
    }
    t->leads = true;
    t->n_own = t->n_observers;
    if (t->checkpointer)
        TD_TRY(go_back(t)); /* before metrics.jsonl does */
    t->told_step = s->step;
    t->told_valid = s->valid_step;
    t->told_end = t->told_test = false;
    if (lead)
        TD_TRY(lead->begin(lead->user, t, s->step, s->valid_step, &t->told_step, &t->told_valid));
    return td__train_tell_begin(t);
}

/* Steps that others did and rank 0's observers have not heard of. */
static td_status tell_past(td__trainer *t)
{
    const char *names[TD__MAX_METRICS + 1] = {"loss"};
    for (int i = 0; i < t->facts.n_metrics; i++)
        names[i + 1] = t->facts.metric[i];
    for (int i = t->n_own; i < t->n_observers; i++)
        TD_TRY(td__event_log_tell(&t->event_log, t->told_step, t->told_valid, names,
                                  td__part_name(TD_PART_VALID), t->observers[i]));
    t->told_step = t->state.step;
    t->told_valid = t->state.valid_step;
    return TD_OK;
}

/* A state that came from elsewhere: was its checkpoint written by who was rank 0 then? */
static void find_owed(td__trainer *t)
{
    const td__train_state *s = &t->state;
    bool best = s->best_step == s->step && s->step > 0;
    if (t->checkpointer && t->state_received) {
        t->dirty = s->step > 0 && !td__checkpointer_has(t->checkpointer, s->step, best);
        t->owes_best = t->dirty && best;
    }
    t->state_received = false;
}

void td__train_drop_lead(td__trainer *t)
{
    if (!t->leads)
        return;
    td__checkpointer_destroy(t->checkpointer); /* what is being written is finished */
    t->checkpointer = NULL;
    t->n_observers = t->n_own;
    t->leads = false;
    if (t->o.lead)
        t->o.lead->end(t->o.lead->user);
}

td_status td__train_generation(td__trainer *t, td__train_result *out, bool *over)
{
    *over = false;
    t->changing = t->leaving = t->ending = false;
    if (t->rank > 0)
        td__train_drop_lead(t);
    else if (!t->leads) {
        TD_TRY(take_lead(t));
        TD_TRY(td__best_replica_write(t));
        t->state_received = true;
    }
    if (t->leads)
        TD_TRY(tell_past(t));
    find_owed(t);
    TD_TRY(td__slices_owed(t));
    TD_TRY(td__trainer_balance(t));
    TD_TRY(td__train_sync(t));
    TD_TRY(td__sync_meet_for(t->sync, TD_MEET_BEGIN));
    TD_TRY(td__rank_stats_create(t->o.comm, td__trainer_ranks(t), &t->stats));
    TD_TRY(td__trainer_loader(t));
    td__loader_seek(t->loader, t->state.epoch, t->state.batch_in_epoch);
    TD_TRY(td__train_steps(t));
    if (t->changing && !td__train_over(t)) {
        TD_TRY(td__sync_meet_for(t->sync, TD_MEET_RESIZE));
        return td__slices_hand_over(t);
    }
    TD_TRY(td__train_finish(t, out));
    if (t->leads && t->o.lead && t->o.lead->conclude) {
        td__train_heartbeat(t, TD_PHASE_DISK, "the report",
                            NULL); /* however long: it does not hang */
        t->o.lead->conclude(t->o.lead->user, out);
    }
    /* Nobody leaves before all are here: who does not come may have been rank 0 with its files. */
    TD_TRY(td_barrier(t->o.comm, NULL));
    *over = true;
    return TD_OK;
}

void td__train_close(td__trainer *t)
{
    if (td__sync_prepared(t->sync)) /* others may have made this step */
        td__zero_leave(t->zero);
    else
        td__slices_close(t);
    td__verify_destroy(t->verify);
    t->verify = NULL;
    td__loader_destroy(t->loader); /* its threads ask which rows are this rank's */
    t->loader = NULL;
    td__rank_stats_destroy(t->stats);
    t->stats = NULL;
}
