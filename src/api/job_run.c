/* job_run.c -- a job becomes a run's directory and a trainer; see job_run.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/job_run.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/crew.h"
#include "base/alloc.h"
#include "base/config.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "ps/server_order.h"
#include "run/run_lock.h"
#include "tandem/coll.h"

enum { LOCK_MS = 2000 };

/* ---- The directory --------------------------------------------------------------------------- */

/* All ranks of an elastic job hold the lock, by the mark that the launcher gave them; otherwise
 * rank 0 alone. ms: a job that was killed a moment ago may not be gone yet. */
static td_status lock_run(td__job_run *r, uint64_t ms)
{
    const char *mark = r->session.members ? td__env_get(TD_ENV_JOB) : NULL;
    return td__run_lock_take(r->dir, mark, td__deadline_in_ms(ms), &r->lock);
}

/* An existing run to go on with. */
static td_status find_run(td__job_run *r)
{
    const char *dir = r->o.resume_dir ? r->o.resume_dir : r->o.run_dir;
    td__session *s = &r->session;
    struct stat info;

    if (dir)
        TD_TRY(td__run_dir_path(dir, ".", r->dir)); /* checks the length */
    if (dir)
        snprintf(r->dir, sizeof r->dir, "%s", dir);
    else
        TD_TRY(
            td__run_dir_newest(td__job_log_opts(s->job)->runs_dir, td__job_name(s->job), r->dir));
    char job[TD__PATH];
    TD_TRY(td__run_dir_path(r->dir, "job.yaml", job));
    if (stat(job, &info) != 0)
        return TD_FAIL(TD_EINVAL, "cannot resume %s: it is not a run's directory (no job.yaml)",
                       r->dir);
    if (access(r->dir, W_OK) != 0 && !r->o.reopen) { /* a finished run may be looked at */
        TD_TRY(td__run_past_check(s->job, r->dir, &r->past));
        if (r->past.finished)
            return TD_OK;
    }
    TD_TRY(lock_run(r, LOCK_MS));
    return td__run_past_check(s->job, r->dir, &r->past);
}

/* A directory of our own. */
static td_status make_run(td__job_run *r)
{
    const char *dir = r->o.run_dir;
    td__session *s = &r->session;
    char job[TD__PATH];
    struct stat info;

    if (!dir) {
        TD_TRY(
            td__run_dir_create(td__job_log_opts(s->job)->runs_dir, td__job_name(s->job), r->dir));
        r->made = true;
        return lock_run(r, 0);
    }
    TD_TRY(td__run_dir_path(dir, "job.yaml", job));
    bool fresh = stat(dir, &info) != 0;
    TD_TRY(td__run_dir_create(dir, NULL, r->dir));
    if (access(r->dir, W_OK) != 0)
        return TD_FAIL(TD_EINVAL, "%s: no permission to write there", r->dir);
    TD_TRY(lock_run(r, 0));
    if (stat(job, &info) == 0)
        return TD_FAIL(TD_EINVAL, "%s already has a run: resume it, or name another directory",
                       dir);
    r->made = fresh;
    return TD_OK;
}

static ssize_t into_text(void *text, const char *some, size_t nbytes)
{
    td__text_append(text, some, nbytes);
    return (ssize_t)nbytes;
}

static td_status job_as_text(const td__job *job, td__text *out)
{
    FILE *f = fopencookie(out, "w", (cookie_io_functions_t){.write = into_text});
    td_status st = f ? td__job_write(job, f) : TD_OK;

    if ((!f || fclose(f) != 0) && !st)
        st = TD_FAIL(TD_ENOMEM, "no memory to write the job");
    return st ? st : td__text_status(out);
}

static bool is_text_of(const char *path, const td__text *text)
{
    td__file_map map;

    if (access(path, F_OK) != 0 || td__file_map_open(&map, path))
        return false;
    bool same = map.nbytes == text->used && !memcmp(map.data, text->data, text->used);
    td__file_map_close(&map);
    return same;
}

/* job.yaml, unless that is what it says already. */
static td_status write_job(td__job_run *r)
{
    char path[TD__PATH];
    td__text text = {0};
    td__file_out out;

    TD_TRY(td__run_dir_path(r->dir, "job.yaml", path));
    td_status st = job_as_text(r->session.job, &text);
    if (!st && !is_text_of(path, &text)) {
        st = td__file_out_open(&out, path);
        if (!st) {
            td__file_out_write(&out, text.data, text.used);
            st = td__file_out_commit(&out);
        }
    }
    td__text_fini(&text);
    r->begun |= !st;
    return st;
}

