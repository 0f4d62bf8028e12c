/* run_past.c -- may this job go on with that run? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/run_past.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "run/report_data.h"

static bool same_length(const td__train_opts *a, const td__train_opts *b)
{
    return a->epochs == b->epochs && a->steps == b->steps && a->patience == b->patience &&
           a->min_delta == b->min_delta;
}

/* All that the end of a run writes is there: the last step's checkpoint, whole, and the report. A
 * run killed on its last metres, or damaged later, goes on from where it is whole. */
static bool is_complete(const char *dir, uint64_t step, bool report)
{
    td__checkpoint_info last;
    char path[TD__PATH];

    return !td__checkpoint_find(dir, NULL, &last) && last.state.step == step &&
           (!report || (!td__run_dir_path(dir, "report.html", path) && access(path, F_OK) == 0));
}

static td_status read_past(const char *dir, bool same, bool report, td__run_past *past)
{
    td__report_data d;
    char path[TD__PATH];
    struct stat info;

    *past = (td__run_past){0};
    TD_TRY(td__run_dir_path(dir, "metrics.jsonl", path));
    if (stat(path, &info) != 0)
        return TD_OK;
    TD_TRY(td__report_data_read(dir, &d));
    past->step = d.step.n ? (uint64_t)d.step.v[d.step.n - 1] : 0;
    past->finished = same && (strcmp(d.end, "done") == 0 || strcmp(d.end, "early") == 0) &&
                     is_complete(dir, past->step, report);
    snprintf(past->digest, sizeof past->digest, "%s", d.digest);
    td__report_data_fini(&d);
    return TD_OK;
}

/* The learning rate is to end elsewhere: not before the step that the run has come to. */
static td_status check_length(const td__train_opts *o, const char *dir, const char *what)
{
    char checkpoints[TD__PATH];
    td__checkpoint_info last;

    TD_TRY(td__run_dir_path(dir, "checkpoints", checkpoints));
    if (!td__checkpoint_any(checkpoints))
        return TD_OK;
    TD_TRY(td__checkpoint_find(checkpoints, NULL, &last));
    uint64_t step = last.state.step, epochs = (uint64_t)o->epochs;
    bool past = o->steps && step > (uint64_t)o->steps;
    if (epochs && o->steps_per_epoch)
        past |= step > epochs * (uint64_t)o->steps_per_epoch;
    else if (epochs)
        past |= last.state.epoch + (last.state.batch_in_epoch > 0) > epochs;
    if (past)
        return TD_FAIL(TD_EINVAL,
                       "cannot resume %s: the job differs in %s, and the run has done more: step "
                       "%" PRIu64 ", epoch %" PRIu64,
                       dir, what, step, last.state.epoch + (last.state.batch_in_epoch > 0));
    return TD_OK;
}

td_status td__run_past_check(const td__job *job, const char *dir, td__run_past *past)
{
    char path[TD__PATH], what[512];
    td__job *old = NULL;
    td_status st = TD_OK;

    TD_TRY(td__run_dir_path(dir, "job.yaml", path));
    TD_TRY(td__job_load(path, NULL, 0, &old));
    if (td__job_differs(old, job, what, sizeof what))
        st = TD_FAIL(TD_EINVAL, "cannot resume %s: the job differs in %s", dir, what);
    else if (td__job_ends_elsewhere(old, job, what, sizeof what))
        st = check_length(td__job_train(job), dir, what);
    if (!st)
        st = read_past(dir, same_length(td__job_train(old), td__job_train(job)),
                       td__job_log_opts(job)->report, past);
    td__job_destroy(old);
    return st;
}

td_status td__run_past_warn(const td__job *job, const char *dir)
{
    char path[TD__PATH], what[512];
    td__job *old = NULL;

    TD_TRY(td__run_dir_path(dir, "job.yaml", path));
    TD_TRY(td__job_load(path, NULL, 0, &old));
    if (td__job_ends_elsewhere(old, job, what, sizeof what))
        TD_LOG(WARN, TRAIN,
               "%s: the learning rate (train.schedule) now ends elsewhere: %s; the weights differ "
               "from those of one run of that length",
               dir, what);
    td__job_destroy(old);
    return TD_OK;
}
