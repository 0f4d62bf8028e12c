/* run_past.c -- may this job go on with that run? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/run_past.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
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

/* What can be done where the schedule's end is the run's, and that is to be another one. */
static const char *remedy(const char *what)
{
    bool length = !strncmp(what, "train.epochs ", 13) || !strncmp(what, "train.steps ", 12);
    return length ? ", and its learning rate ends with the run (train.schedule); to go on from its "
                    "weights, begin a new run: --set model.from="
                  : "";
}

td_status td__run_past_check(const td__job *job, const char *dir, td__run_past *past)
{
    char path[TD__PATH], what[512];
    td__job *old = NULL;
    td_status st = TD_OK;

    TD_TRY(td__run_dir_path(dir, "job.yaml", path));
    TD_TRY(td__job_load(path, NULL, 0, &old));
    if (td__job_differs(old, job, what, sizeof what))
        st = TD_FAIL(TD_EINVAL, "cannot resume %s: the job differs in %s%s%s", dir, what,
                     remedy(what), *remedy(what) ? dir : "");
    else
        st = read_past(dir, same_length(td__job_train(old), td__job_train(job)),
                       td__job_log_opts(job)->report, past);
    td__job_destroy(old);
    return st;
}