/* An order for another number of servers (ps/server_order.h) holds until the job, with which the
 * run is resumed, says another number itself. */
static td_status drop_order(const td__job_run *r)
{
    char path[TD__PATH], folder[TD__PATH];
    td__job *old;

    TD_TRY(td__run_dir_path(r->dir, "job.yaml", path));
    TD_TRY(td__run_dir_path(r->dir, "checkpoints", folder));
    int ordered = td__server_order_read(folder);
    if (!ordered || td__job_load(path, NULL, 0, &old))
        return TD_OK;
    int was = td__job_train(old)->sync.servers, is = td__job_train(r->session.job)->sync.servers;
    td__job_destroy(old);
    if (was == is)
        return TD_OK;
    if (is != ordered)
        TD_LOG(INFO, TRAIN, "%s: %d servers, and not %d as ordered before (tandem scale)", r->dir,
               is, ordered);
    return td__server_order_restore(folder, 0);
}

/* The run goes on: before this, nothing in its directory changes. */
static td_status accept_run(td__job_run *r)
{
    TD_TRY(drop_order(r));
    td__run_dir_sweep(r->dir);
    td__run_dir_failed(r->dir, NULL);
    TD_TRY(td__run_past_warn(r->session.job, r->dir));
    return write_job(r); /* it may be longer now */
}

td_status td__job_run_offer(td__job_run *r)
{
    if (r->o.resume) {
        TD_TRY(find_run(r));
    } else {
        TD_TRY(make_run(r));
        TD_TRY(write_job(r));
    }
    if (r->lock >= 0)
        close(r->lock); /* the ranks take it, each of them */
    r->lock = -1;
    return TD_OK;
}

void td__job_run_take_back(td__job_run *r)
{
    char path[TD__PATH];

    td__session_fini(&r->session);
    if (r->described && !td__run_dir_path(r->dir, "job.yaml", path))
        unlink(path);
    if (!r->made)
        return;
    if (*r->checkpoints)
        rmdir(r->checkpoints);
    if (!td__run_dir_path(r->dir, TD__RUN_LOCK_FILE, path))
        unlink(path);
    rmdir(r->dir);
}

/* ---- Who follows the run --------------------------------------------------------------------- */

static td_status watch(td__job_run *r, td__trainer *trainer, bool leads)
{
    const td__job_run_hooks *h = &r->o.hooks;

    r->watcher = h->watch ? h->watch(h->user, leads) : NULL;
    return r->watcher ? td__trainer_observe(trainer, r->watcher) : TD_OK;
}

/* The model for TensorBoard: its graph, and its params where this rank has all of them. */
static td_status show_model(td__job_run *r)
{
    td__session *s = &r->session;
    bool whole =
        td__trainer_scores_alone(s->trainer) && !td__sync_division_of(&s->opts.sync).pieces;
    td_graph *g;

    TD_TRY(td__session_graph(s, &g));
    td_status st =
        td__tensorboard_model(r->tensorboard, g, whole ? td__trainer_params(s->trainer) : NULL);
    td_graph_destroy(g);
    return st;
}

/* This is rank 0: the run's files from `step` on, but for the metrics, which are open; taken over:
 * from another rank 0. */
static td_status observe(td__job_run *r, td__trainer *trainer, uint64_t step, bool taken_over)
{
    const td__job_log *log = td__job_log_opts(r->session.job);

    if (r->metrics)
        TD_TRY(td__trainer_observe(trainer, r->metrics));
    if (log->tensorboard && !r->o.no_dir) {
        TD_TRY(td__tensorboard_create(r->dir, step, taken_over, &r->tensorboard));
        TD_TRY(show_model(r));
        TD_TRY(td__trainer_observe(trainer, r->tensorboard));
    }
    if (r->o.profile && !r->o.no_dir) {
        TD_TRY(td__trace_create(r->dir, &r->trace));
        TD_TRY(td__trainer_observe(trainer, r->trace));
    }
    TD_TRY(td__job_run_live(r, trainer));
    return watch(r, trainer, true);
}

/* ---- Elastic ranks --------------------------------------------------------------------------- */

