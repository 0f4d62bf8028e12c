/* train_end.c -- checkpoints of a run, and its end: the last of them, the digest, the test part. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/fail.h"
#include "graph/params.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/data_parallel.h"
#include "checkpoint/names.h"
#include "coll/comm.h"
#include "train/memory.h"
#include "train/sharded.h"
#include "train/trainer_impl.h"

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* Something could not be written. Where other ranks hold the state, a full disk is no reason to
 * end: it is tried again when the next checkpoint is due. At the end of a run nobody would be
 * helped by losing the result as well: it goes on to its end and says what is missing. */
static td_status excuse(td__trainer *t, td_status st)
{
    if (st != TD_EIO || !(t->o.members || t->report.finishing || td__train_at_end(t)))
        return st;
    if (t->report.finishing && !*t->report.unsaved)
        snprintf(t->report.unsaved, sizeof t->report.unsaved, "%s", td_last_error());
    if (!t->report.finishing && !td__train_at_end(t))
        TD_LOG(WARN, TRAIN, "step %llu: no checkpoint was written; training continues: %s",
               (unsigned long long)t->replica.state.step, td_last_error());
    if (t->run.checkpointer)
        td__checkpointer_excuse(t->run.checkpointer);
    t->run.dirty = true;
    return TD_OK;
}

td_status td__train_saved(td__trainer *t)
{
    td__checkpoint_event e;
    bool done;
    td_status st = td__checkpointer_poll(t->run.checkpointer, &done, &e);
    if (st)
        return excuse(t, st);
    if (done)
        TD__TELL(t, checkpoint, &e);
    return TD_OK;
}

static td_status save_blocks(td__trainer *t, bool best)
{
    TD_TRY(td__states_save(t));
    return td__checkpointer_save(t->run.checkpointer, &t->replica.state, t->replica.params,
                                 t->replica.optimizer, best);
}

