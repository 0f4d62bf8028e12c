/* check.c -- the scheduler's invariants, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "service/sched/sched_impl.h"

static bool same(td__resources a, td__resources b)
{
    return a.slots == b.slots && a.gpus == b.gpus && a.memory_mb == b.memory_mb;
}

static void add(td__resources *r, td__resources need)
{
    r->slots += need.slots;
    r->gpus += need.gpus;
    r->memory_mb += need.memory_mb;
}

static bool beyond(td__resources used, td__resources most)
{
    return (most.slots >= 0 && used.slots > most.slots) ||
           (most.gpus >= 0 && used.gpus > most.gpus) ||
           (most.memory_mb >= 0 && used.memory_mb > most.memory_mb);
}

static const char *check_job(const job *j)
{
    bool active = j->j.state == TD_JOB_LAUNCHING || j->j.state == TD_JOB_PENDING ||
                  j->j.state == TD_JOB_RUNNING;
    bool queued = j->j.state == TD_JOB_QUEUED;

    if (!active && !queued && j->j.state != TD_JOB_PAUSED)
        return "a job in a final state is kept";
    if (active != td__order_has(&j->in_active))
        return "the list of active jobs disagrees with a job's state";
    if (queued != td__order_has(&j->in_all))
        return "the queue disagrees with a job's state";
    if (queued != (j->place != PLACE_NONE))
        return "a job's place disagrees with its state";
    if ((j->place == PLACE_ELIGIBLE) != td__order_has(&j->in_queue))
        return "the queue of a user disagrees with a job's place";
    if (j->stop && !active)
        return "a job that is not active is being stopped";
    if (td__order_has(&j->in_timers) != (j->timer_ms != INT64_MAX) && !j->stop)
        return "a timer disagrees with its job";
    return NULL;
}

/* The last pass has left a job that could have been launched. */
static bool left_behind(const td__sched *s, const job *j)
{
    return j->place == PLACE_ELIGIBLE && !s->changed && !j->owner->cut &&
           (!s->o.max_launching || s->launching < s->o.max_launching) && td__sched_may_launch(s, j);
}

const char *td__sched_check(const td__sched *s)
{
    td__resources used = {0}, all = {0}, by_user = {0};
    int n = 0, launching = 0, elsewhere = 0, queued = 0;
    const char *wrong = NULL;

    for (size_t i = 0; i < s->n_job_buckets; i++)
        for (const job *j = s->jobs[i]; j; j = j->hash_next) {
            wrong = wrong ? wrong : check_job(j);
            if (left_behind(s, j))
                wrong = "a job waits though there is room for it";
            n++;
            queued += j->j.state == TD_JOB_QUEUED;
            launching += j->j.state == TD_JOB_LAUNCHING;
            elsewhere +=
                j->j.queues && (j->j.state == TD_JOB_LAUNCHING || j->j.state == TD_JOB_PENDING);
            if (td__order_has(&j->in_active)) {
                add(&used, td__sched_takes(j));
                add(&all, j->j.need);
            }
        }
    for (int i = 0; i < s->n_users; i++) {
        const user *u = s->by_number[i];
        add(&by_user, u->used);
        if (beyond(u->used, u->most))
            wrong = "a user has more than their quota";
        if ((u->queue.root != NULL) != td__order_has(&u->in_users))
            wrong = "the list of users disagrees with a user's queue";
        if (u->n_aside)
            wrong = "kinds of jobs were not returned to the queue of a user";
    }
    if (n != s->n_jobs)
        return "jobs were miscounted";
    if (launching != s->launching)
        return "launching jobs were miscounted";
    if (elsewhere != s->elsewhere)
        return "jobs in queues of other systems were miscounted";
    if (s->o.max_launching && launching > s->o.max_launching)
        return "more jobs are launching than may";
    if (queued != td__order_count(&s->queued))
        return "queued jobs were miscounted";
    if (!same(used, s->used) || !same(all, by_user))
        return "resources in use were miscounted";
    if (beyond(used, s->o.capacity))
        return "more resources are in use than there are";
    return wrong;
}