static td_status lead_begin(void *user, td__trainer *trainer, uint64_t step, uint64_t valid,
                            uint64_t *told_step, uint64_t *told_valid)
{
    td__job_run *r = user;
    td__members *m = r->session.members;

    TD_TRY(accept_run(r));
    TD_TRY(td__metrics_file_take_over(r->dir, step, valid, told_step, told_valid, &r->metrics));
    m->ops->run_dir(m, r->dir);
    return observe(r, trainer, step, true);
}

/* Once, however often the others' loss makes it the end. */
static void lead_conclude(void *user, td__train_result *result)
{
    td__job_run *r = user;

    if (r->concluded)
        return;
    r->result = *result;
    r->test = *td__trainer_test(r->session.trainer);
    if (r->o.hooks.conclude)
        r->o.hooks.conclude(r->o.hooks.user);
    r->concluded = true;
    *result = r->result;
}

static void lead_end(void *user)
{
    td__job_run *r = user;

    if (r->o.hooks.unwatch)
        r->o.hooks.unwatch(r->o.hooks.user);
    td__report_live_destroy(r->live);
    td__tensorboard_destroy(r->tensorboard);
    td__metrics_file_destroy(r->metrics);
    r->watcher = r->tensorboard = r->metrics = r->live = NULL;
}

td_status td__job_run_check_elastic(const td__job_run *r)
{
    if (r->o.profile)
        return TD_FAIL(TD_EINVAL, "a profile needs the same ranks from the first step to the last: "
                                  "start fixed ranks, not elastic ones");
    if (strcmp(td__job_parallel_opts(r->session.job)->distribute, "none") != 0)
        return TD_FAIL(TD_EINVAL,
                       "data.distribute: not with elastic ranks, which each read their data");
    if (td__job_from(r->session.job) && r->session.opts.sync.zero)
        return TD_FAIL(TD_EINVAL, "model.from: not with elastic ranks and parallel.zero, where "
                                  "each makes the first weights of its shards");
    if (!r->session.members && !r->o.resume) /* before ranks are started, whichever begins */
        TD_TRY(td__job_run_see_from(r));
    return td__session_check_elastic(&r->session);
}

/* ---- Data ------------------------------------------------------------------------------------ */

enum { MOST_FIT = 1 << 30 };

/* Rank 0's text to all. */
static td_status share_fit(td__session *s, td__text *text)
{
    int64_t nbytes = (int64_t)text->used;

    if (!s->comm)
        return TD_OK;
    TD_TRY(td_broadcast(s->comm, &nbytes, 1, TD_I64, 0, NULL));
    if (nbytes < 0 || nbytes > MOST_FIT)
        return TD_FAIL(TD_EPROTO, "malformed preprocessing from rank 0");
    if (!text->used) /* room for what comes */
        td__text_printf(text, "%*s", (int)nbytes, "");
    TD_TRY(td__text_status(text));
    return nbytes ? td_broadcast(s->comm, text->data, (size_t)nbytes, TD_U8, 0, NULL) : TD_OK;
}

/* A run that goes on reads its data as it did before. */
static td_status take_fit(td__job_run *r)
{
    td__session *s = &r->session;
    td__text text = {0};
    td_status st = TD_OK;

    if (s->members || td__job_run_leads(r))
        st = td__checkpoint_preprocessing(r->dir, &text);
    if (!st && !s->members)
        st = share_fit(s, &text);
    if (!st)
        st = td__session_fit_text(s, text.data, text.used, r->dir);
    td__text_fini(&text);
    return st;
}

/* Would the run go on with other samples than it began with? */
static td_status check_changed(td__job_run *r)
{
    td__session *s = &r->session;
    char what[256];
    bool changed;

    TD_TRY(td__session_changed(s, &changed, what, sizeof what));
    if (!changed)
        return TD_OK;
    if (strcmp(td__job_data(s->job)->changed, "accept") != 0)
        return TD_FAIL(TD_EINVAL,
                       "cannot resume %s: its data have changed: %s; to go on with them all the "
                       "same: --set data.changed=accept",
                       r->dir, what);
    TD_LOG(WARN, DATA, "%s continues with data that have changed: %s", r->dir, what);
    return TD_OK;
}

static td_status open_data(td__job_run *r, bool resume)
{
    if (resume)
        TD_TRY(take_fit(r));
    TD_TRY(td__session_data(&r->session));
    return r->session.members || td__job_run_leads(r) ? check_changed(r) : TD_OK;
}