td_status td__train_save(td__trainer *t, bool best)
{
    bool shards = t->replica.shards && t->run.saves; /* then all ranks bring theirs */
    if (!t->run.checkpointer && !shards)
        return TD_OK;
    char name[TD__STEP_NAME];
    td__step_name(t->replica.state.step, name);
    td__train_heartbeat(t, TD_PHASE_DISK, "checkpoint", name);
    if (t->run.checkpointer) {
        td_status failed = td__checkpointer_wait(t->run.checkpointer);
        if (failed)
            TD_TRY(excuse(t, failed));
        TD_TRY(td__train_saved(t));
    }
    bool saved = true;
    td_status st = shards ? td__sharded_save(t, best, &saved) : save_blocks(t, best);
    if (st)
        return excuse(t, st);
    t->run.dirty = !saved;
    return TD_OK;
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Planned and measured. Collective. */
static td_status note_memory(td__trainer *t, td__train_result *out)
{
    int ranks = td__trainer_ranks(t);
    td__memory_case c = {.ranks = ranks,
                         .elastic = t->o.members && t->elastic.sharded,
                         .shared = ranks > 1 && td__comm_shares(t->world.comm),
                         .saves = t->run.saves || t->run.checkpointer};
    td__train_memory m;
    double peak = (double)td__memory_read().peak, *all = td__calloc((size_t)ranks, sizeof *all);
    td_status st = all ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d numbers", ranks);

    bool one = ranks == 1 || td__trainer_alone(t);

    if (!st && !one)
        st = td_all_gather(t->world.comm, &peak, all, 1, TD_F64, NULL);
    for (int r = 0; !st && r < (one ? 1 : ranks); r++)
        if ((one ? peak : all[r]) > (double)out->memory_peak) {
            out->memory_peak = (size_t)(one ? peak : all[r]);
            out->memory_rank = r;
        }
    td__free(all);
    if (!st)
        st = td__trainer_memory(t, &c, &m);
    out->memory_planned = st ? 0 : m.total;
    out->device = td__device_name(td__params_device(t->replica.params));
    out->device_memory = td__device_count(td__params_device(t->replica.params));
    out->keeps_samples = t->run.kept;
    if (t->run.kept)
        out->kept = td__kept_samples_count(t->run.kept);
    return st;
}

static td_status tell_spans(void *user, int rank, const td__span *spans, int n, uint64_t lost)
{
    td__trainer *t = user;
    td__spans_event e = {.rank = rank, .n = n, .span = spans, .lost = lost};

    TD__TELL(t, spans, &e);
    return TD_OK;
}

static td_status tell_end(td__trainer *t, const td__train_result *out)
{
    for (int i = 0; i < t->report.n_observers && !t->report.told_end; i++) {
        td__observer *o = t->report.observers[i];
        td_status st = o->end ? o->end(o, out) : TD_OK;
        if (st)
            TD_TRY(excuse(t, st));
    }
    t->report.told_end = true;
    return TD_OK;
}

/* The checkpoint of the last step, whole and on disk. */
static td_status save_last(td__trainer *t)
{
    const td__train_state *s = &t->replica.state;
    if (t->run.checkpointer) { /* whether one that fails has done so before, or does only now */
        td_status st = td__checkpointer_wait(t->run.checkpointer);
        if (st && st != TD_EIO)
            return st;
        if (st) {
            td__checkpointer_excuse(t->run.checkpointer);
            t->run.dirty = true;
        }
    }
    TD_TRY(td__sharded_owed(t));
    if (t->run.dirty || !s->step) /* once more: there may be room by now */
        TD_TRY(td__train_save(t, s->step > 0 && s->best_step == s->step));
    if (!t->run.checkpointer)
        return TD_OK;
    td_status st = td__checkpointer_wait(t->run.checkpointer);
    if (st)
        TD_TRY(excuse(t, st));
    return td__train_saved(t);
}

static td_status finish(td__trainer *t, td__train_result *out)
{
    const td__train_state *s = &t->replica.state;
    bool led = td__sync_leads(t->run.sync);
    TD_TRY(td__sync_meet_for(t->run.sync, TD_MEET_END));
    td__sync_note(t->run.sync, t->report.stats);
    td__sync_report(t->run.sync, out);
    TD_TRY(t->run.sync->traits.sharded_params ? td__sharded_digest(t, out->digest)
                                              : td_params_digest(t->replica.params, out->digest));
    bool alone = td__trainer_alone(t);
    if (!alone)
        TD_TRY(td__replicas_compare(t, out->digest));
    td_status told = td__train_tell_order(t);
    if (told)
        TD_TRY(excuse(t, told));
    told = td__train_tell_ranks(t, true);
    if (told)
        TD_TRY(excuse(t, told));
    if (t->report.spans)
        TD_TRY(td__span_log_gather(t->report.spans, alone ? NULL : t->world.comm, tell_spans, t));
    TD_TRY(save_last(t));
    bool whole = td__train_at_end(t) && !td__train_owes_validation(t);
    out->end = td__train_gives_up(t) ? TD_TRAIN_EARLY
               : whole               ? TD_TRAIN_DONE
                                     : TD_TRAIN_INTERRUPTED;
    out->step = s->step;
    out->epoch = s->epoch;
    out->seconds = t->report.seconds;
    out->samples_per_second =
        t->report.seconds > 0 ? (double)t->report.samples / t->report.seconds : 0;
    out->train_loss = t->replica.loss;
    out->sent_nbytes = t->report.sent_nbytes;
    out->plain_nbytes = t->report.plain_nbytes;
    out->last_ratio = t->report.last_ratio;
    out->best = s->best;
    out->best_step = s->best_step;
    TD_TRY(note_memory(t, out));
    if (led && !alone)
        TD_TRY(td__train_share_result(t, out));
    return tell_end(t, out);
}

static td_status evaluate_test(td__trainer *t, const td__train_result *r)
{
    td__dataset *part = td__data_part(t->plan.data, TD_PART_TEST);
    if (!part || !t->o.test || r->end == TD_TRAIN_INTERRUPTED)
        return TD_OK;
    td__train_heartbeat(t, TD_PHASE_COMPUTE, "test", NULL);
    TD_TRY(td__trainer_evaluate(t, part, &t->report.test));
    td__eval_event e = {.step = r->step,
                        .epoch = r->epoch,
                        .part = td__part_name(TD_PART_TEST),
                        .n = t->report.test.n,
                        .name = t->report.test.name,
                        .value = t->report.test.value,
                        .seconds = t->report.test.seconds};
    for (int i = 0; i < t->report.n_observers && !t->report.told_test; i++) {
        td__observer *o = t->report.observers[i];
        td_status st = o->eval ? o->eval(o, &e) : TD_OK;
        if (st)
            TD_TRY(excuse(t, st));
    }
    t->report.told_test = true;
    return TD_OK;
}

td_status td__train_finish(td__trainer *t, td__train_result *out)
{
    t->report.finishing = true;
    t->report.unsaved[0] = 0;
    td_status st = finish(t, out);
    if (!st)
        st = evaluate_test(t, out);
    t->report.finishing = false;
    snprintf(out->unsaved, sizeof out->unsaved, "%s", t->report.unsaved);
    return st;
}

td_status td__train_follow_end(td__trainer *t, td__train_result *out)
{
    TD_TRY(td_params_digest(t->replica.params, out->digest));
    if (td__trainer_alone(t))
        return TD_OK;
    TD_TRY(td__replicas_compare(t, out->digest));
    if (t->report.spans)
        TD_TRY(td__span_log_gather(t->report.spans, t->world.comm, tell_spans, t));
    TD_TRY(note_memory(t, out));
    TD_TRY(td__train_share_result(t, out));
    return evaluate_test(t, out);
}
