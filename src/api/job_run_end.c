/* job_run_end.c -- the end of a job's run: the test part, and what is written then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "api/job_run.h"
#include "base/alloc.h"
#include "base/fail.h"

/* After the last step: the test part with the weights as they are, for all who keep records. If it
 * is interrupted the report lacks it, and resuming makes up for both. */
static td_status test(td__job_run *r, const atomic_int *stop)
{
    td__dataset *part = td__data_part(r->session.data, TD_PART_TEST);
    td__observer *const watchers[] = {r->metrics, r->tensorboard, r->trace, r->watcher};
    td__eval_result *t = &r->test;

    r->untested = false;
    if (!part || r->result.end == TD_TRAIN_INTERRUPTED)
        return TD_OK;
    if (td__trainer_alone(r->session.trainer) && !td__job_run_leads(r))
        return TD_OK; /* the leader does it alone */
    TD_TRY(td__trainer_evaluate_until(r->session.trainer, part, stop, &r->untested, t));
    if (r->untested)
        return TD_OK;
    td__eval_event e = {.step = r->result.step,
                        .epoch = r->result.epoch,
                        .part = td__part_name(TD_PART_TEST),
                        .n = t->n,
                        .name = t->name,
                        .value = t->value,
                        .seconds = t->seconds};
    for (size_t i = 0; i < sizeof watchers / sizeof watchers[0]; i++)
        if (watchers[i] && watchers[i]->eval)
            TD_TRY(watchers[i]->eval(watchers[i], &e));
    return TD_OK;
}

static td_status write_profile(td__job_run *r)
{
    td__trainer *trainer = r->session.trainer;
    int n = td__trainer_profile_count(trainer);

    td__free(r->times); /* of a run that was stopped and goes on */
    r->times = td__calloc((size_t)n + 1, sizeof *r->times);
    if (!r->times)
        return TD_FAIL(TD_ENOMEM, "no memory for the times of %d nodes", n);
    for (int i = 0; i < n; i++)
        r->times[i] = td__trainer_profile(trainer, i);
    r->n_times = n;
    TD_TRY(td__profile_write(r->dir, r->times, n));
    TD_TRY(td__trace_nodes(r->trace, r->times, n));
    return td__trace_finish(r->trace);
}

td_status td__job_run_conclude(td__job_run *r, const atomic_int *stop)
{
    bool writes = td__job_run_leads(r) && !r->o.no_dir;
    td_status st = r->session.members ? TD_OK : test(r, stop);

    td__trainer_writes(r->session.trainer, "the report");
    if (!st && r->o.profile && writes)
        st = write_profile(r);
    bool report = td__job_log_opts(r->session.job)->report && writes;
    if (!st && report && !*r->result.unsaved)
        st = td__job_run_report(r); /* untested too: it must not say that the run goes on */
    report = report && !r->untested;
    if (st == TD_EIO && writes) { /* the result is there, nonetheless */
        snprintf(r->result.unsaved, sizeof r->result.unsaved, "%s", td_last_error());
        st = TD_OK;
    }
    r->reported = report && !*r->result.unsaved;
    td__trainer_writes(r->session.trainer, NULL);
    return st;
}