static td_status first_weights(void *user)
{
    return td__job_run_from(user);
}

/* The directory that the launcher has made, or named. */
static td_status find_elastic(td__job_run *r)
{
    const char *dir = r->o.run_dir;
    char job[TD__PATH];
    struct stat info;

    if (!dir)
        return TD_FAIL(TD_EINVAL, "elastic ranks need a run directory, the same for all (tandem "
                                  "train -n MIN:MAX creates it)");
    TD_TRY(td__run_dir_create(dir, NULL, r->dir));
    TD_TRY(lock_run(r, LOCK_MS));
    TD_TRY(td__run_dir_path(r->dir, "job.yaml", job));
    return stat(job, &info) != 0 ? write_job(r) : drop_order(r);
}

/* Any process may lead. */
static td_status prepare_elastic(td__job_run *r)
{
    td__session *s = &r->session;

    TD_TRY(td__faults_record(s->faults, r->dir));
    TD_TRY(td__run_dir_path(r->dir, "checkpoints", r->checkpoints));
    r->lead = (td__train_lead){
        .user = r, .begin = lead_begin, .conclude = lead_conclude, .end = lead_end};
    s->opts.checkpoint_dir = r->checkpoints;
    if (td__job_from(s->job))
        r->lead.first_weights = first_weights;
    s->opts.lead = &r->lead;
    s->opts.test = true;
    return td__job_run_late(r) ? TD_OK : td__session_trainer(s);
}

/* ---- The run --------------------------------------------------------------------------------- */

static void ready(const td__job_run *r)
{
    if (r->o.hooks.ready)
        r->o.hooks.ready(r->o.hooks.user);
}

/* Rank 0's directory, and then its trainer. */
static td_status prepare_lead(td__job_run *r)
{
    td__session *s = &r->session;
    bool found = false;

    if (!r->o.resume && !r->o.no_dir) {
        TD_TRY(make_run(r));
        TD_TRY(write_job(r)); /* from here on --resume can go on with it */
        r->described = true;
    }
    if (!r->o.no_dir) {
        TD_TRY(td__run_dir_path(r->dir, "checkpoints", r->checkpoints));
        s->opts.checkpoint_dir = r->checkpoints;
    }
    TD_TRY(td__session_trainer(s));
    if (!r->o.resume)
        TD_TRY(td__job_run_from(r));
    if (r->o.resume) {
        TD_TRY(td__trainer_resume(s->trainer, &found));
        r->from_step = found ? td__trainer_step(s->trainer) : 0;
    }
    return TD_OK;
}

/* Rank 0 looks for the run to go on with; the others learn whether there is anything to do, before
 * they make the calls that follow. On them `finished` also means that rank 0 could not begin. */
static td_status find_run_for_all(td__job_run *r)
{
    td_status st = td__job_run_leads(r) ? find_run(r) : TD_OK;
    bool finished = r->past.finished && !r->o.reopen;
    int32_t ends = st || finished;
    char why[512];

    snprintf(why, sizeof why, "%s", st ? td_last_error() : "");
    td_status told =
        r->session.comm ? td_broadcast(r->session.comm, &ends, 1, TD_I32, 0, NULL) : TD_OK;
    r->past.finished = ends;
    if (st)
        return TD_FAIL(st, "%s", why);
    return told;
}

/* The run that was under way when ranks were started again: is it this one? Where it is named, by
 * its directory; otherwise by its job. */
static bool was_under_way(const td__job_run *r, const char *dir)
{
    const char *named = r->o.resume_dir ? r->o.resume_dir : r->o.run_dir;
    struct stat a, b;
    char path[TD__PATH], what[512];
    td__job *old;

    if (named)
        return strcmp(named, dir) == 0 || (stat(named, &a) == 0 && stat(dir, &b) == 0 &&
                                           a.st_dev == b.st_dev && a.st_ino == b.st_ino);
    if (td__run_dir_path(dir, "job.yaml", path) || td__job_load(path, NULL, 0, &old))
        return true; /* find_run says what is wrong */
    bool other = td__job_differs(old, r->session.job, what, sizeof what) ||
                 td__job_ends_elsewhere(old, r->session.job, what, sizeof what);
    td__job_destroy(old);
    return !other;
}

