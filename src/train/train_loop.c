/* train_loop.c -- the run: steps, and between them validation, early stopping, checkpoints.
 *
 * Everything that a run knows besides the blocks is in td__train_state, and each decision between
 * steps is a function of it: so a run that is resumed from a checkpoint makes the same decisions as
 * one that was never interrupted. A checkpoint of a step at which a validation is due is written
 * after it; one written before (the run was asked to stop) says so by valid_step, and the
 * validation is made up for on resume.
 *
 * The steps are done generation after generation (elastic.h, generation.c), of which fixed ranks
 * have one. What ranks ask of each other (to stop, to let the membership change) travels with the
 * losses of a step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "fault/faults.h"
#include "elastic/best_replica.h"
#include "train/trainer_impl.h"

static const double SMOOTH = 0.9; /* of what is said of the last steps */

static double seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

static bool asked_to_stop(const td__trainer *t)
{
    bool decides = !t->o.members && (td__trainer_ranks(t) == 1 || td__sync_leads(t->run.sync));
    return t->world.phase == TD_RUN_STOPPING ||
           (decides && t->run.stop && atomic_load(t->run.stop));
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Steps end epochs exactly: the position is then at the start of the next one. */
static bool at_epoch_end(const td__trainer *t)
{
    return t->replica.state.step > 0 && t->replica.state.batch_in_epoch == 0;
}

bool td__train_at_end(const td__trainer *t)
{
    return t->replica.state.step >= t->plan.total_steps;
}

static bool due(const td__trainer *t, int64_t every)
{
    if (every > 0)
        return t->replica.state.step % (uint64_t)every == 0;
    return every == 0 && at_epoch_end(t);
}

bool td__train_owes_validation(const td__trainer *t)
{
    const td__train_state *s = &t->replica.state;
    return s->step > 0 && s->valid_step != s->step && t->o.valid_every >= 0 &&
           td__data_part(t->plan.data, TD_PART_VALID) &&
           (due(t, t->o.valid_every) || td__train_at_end(t));
}

bool td__train_gives_up(const td__trainer *t)
{
    return t->o.patience > 0 && t->replica.state.bad_validations >= t->o.patience;
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* What this rank requests in the step under way. */
static void make_requests(const td__trainer *t, double requests[TD_REQUESTS])
{
    td__members *m = t->o.members;
    bool rank_0 = td__trainer_rank(t) == 0;
    requests[TD_REQUEST_END] =
        t->world.phase == TD_RUN_ENDING || (m && m->ops->stopping && m->ops->stopping(m));
    requests[TD_REQUEST_CHANGE] = m && m->ops->wanted && m->ops->wanted(m);
    requests[TD_REQUEST_STOP] = t->run.stop && atomic_load(t->run.stop);
    requests[TD_REQUEST_FAULT] = rank_0 && td__faults_due(t->o.faults);
}

/* votes: of all ranks for each request; mine: of this one. */
static void follow_requests(td__trainer *t, const double votes[TD_REQUESTS],
                            const double mine[TD_REQUESTS])
{
    int stops = (int)votes[TD_REQUEST_STOP];
    if (votes[TD_REQUEST_END] > 0) {
        t->world.phase = TD_RUN_STOPPING;
        return;
    }
    if (votes[TD_REQUEST_FAULT] > 0)
        td__faults_call(t->o.faults, t->replica.state.step + 1);
    td__members *m = t->o.members;
    if (!m) {
        if (stops > 0)
            t->world.phase = TD_RUN_STOPPING;
        return;
    }
    /* A rank that is needed until others have joined asks again at the next step. If none will
     * join, as far as rank 0 knows, it then tells all ranks that the job is to stop. */
    int min_ranks = m->ops->min_ranks ? m->ops->min_ranks(m) : 1, ranks = td__trainer_ranks(t);
    int expected = m->ops->expected ? m->ops->expected(m) : ranks;
    bool stay = ranks - stops < min_ranks;
    bool ends = stay && stops > 0 && td__trainer_rank(t) == 0 && expected - stops < min_ranks;
    bool changes = votes[TD_REQUEST_CHANGE] > 0 || (stops > 0 && !stay);
    /* A rule that leads may put off what this rank asks for: then there is no vote. */
    t->world.phase = !stay && stops > 0 && mine[TD_REQUEST_STOP] > 0 ? TD_RUN_LEAVING
                     : changes                                       ? TD_RUN_CHANGING
                     : ends                                          ? TD_RUN_ENDING
                                                                     : TD_RUN_TRAINING;
}

/* Rows of batches [first, end) of an epoch: all are full but the last, which may be short. */
static int64_t rows_of(const td__trainer *t, int64_t first, int64_t end)
{
    int64_t all = td__data_part(t->plan.data, TD_PART_TRAIN)->count;
    int64_t stop = end * t->o.batch < all ? end * t->o.batch : all;
    return stop - first * t->o.batch;
}

static void add_span(td__trainer *t, td__span_kind kind, uint64_t begin_ns, uint64_t step)
{
    if (t->report.spans)
        td__span_log_add(t->report.spans, &(td__span){.begin_ns = begin_ns,
                                                      .end_ns = td__clock_ns(),
                                                      .step = (uint32_t)step,
                                                      .kind = (uint16_t)kind});
}

/* In the step under way. */
static void span(td__trainer *t, td__span_kind kind, uint64_t begin_ns)
{
    add_span(t, kind, begin_ns, t->replica.state.step + 1);
}

td_status td__train_batches(td__trainer *t, td__step_event *e, int64_t *first, int64_t *end)
{
    *first = t->replica.state.batch_in_epoch;
    *end = *first + t->o.accumulate;
    if (*end > t->plan.batches)
        *end = t->plan.batches;
    e->samples = rows_of(t, *first, *end);
    t->run.say = (td__step_say){.seconds = 0};
    if (t->run.verify)
        TD_TRY(td__verify_begin(t->run.verify, (uint32_t)e->step, t->replica.state.epoch, *first,
                                (int)(*end - *first)));
    if (t->run.counted)
        TD_TRY(td__counted_step(t->run.counted, t->run.loader, t->replica.state.epoch,
                                *first * t->o.batch, e->samples, t->o.batch));
    td__sync_place at = {e->step, t->replica.state.epoch, *first,
                         td_schedule_lr(t->replica.schedule, (int64_t)t->replica.state.step)};
    TD_TRY(td__sync_begin(t->run.sync, &at, (int)(*end - *first), e->samples));
    for (int64_t k = *first; k < *end; k++) {
        const td__batch *b;
        uint64_t begin = td__clock_ns();
        td__train_heartbeat(t, TD_PHASE_DATA, "samples", td__data_source(t->plan.data));
        TD_TRY(td__loader_next(t->run.loader, &b));
        td__train_heartbeat(t, TD_PHASE_COMPUTE, "micro-batches", NULL);
        atomic_store(&t->run.at, t->run.train_set);
        e->data_wait += seconds_since(begin);
        span(t, TD_SPAN_DATA, begin);
        TD_ASSERT(b && b->epoch == t->replica.state.epoch && b->index == k,
                  "batch %lld of epoch %llu expected", (long long)k,
                  (unsigned long long)t->replica.state.epoch);
        uint64_t computes = td__clock_ns();
        TD_TRY(td__sync_batch(t->run.sync, b));
        td__faults_slow(t->o.faults, td__step_micro_batches(t->run.sync->engine),
                        seconds_since(computes));
        t->run.say.seconds += seconds_since(computes);
    }
    return TD_OK;
}

static td_status run_batches(td__trainer *t, td__step_event *e)
{
    int64_t first, end;
    TD_TRY(td__train_batches(t, e, &first, &end));
    e->lr = td_schedule_lr(t->replica.schedule, (int64_t)t->replica.state.step);
    td__step_result r;
    make_requests(t, t->run.say.requests);
    td__train_heartbeat(t, TD_PHASE_COMM, "gradients", NULL);
    TD_TRY(td__sync_end(t->run.sync, e->lr, t->run.say, &r));
    td__sync_note(t->run.sync, t->report.stats);
    if (r.n_counted) {
        e->n_counted = r.n_counted;
        e->counted = r.counted;
        e->samples = r.counted_rows;
    }
    e->loss = r.loss;
    e->grad_norm = r.grad_norm;
    e->times = r.times;
    follow_requests(t, r.requests, t->run.say.requests);
    t->run.rebalance = t->run.balance && td__balance_add(t->run.balance, r.seconds);
    return TD_OK;
}

static void add_times(td__trainer *t, const td__step_event *e)
{
    double part =
        (double)td__step_micro_batches(t->run.sync->engine) / (double)td__trainer_micro_batches(t);
    if (e->times.compute > 0)
        t->report.speed =
            SMOOTH * t->report.speed + (1 - SMOOTH) * part * (double)e->samples / e->times.compute;
    if (e->seconds > 0)
        t->report.waits = SMOOTH * t->report.waits + (1 - SMOOTH) * e->times.wait / e->seconds;
    td__rank_stats_add(t->report.stats, &(td__rank_times){.seconds = e->seconds,
                                                          .compute = e->times.compute,
                                                          .update = e->times.update,
                                                          .comm = e->times.reduce,
                                                          .busy = e->times.busy,
                                                          .wait = e->times.wait,
                                                          .data = e->data_wait,
                                                          .nbytes = (double)e->times.sent_nbytes,
                                                          .plain = (double)e->times.plain_nbytes});
}

td_status td__train_tell_ranks(td__trainer *t, bool end)
{
    td__ranks_event e;

    TD_TRY(td__rank_stats_tell(t->report.stats, t->replica.state.step, end, &e));
    if (e.n)
        TD__TELL(t, ranks, &e);
    return TD_OK;
}

td_status td__train_tell_order(td__trainer *t)
{
    td__order_event e;

    while (td__sync_order(t->run.sync, &e)) {
        e.step = t->replica.state.step;
        TD__TELL(t, order, &e);
    }
    return TD_OK;
}

void td__train_advance(td__trainer *t, int64_t samples)
{
    td__train_state *s = &t->replica.state;
    s->step++;
    s->samples += (uint64_t)samples;
    s->batch_in_epoch += t->o.accumulate;
    if (s->batch_in_epoch >= t->plan.batches) {
        s->batch_in_epoch = 0;
        s->epoch++;
    }
    t->run.dirty = true;
}

static td_status step(td__trainer *t)
{
    td__train_state *s = &t->replica.state;
    td__step_event e = {.step = s->step + 1, .epoch = s->epoch};
    uint64_t begin = e.begin_ns = td__clock_ns();
    td__train_heartbeat(t, TD_PHASE_COMPUTE, "the step's beginning", NULL);
    td__faults_step(t->o.faults, e.step);
    t->replica.tried = e.step > t->replica.tried ? e.step : t->replica.tried;
    td_status st = run_batches(t, &e);
    if (st) {
        td__sync_abandon(t->run.sync, td_last_error());
        return td__verify_doubt(t->run.verify) ? td__verify_vote(t->run.verify) : st;
    }
    td__train_advance(t, e.samples);
    st = td__sync_gather(t->run.sync, &e.times); /* if it fails the step is done all the same */
    t->replica.whole = !st && !t->run.sync->traits.sharded_params;
    add_span(t, TD_SPAN_STEP, begin, e.step);
    t->replica.loss = e.loss;
    t->report.samples += (uint64_t)e.samples;
    t->report.sent_nbytes += e.times.sent_nbytes;
    t->report.plain_nbytes += e.times.plain_nbytes;
    if (e.times.sent_nbytes)
        t->report.last_ratio = (double)e.times.plain_nbytes / (double)e.times.sent_nbytes;
    e.n_notes = td__sync_notes(t->run.sync, e.note);
    e.seconds = seconds_since(begin);
    e.elapsed = seconds_since(t->report.began_ns);
    t->report.seconds += e.seconds;
    td__event_log_step(&t->replica.event_log, &e);
    TD_TRY(st);
    if (t->run.checkpointer)
        TD_TRY(td__point(td__faults_points(t->o.faults), TD_POINT_FILE, "metrics"));
    t->report.told_step = e.step;
    add_times(t, &e);
    TD__TELL(t, step, &e);
    TD_TRY(td__train_tell_order(t));
    return td__train_tell_ranks(t, false);
}

/* ---- Between steps --------------------------------------------------------------------------- */

static bool better(const td__trainer *t, double value)
{
    double best = t->replica.state.best;
    if (isnan(best))
        return !isnan(value);
    if (t->plan.watch >= 0 && t->plan.facts.higher_is_better[t->plan.watch])
        return value > best + t->o.min_delta;
    return value < best - t->o.min_delta;
}

/* Rank 1 keeps a copy until rank 0 has written it; where ranks hold shards, all write together. */
void td__train_keep_best(td__trainer *t)
{
    if (t->o.members && t->o.checkpoint_dir && !t->replica.shards && t->world.rank == 1)
        td__best_replica_keep(&t->run.best_replica, &t->replica);
    else
        td__best_replica_drop(&t->run.best_replica);
}

/* *best: it was the best so far. Nothing has happened if the run was asked to stop meanwhile. */
static td_status validate(td__trainer *t, bool *best)
{
    td__train_state *s = &t->replica.state;
    td__eval_result r;
    bool stopped;
    uint64_t begin = td__clock_ns();

    /* A rank of an elastic run that is to stop does so at the border of a step. */
    td__train_heartbeat(t, TD_PHASE_COMPUTE, "validation", NULL);
    TD_TRY(td__trainer_evaluate_until(t, td__data_part(t->plan.data, TD_PART_VALID),
                                      t->o.members ? NULL : t->run.stop, &stopped, &r));
    span(t, TD_SPAN_VALID, begin);
    if (stopped)
        t->world.phase = TD_RUN_STOPPING;
    if (stopped)
        return TD_OK;
    double value = r.value[t->plan.watch + 1];
    if (isnan(value))
        return TD_FAIL(TD_EINVAL,
                       "%s of the validation part is nan after step %llu; lower the learning rate "
                       "(train.optimizer.lr) or clip gradients (train.clip)",
                       t->o.watch, (unsigned long long)s->step);
    *best = better(t, value);
    if (*best) {
        s->best = value;
        s->best_step = s->step;
        s->bad_validations = 0;
    } else {
        s->bad_validations++;
    }
    s->valid_step = s->step;
    TD_TRY(td_schedule_metric(t->replica.schedule, value));
    s->schedule = td_schedule_get_state(t->replica.schedule);
    if (*best)
        td__train_keep_best(t);
    t->run.dirty = true;
    td__eval_event e = {.step = s->step,
                        .epoch = s->epoch - (at_epoch_end(t) ? 1 : 0),
                        .part = td__part_name(TD_PART_VALID),
                        .n = r.n,
                        .name = r.name,
                        .value = r.value,
                        .best = *best,
                        .seconds = r.seconds};
    td__event_log_eval(&t->replica.event_log, &e);
    t->report.told_valid = e.step;
    TD__TELL(t, eval, &e);
    return TD_OK;
}

static td_status between_steps(td__trainer *t)
{
    bool best = t->run.owes_best, valid = td__train_owes_validation(t) && !asked_to_stop(t);
    td__best_replica_look(&t->run.best_replica, t->o.checkpoint_dir);
    if (valid || due(t, t->o.checkpoint_every))
        TD_TRY(td__sync_meet_for(t->run.sync, valid ? TD_MEET_EVAL : TD_MEET_SAVE));
    if (valid)
        TD_TRY(validate(t, &best));
    t->run.owes_best = best; /* until it is saved: other ranks may be needed for that */
    if (best || (t->run.dirty && due(t, t->o.checkpoint_every)))
        TD_TRY(td__train_save(t, best));
    else if (t->run.checkpointer)
        TD_TRY(td__train_saved(t));
    t->run.owes_best = false;
    return TD_OK;
}

/* ---- The run --------------------------------------------------------------------------------- */

td_status td__train_tell_begin(td__trainer *t)
{
    td__train_info info = {.name = t->o.name,
                           .first_step = t->replica.state.step + 1,
                           .steps = t->plan.total_steps,
                           .steps_per_epoch = t->plan.steps_per_epoch,
                           .batch = t->o.batch,
                           .micro_batches = t->o.micro_batches,
                           .threads = td__pool_threads(t->run.pool),
                           .ranks = td__trainer_ranks(t),
                           .precision = td_dtype_name(t->o.precision),
                           .job_digest = t->replica.state.job_digest};
    for (int i = 0; i < td_params_count(t->replica.params); i++)
        if (!td_params_info(t->replica.params, i).is_state)
            info.params += (int64_t)td_params_info(t->replica.params, i).count;
    TD__TELL(t, begin, &info);
    return TD_OK;
}

static td_status check(const td__trainer *t)
{
    td__sync_world w = td__trainer_world(t);
    w.starts = !t->o.members;
    TD_TRY(td__train_check(&t->o, &w));
    if (!td__data_part(t->plan.data, TD_PART_TRAIN))
        return TD_FAIL(TD_EINVAL, "no data to train on: the training part is empty");
    if (!t->plan.total_steps)
        return TD_FAIL(TD_EINVAL, "nothing to do: neither epochs nor steps are given");
    return TD_OK;
}

bool td__train_changes(const td__trainer *t)
{
    return t->world.phase == TD_RUN_CHANGING || t->world.phase == TD_RUN_LEAVING;
}

bool td__train_over(const td__trainer *t)
{
    return td__train_at_end(t) || td__train_gives_up(t) || asked_to_stop(t);
}

td_status td__train_steps(td__trainer *t)
{
    TD_TRY(between_steps(t)); /* a validation that an interrupted run still owes */
    while (!td__train_over(t) && !td__train_changes(t)) {
        TD_TRY(step(t));
        TD_TRY(between_steps(t));
        if (t->run.rebalance)
            TD_TRY(td__train_rebalance(t));
        t->run.rebalance = false;
    }
    return TD_OK;
}

td_status td__trainer_run(td__trainer *t, const atomic_int *stop, td__train_result *out)
{
    memset(out, 0, sizeof *out);
    t->run.stop = t->elastic.stop = stop;
    t->report.began_ns = td__clock_ns();
    t->report.samples = 0;
    t->report.sent_nbytes = t->report.plain_nbytes = 0;
    t->report.last_ratio = 0;
    t->report.seconds = 0;
    t->replica.loss = (double)NAN;
    t->run.dirty = false;
    t->world.phase = TD_RUN_TRAINING;
    t->report.told_end = t->report.told_test = false;
    td_status st = check(t);
    if (!st && t->o.members) /* a generation makes its own of what was made without its comm */
        td__train_close(t);
    t->run.going = true;
    if (!st)
        st = td__elastic_run(&t->elastic, out);
    t->run.going = false;
    st = td__replicas_failed(t, st);
    td__train_drop_lead(t);
    td__checkpointer_destroy(t->run.checkpointer); /* what is being written is finished */
    t->run.checkpointer = NULL;
    return st;
}
