/* train_dir.c -- the job file and the run's directory of a `tandem train`: found, made, locked, and
 * taken away if nothing comes of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/file.h"
#include "run/run_lock.h"
#include "train_impl.h"

/* The job file: the argument, or the one of the run that --resume names. */
td_status td__training_find_job(td__training *t)
{
    const char *job = td__args_at(t->args, 0), *run = td__args_value(t->args, "resume");

    if (!job && !run && !t->resume) /* elastic ranks are told so */
        run = td__args_value(t->args, "run-dir");
    if (!job && !run)
        return TD_FAIL(TD_EINVAL, "expected JOB.yaml, or --resume with a run's directory");
    if (!job)
        return td__run_dir_path(run, "job.yaml", t->job_path);
    if (strlen(job) >= sizeof t->job_path)
        return TD_FAIL(TD_EINVAL, "the path %.60s... is too long", job);
    snprintf(t->job_path, sizeof t->job_path, "%s", job);
    struct stat info;
    if (stat(job, &info) == 0 && S_ISDIR(info.st_mode))
        return TD_FAIL(TD_EINVAL, "%s is a directory, not a job file%s", job,
                       t->resume ? "" : "; to go on with a run: --resume=DIR");
    return TD_OK;
}

/* All ranks of an elastic job hold the lock, by the mark that the launcher gave them; otherwise
 * rank 0 alone. ms: a job that was killed a moment ago may not be gone yet. */
td_status td__training_lock(td__training *t, uint64_t ms)
{
    const char *mark = t->session.members ? td__env_get(TD_ENV_JOB) : NULL;
    return td__run_lock_take(t->dir, mark, td__deadline_in_ms(ms), &t->lock);
}

/* An existing run to go on with. */
td_status td__training_find_run(td__training *t)
{
    const char *dir = td__args_value(t->args, "resume");
    td__session *s = &t->session;
    struct stat info;

    if (!dir)
        dir = td__args_value(t->args, "run-dir");
    if (dir)
        TD_TRY(td__run_dir_path(dir, ".", t->dir)); /* checks the length */
    if (dir)
        snprintf(t->dir, sizeof t->dir, "%s", dir);
    else
        TD_TRY(
            td__run_dir_newest(td__job_log_opts(s->job)->runs_dir, td__job_name(s->job), t->dir));
    char job[TD__PATH];
    TD_TRY(td__run_dir_path(t->dir, "job.yaml", job));
    if (stat(job, &info) != 0)
        return TD_FAIL(TD_EINVAL, "cannot resume %s: it holds no run (there is no job.yaml)",
                       t->dir);
    TD_TRY(td__training_lock(t, TD_LOCK_MS));
    td__run_dir_sweep(t->dir);
    td__run_dir_failed(t->dir, NULL);
    return td__resume_check(s, t->dir, &t->past);
}

/* A directory of our own. */
td_status td__training_make_run(td__training *t)
{
    const char *dir = td__args_value(t->args, "run-dir");
    td__session *s = &t->session;
    char job[TD__PATH];
    struct stat info;

    if (!dir) {
        TD_TRY(
            td__run_dir_create(td__job_log_opts(s->job)->runs_dir, td__job_name(s->job), t->dir));
        t->made = true;
        return td__training_lock(t, 0);
    }
    TD_TRY(td__run_dir_path(dir, "job.yaml", job));
    bool fresh = stat(dir, &info) != 0;
    TD_TRY(td__run_dir_create(dir, NULL, t->dir));
    if (access(t->dir, W_OK) != 0)
        return TD_FAIL(TD_EINVAL, "%s: no permission to write there", t->dir);
    TD_TRY(td__training_lock(t, 0));
    if (stat(job, &info) == 0)
        return TD_FAIL(TD_EINVAL, "%s holds a run already; --resume goes on with it", dir);
    t->made = fresh;
    return TD_OK;
}

td_status td__training_write_job(td__training *t)
{
    char path[TD__PATH], *text = NULL;
    size_t nbytes = 0;
    td__file_out f;

    TD_TRY(td__run_dir_path(t->dir, "job.yaml", path));
    FILE *mem = open_memstream(&text, &nbytes);
    if (!mem)
        return TD_FAIL(TD_ENOMEM, "no memory to write out the job");
    td_status st = td__job_write(t->session.job, mem);
    if (fclose(mem) != 0 && !st)
        st = TD_FAIL(TD_ENOMEM, "no memory to write out the job");
    if (!st)
        st = td__file_out_open(&f, path);
    if (!st) {
        td__file_out_write(&f, text, nbytes);
        st = td__file_out_commit(&f);
    }
    free(text);
    return st;
}

/* Nothing came of it: take away what was made, if nothing else is in it. */
void td__training_take_back(td__training *t)
{
    char job[TD__PATH];

    td__session_fini(&t->session);
    if (t->described && !td__run_dir_path(t->dir, "job.yaml", job))
        unlink(job);
    if (!t->made)
        return;
    if (*t->checkpoints)
        rmdir(t->checkpoints);
    if (!td__run_dir_path(t->dir, TD__RUN_LOCK_FILE, job))
        unlink(job);
    rmdir(t->dir);
}

/* The directory of elastic ranks, which no rank is there to make. */
td_status td__training_offer_run(td__training *t)
{
    if (t->resume)
        TD_TRY(td__training_find_run(t));
    else
        TD_TRY(td__training_make_run(t));
    if (!t->past.finished)
        TD_TRY(td__training_write_job(t));
    if (t->lock >= 0)
        close(t->lock); /* the ranks take it, each of them */
    t->lock = -1;
    return TD_OK;
}
