/* serve.c -- a run under a sync rule with a leader (parallel/sync.h): rank 0 is the trainer that it
 * is alone, and the others work on what it asks for, until it is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "fault/faults.h"
#include "train/trainer_impl.h"

/* The loader to the batch of an order. Others get batches too, in turn or not: what is read ahead
 * is the batch that comes after as many as it has been in the mean. */
static void place_loader(td__trainer *t, const td__sync_place *at)
{
    enum { WEIGHT = 4 }; /* of the newest gap, of 16 */
    double gap = (double)(at->batch - t->run.orders.batch);
    bool follows = t->o.accumulate == 1 && at->epoch == t->run.orders.epoch && gap > 0;
    if (follows && t->run.orders.gap > 0)
        t->run.orders.gap += WEIGHT / 16.0 * (gap - t->run.orders.gap);
    else if (follows)
        t->run.orders.gap = gap;
    int64_t by = (int64_t)(t->run.orders.gap + 0.5);
    t->run.orders.epoch = at->epoch;
    t->run.orders.batch = at->batch;
    if (!td__loader_is_at(t->run.loader, at->epoch, at->batch))
        td__loader_seek_by(t->run.loader, at->epoch, at->batch, by > 1 ? by : 1);
}

/* The step that the leader asks for, which may be far from the last one. */
static td_status work(void *user, const td__sync_place *at, int *batches, double *data_wait)
{
    td__trainer *t = user;
    td__step_event e = {.step = at->step, .epoch = at->epoch};
    int64_t first, end;

    td__faults_step(t->o.faults, at->step);
    if (t->o.members) { /* what this rank holds is of no moment of the run */
        t->replica.has = TD_REPLICA_INVALID;
        t->replica.tried = at->step > t->replica.tried ? at->step : t->replica.tried;
    }
    t->replica.state.step = at->step - 1;
    place_loader(t, at);
    t->replica.state.epoch = at->epoch;
    t->replica.state.batch_in_epoch = at->batch;
    TD_TRY(td__train_batches(t, &e, &first, &end));
    *batches = (int)(end - first);
    *data_wait = e.data_wait;
    t->replica.state.batch_in_epoch = end < t->plan.batches ? end : 0;
    t->replica.state.epoch += end == t->plan.batches;
    return TD_OK;
}

static bool stopping(void *user)
{
    const td__trainer *t = user;
    return t->run.stop && atomic_load(t->run.stop);
}

/* ---- Ranks that keep the leader's state ------------------------------------------------------ */

static const void *place(void *user, size_t *nbytes)
{
    td__trainer *t = user;
    *nbytes = sizeof t->replica.state;
    return &t->replica.state;
}

static void follows(void *user, const void *leaders)
{
    td__trainer *t = user;
    td__train_state *s = &t->replica.state;
    uint64_t validated = s->valid_step;
    memcpy(s, leaders, sizeof *s);
    td_schedule_set_state(t->replica.schedule, s->schedule);
    if (s->valid_step != validated && s->best_step == s->step)
        td__train_keep_best(t);
    td__best_replica_look(&t->run.best_replica, t->o.checkpoint_dir);
    td__train_heartbeat(t, TD_PHASE_COMM, "a step of the leader", NULL);
    td__faults_step(t->o.faults, s->step + 1);
    t->replica.tried = s->step + 1 > t->replica.tried ? s->step + 1 : t->replica.tried;
}

static void followed(void *user, double lr, const td__step_result *r)
{
    td__trainer *t = user;
    const td__train_state *s = &t->replica.state;
    td__step_event e = {.step = s->step + 1,
                        .epoch = s->epoch,
                        .loss = r->loss,
                        .lr = lr,
                        .grad_norm = r->grad_norm,
                        .samples = r->counted_rows,
                        .counted = r->counted,
                        .n_counted = r->n_counted,
                        .times = r->times};
    td__train_advance(t, e.samples);
    t->replica.loss = e.loss;
    t->replica.whole = true;
    td__event_log_step(&t->replica.event_log, &e);
}

static void holds(void *user, const td__param_range *at, int n, size_t total)
{
    td__trainer *t = user;
    t->replica.part = (td__replica_part){.n = n, .total = total};
    for (int i = 0; i < n; i++)
        t->replica.part.at[i] = at[i];
}

static void waits(void *user, const char *what)
{
    td__trainer *t = user;
    td__micro_batch_set *at = atomic_load(&t->run.at);
    atomic_store(&t->run.waits, what);
    td__train_heartbeat(t, what ? TD_PHASE_COMM : TD_PHASE_COMPUTE, what ? what : "the step", NULL);
    atomic_store(&t->run.at, at); /* in the midst of a batch, whose nodes are run after the wait */
}

static void lost(void *user)
{
    td__trainer *t = user;
    t->replica.has = TD_REPLICA_INVALID;
}

static int64_t sample(void *user, uint64_t epoch, int64_t position)
{
    const td__trainer *t = user;
    return td__loader_sample(t->run.loader, epoch, position);
}

static td_status outputs(void *user, int64_t rows, const void *samples, size_t nbytes, void **out,
                         size_t *row_nbytes)
{
    return td__trainer_outputs(user, rows, samples, nbytes, out, row_nbytes);
}

td__sync_host td__train_host(td__trainer *t)
{
    return (td__sync_host){.user = t,
                           .work = work,
                           .stopping = stopping,
                           .sample = sample,
                           .place = place,
                           .follows = follows,
                           .followed = followed,
                           .holds = holds,
                           .waits = waits,
                           .lost = lost,
                           .outputs = outputs};
}

td_status td__train_share_result(td__trainer *t, td__train_result *out)
{
    struct {
        td__train_result result;
        td__train_state state;
    } end = {*out, t->replica.state};

    TD_TRY(td_broadcast(t->world.comm, &end, sizeof end, TD_U8, 0, NULL));
    if (td__trainer_rank(t) == 0)
        return TD_OK;
    const char *device = out->device; /* a text of this process */
    *out = end.result;
    out->device = device;
    out->dropped = NULL;
    out->n_dropped = 0;
    t->replica.state = end.state;
    return TD_OK;
}
