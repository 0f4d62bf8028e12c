/* serve.c -- a run under a sync rule with a leader (parallel/sync.h): rank 0 is the trainer that it
 * is alone, and the others work on what it asks for, until it is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "fault/faults.h"
#include "train/trainer_impl.h"

/* The step that the leader asks for, which may be far from the last one. */
static td_status work(void *user, const td__sync_place *at, int *batches, double *data_wait)
{
    td__trainer *t = user;
    td__step_event e = {.step = at->step, .epoch = at->epoch};
    int64_t first, end;

    td__faults_step(t->o.faults, at->step);
    t->replica.state.step = at->step - 1;
    if (t->replica.state.epoch != at->epoch ||
        t->replica.state.batch_in_epoch != at->batch) /* steps were missed */
        td__loader_seek(t->run.loader, at->epoch, at->batch);
    t->replica.state.epoch = at->epoch;
    t->replica.state.batch_in_epoch = at->batch;
    TD_TRY(td__train_batches(t, &e, &first, &end));
    *batches = (int)(end - first);
    *data_wait = e.data_wait;
    t->replica.state.batch_in_epoch = end < t->plan.batches ? end : 0; /* where the loader is */
    t->replica.state.epoch += end == t->plan.batches;
    return TD_OK;
}

static bool stopping(void *user)
{
    const td__trainer *t = user;
    return t->run.stop && atomic_load(t->run.stop);
}

td__sync_host td__train_host(td__trainer *t)
{
    return (td__sync_host){.user = t, .work = work, .stopping = stopping};
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
