/* job_trainer.c -- trainers of jobs and of trained runs: what `tandem train`, `tandem eval` and
 * `tandem predict` do, for programs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "api/job_text.h"
#include "api/trainer_impl.h"
#include "base/fail.h"

static const td_job_opts NONE;

/* ---- Hooks of the run ------------------------------------------------------------------------ */

static td__observer *watch(void *user, bool leads)
{
    td_trainer *t = user;
    td_callbacks to = t->callbacks.to;

    (void)leads;
    td__callbacks_init(&t->callbacks, &to, &t->stop, t->run->dir,
                       t->run->session.members ? 0 : td__session_rank(&t->run->session));
    return &t->callbacks.observer;
}

static void conclude(void *user)
{
    td_trainer *t = user;
    t->concluded = td__job_run_conclude(t->run, &t->stop);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status create(const td_job_opts *o, td_trainer **out)
{
    td_trainer *t = *out = td__calloc(1, sizeof *t);

    if (t)
        t->run = td__calloc(1, sizeof *t->run);
    if (!t || !t->run) {
        td__free(t);
        *out = NULL;
        return TD_FAIL(TD_ENOMEM, "no memory for a trainer");
    }
    t->callbacks.to = o->callbacks;
    t->run->lock = -1;
    t->run->session =
        (td__session){.comm = o->comm,
                      .borrowed = o->comm != NULL,
                      .threads = o->threads,
                      .input = o->input,
                      .given = {td__pipeline_retain(o->train), td__pipeline_retain(o->valid),
                                td__pipeline_retain(o->test)}};
    t->run->o = (td__job_run_opts){.resume = o->resume,
                                   .reopen = true,
                                   .run_dir = o->run_dir,
                                   .no_dir = o->no_run_dir,
                                   .profile = o->profile,
                                   .hooks = {.user = t, .watch = watch, .conclude = conclude}};
    return TD_OK;
}

/* The session's parts, where the functions of all trainers look for them. */
static void show(td_trainer *t)
{
    const td__session *s = &t->run->session;
    const td__field *fields;

    t->trainer = s->trainer;
    t->data = s->data;
    t->comm = s->comm;
    t->split = td__sync_division_of(&s->opts.sync).split_params;
    t->model.n_fields = td__data_fields(s->data, &fields);
    memcpy(t->model.fields, fields, (size_t)t->model.n_fields * sizeof *fields);
}

/* Does the run begin? Rank 0 decides for all, and all must be ready; a rank that cannot tells the
 * others why. */
static td_status begin(td_comm *comm, td_status st)
{
    int32_t code = (int32_t)st;
    char text[512];

    if (!comm)
        return st;
    snprintf(text, sizeof text, "%s", td_last_error());
    if (st && td_comm_rank(comm) > 0) {
        td_comm_abort(comm, text);
        return TD_FAIL(st, "%s", text);
    }
    td_status told = td_allreduce(comm, &code, &code, 1, TD_I32, TD_REDUCE_MAX, NULL);
    if (st)
        return TD_FAIL(st, "%s", text);
    TD_TRY(told);
    return code ? TD_FAIL((td_status)code, "rank 0 could not begin the run") : TD_OK;
}

td_status td_trainer_from_job(const td_job *j, const td_job_opts *opts, td_trainer **out)
{
    const td_job_opts *o = opts ? opts : &NONE;
    td__job *job;

    *out = NULL;
    if (o->no_run_dir && (o->resume || o->run_dir || o->profile))
        return TD_FAIL(TD_EINVAL, "no_run_dir excludes run_dir, resume and profile");
    TD_TRY(td__job_text_parse(j, &job));
    td_trainer *t;
    td_status st = create(o, &t);
    if (st) {
        td__job_destroy(job);
        return st;
    }
    if (!o->comm || td_comm_rank(o->comm) == 0)
        td__session_warn_renamed(job);
    st = td__session_take(&t->run->session, job);
    if (!st)
        st = td__job_run_prepare(t->run);
    if (!t->run->session.members)
        st = begin(t->run->session.comm, st);
    if (st) {
        td_trainer_destroy(t);
        return st;
    }
    t->late = true;
    show(t);
    *out = t;
    return TD_OK;
}

td_status td_trainer_from_run(const char *path, const char *checkpoint, const td_job_opts *opts,
                              td_trainer **out)
{
    const td_job_opts *o = opts ? opts : &NONE;
    td__checkpoint_info info;
    td_trainer *t;

    *out = NULL;
    TD_TRY(create(o, &t));
    t->trained = true;
    td_status st = td__session_trained(&t->run->session, path, NULL, 0, checkpoint, &info);
    if (st) {
        td_trainer_destroy(t);
        return st;
    }
    show(t);
    *out = t;
    return TD_OK;
}

/* ---- Fit ------------------------------------------------------------------------------------- */

/* The run failed: its directory says why. */
static td_status failed(td_trainer *t, td_status st)
{
    char text[512];

    snprintf(text, sizeof text, "%s", td_last_error());
    /* An elastic rank that lacks memory or its disk goes alone: the run goes on. */
    bool alone = t->run->session.members && (st == TD_EIO || st == TD_ENOMEM);
    if (td__job_run_leads(t->run) && *t->run->dir && st != TD_EABORTED && !alone)
        td__job_run_failed(t->run, text);
    return TD_FAIL(st, "%s", text);
}

td_status td__trainer_fit_job(td_trainer *t, td_run_result *out)
{
    td__job_run *r = t->run;
    td_status st = t->fitted ? TD_OK : td__job_run_open(r);

    if (!t->fitted && !r->session.members)
        st = begin(r->session.comm, st);
    TD_TRY(st);
    t->fitted = true;
    TD_TRY_OR(st, fail, td__job_run_train(r, &t->stop));
    if (!*r->result.digest) { /* an elastic rank that was asked to leave: the others go on */
        out->end = TD_RUN_STOPPED;
        return TD_OK;
    }
    TD_TRY_OR(st, fail, r->concluded ? t->concluded : td__job_run_conclude(r, &t->stop));
    td__run_result_fill(out, &r->result, r->dir);
    td__metrics_fill(&out->test, &r->test);
    if (r->untested) /* asked to stop before the test part was evaluated */
        out->end = TD_RUN_STOPPED;
    if (r->session.comm) /* nobody leaves before rank 0 has written its files */
        TD_TRY(td_barrier(r->session.comm, NULL));
    if (!*r->result.unsaved)
        return TD_OK;
    st = TD_FAIL(TD_EIO, "%s", r->result.unsaved);
fail:
    return failed(t, st);
}