/* Rank 0 sees for all, whose hosts need not see the directory. */
static td_status take_up(td__job_run *r)
{
    const char *dir = td__env_get(TD_ENV_RESUME);

    if (!dir || r->o.no_dir)
        return TD_OK;
    int32_t mine = td__job_run_leads(r) && was_under_way(r, dir);
    if (r->session.comm)
        TD_TRY(td_broadcast(r->session.comm, &mine, 1, TD_I32, 0, NULL));
    if (!mine)
        return TD_OK;
    snprintf(r->again, sizeof r->again, "%s", dir);
    r->o.resume = true;
    r->o.resume_dir = r->again;
    return TD_OK;
}

/* The directory of a run of fixed ranks that is there already, if it is to go on. */
static td_status find_fixed(td__job_run *r)
{
    td__session *s = &r->session;

    if (s->comm)
        TD_TRY(td__session_agree(s));
    TD_TRY(take_up(r));
    td__sync_world w = td__sync_world_of(s->comm, false);
    w.starts = true;
    TD_TRY(td__train_check(&s->opts, &w));
    return r->o.resume ? find_run_for_all(r) : TD_OK;
}

td_status td__job_run_prepare(td__job_run *r)
{
    td__session *s = &r->session;

    TD_TRY(td__session_join(s));
    TD_TRY(td__crew_check(s));
    TD_TRY(td__job_run_check_from(r));
    TD_TRY(td__job_run_lower(r));
    if (s->members)
        TD_TRY(td__job_run_check_elastic(r));
    /* When a rank fails, the launcher ends the others, which have to say why: so none does before
     * all are ready for that. */
    if (s->members || s->comm)
        ready(r);
    TD_TRY(s->members ? find_elastic(r) : find_fixed(r));
    if (r->past.finished)
        return TD_OK;
    TD_TRY(td__job_run_processor(r));
    s->spreading = r->o.hooks.spreading;
    s->spreading_user = r->o.hooks.user;
    TD_TRY(open_data(r, s->members || r->o.resume));
    /* Several have been checked before they were started. */
    if (s->opts.sync.sequence && !s->comm && !s->members)
        TD_TRY(td__session_check_tensor(s));
    ready(r);
    if (td__job_run_leads(r))
        td__session_warn_model(s, s->comm ? td_comm_size(s->comm) : s->members ? 2 : 1);
    s->opts.profile = r->o.profile;
    if (s->members)
        return prepare_elastic(r);
    if (td__job_run_leads(r))
        return prepare_lead(r);
    s->opts.blank = true; /* rank 0 sends the weights */
    return td__session_trainer(s);
}

td_status td__job_run_open(td__job_run *r)
{
    if (r->session.members || r->past.finished)
        return TD_OK;
    if (r->metrics)
        return TD_FAIL(TD_EINVAL, "an earlier call failed to start this run: make a new trainer");
    if (r->session.opts.checkpoint_upload && !r->o.uploads)
        return TD_FAIL(TD_ENOTSUP,
                       "checkpoint.upload: only `tandem train` uploads, if it was built "
                       "with the service (TD_SERVICE)");
    if (!td__job_run_leads(r))
        return watch(r, r->session.trainer, false);
    if (r->o.resume)
        TD_TRY(accept_run(r));
    if (!r->o.no_dir)
        TD_TRY(td__metrics_file_create(r->dir, r->from_step, &r->metrics));
    return observe(r, r->session.trainer, r->from_step, false);
}

td_status td__job_run_train(td__job_run *r, const atomic_int *stop)
{
    td__members *m = r->session.agent;

    if (m && m->fixed && td__job_run_leads(r) && !r->o.no_dir)
        m->ops->run_dir(m, r->dir);
    if (!r->session.trainer)
        TD_TRY(td__job_run_seat(r, stop));
    if (!r->session.trainer) /* asked to leave before it had a place */
        return TD_OK;
    if (r->session.members && r->o.hooks.made)
        TD_TRY(r->o.hooks.made(r->o.hooks.user));
    return td__trainer_run(r->session.trainer, stop, &r->result);
}

void td__job_run_fini(td__job_run *r)
{
    td__free(r->times);
    td__session_fini(&r->session);
    td__report_live_destroy(r->live);
    td__free(r->job_text);
    td__trace_destroy(r->trace);
    td__tensorboard_destroy(r->tensorboard);
    td__metrics_file_destroy(r->metrics);
    if (r->lock >= 0)
        close(r->lock);
}
