/* heartbeat.c -- what a rank is doing: told to its comm, for the others' stall reports, and to its
 * agent, for `tandem status` and the watch over processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "coll/comm.h"
#include "fault/faults.h"
#include "train/trainer_impl.h"

void td__train_heartbeat(td__trainer *t, td__phase phase, const char *what, const char *about)
{
    td__members *m = t->o.agent;
    if (phase != TD_PHASE_COMPUTE)
        atomic_store(&t->run.at, NULL);
    td__comm_says(t->world.comm, phase, t->replica.state.step + 1, what);
    if (m && m->ops->heartbeat)
        m->ops->heartbeat(
            m, &(td__heartbeat){
                   .step = t->replica.state.step,
                   .steps = t->plan.total_steps,
                   .phase = phase,
                   .what = what,
                   .about = about,
                   .samples_per_second =
                       t->report.seconds > 0 ? (double)t->report.samples / t->report.seconds : 0,
                   .loss = t->replica.loss,
                   .speed = t->report.speed,
                   .wait = t->report.waits,
                   .faults = td__faults_count(t->o.faults)});
}

/* What a call is about, or the node that is being run. */
static bool say_now(void *trainer, char *out, size_t max)
{
    td__trainer *t = trainer;
    td__micro_batch_set *at = atomic_load(&t->run.at);
    const char *waits = atomic_load(&t->run.waits);
    if (waits) {
        snprintf(out, max, "%s", waits);
        return true;
    }
    if (at)
        return td__micro_batch_set_now(at, out, max);
    return td__comm_now(t->world.comm, out, max);
}

/* Nobody is watched for how long a disk takes, nor for what a program does on its own. */
void td__trainer_writes(td__trainer *t, const char *what)
{
    if (!t->run.going)
        td__train_heartbeat(t, what ? TD_PHASE_DISK : TD_PHASE_IDLE, what, NULL);
}

void td__train_explains(td__trainer *t, bool begins)
{
    td__members *m = t->o.agent;
    if (m && m->ops->explain)
        m->ops->explain(m, begins ? say_now : NULL, t);
}
