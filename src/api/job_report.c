/* job_report.c -- report.html of a job's run: while it goes on, at its end, when it has failed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "api/job_run.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "train/scores.h"

enum { MOST_SCORED = 1 << 24 }; /* outputs: what the report may take of time and memory */

/* The scores of the model as it is now, on the part that it has not seen, where one rank can
 * compute them. Their absence is no reason to have no report. */
static void fill_scores(td__job_run *r, td__scores *scores, td__report_opts *o)
{
    td__session *s = &r->session;
    td__part part = td__data_part(s->data, TD_PART_TEST) ? TD_PART_TEST : TD_PART_VALID;
    td__dataset *d = td__data_part(s->data, part);
    const td__field *f;
    int n = td__data_fields(s->data, &f);

    while (n > 0 && strcmp(f[n - 1].name, td__trainer_target(s->trainer)) != 0)
        n--;
    if (!d || !n || td_shape_count(&f[n - 1].shape) != 1 ||
        d->count > MOST_SCORED / (f[n - 1].classes + 1) || !td__trainer_scores_alone(s->trainer) ||
        td__trainer_scores(s->trainer, d, scores))
        return;
    o->scores = scores;
    o->scores_part = td__part_name(part);
    o->class_names = f[n - 1].class_names;
}

static td_status read_job(td__job_run *r)
{
    char path[TD__PATH];
    td__file_map job;

    if (r->job_text)
        return TD_OK;
    TD_TRY(td__run_dir_path(r->dir, "job.yaml", path));
    TD_TRY(td__file_map_open(&job, path));
    r->job_text = td__calloc(job.nbytes + 1, 1);
    if (r->job_text)
        memcpy(r->job_text, job.data, job.nbytes);
    td__file_map_close(&job);
    return r->job_text ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the report");
}

/* What all reports of the run have. */
static td_status fill(td__job_run *r, td__report_opts *o)
{
    td__session *s = &r->session;
    const td__layer_row *layers;
    int n = td__job_layers(s->job, &layers);

    TD_TRY(read_job(r));
    *o = (td__report_opts){.dir = r->dir,
                           .title = td__job_name(s->job),
                           .job_text = r->job_text,
                           .layers = layers,
                           .n_layers = n,
                           .memory = td_program_memory(td__trainer_program(s->trainer))};
    return TD_OK;
}

td_status td__job_run_live(td__job_run *r, td__trainer *trainer)
{
    td__report_opts o;

    if (!td__job_log_opts(r->session.job)->report || r->o.no_dir)
        return TD_OK;
    TD_TRY(fill(r, &o));
    TD_TRY(td__report_live_create(&o, &r->live));
    return td__trainer_observe(trainer, r->live);
}

td_status td__job_run_report(td__job_run *r)
{
    td__scores scores = {0};
    td__report_opts o;

    TD_TRY(fill(r, &o));
    o.profile = r->times;
    o.n_profile = r->n_times;
    if (!r->untested) /* else somebody is in a hurry */
        fill_scores(r, &scores, &o);
    td_status st = td__report_write(&o);
    td__scores_fini(&scores);
    return st;
}

void td__job_run_failed(td__job_run *r, const char *why)
{
    td__report_opts o;

    if (!r->begun)
        return;
    td__run_dir_failed(r->dir, why);
    if (!r->live || fill(r, &o))
        return;
    o.failed = why;
    td_status st = td__report_write(&o);
    if (st == TD_EIO) /* most often the full disk that `why` names */
        TD_LOG(INFO, TRAIN, "the report does not say why the run failed: %s", td_last_error());
    else if (st)
        TD_LOG(WARN, TRAIN, "the report does not say why the run failed: %s", td_last_error());
}
