/* train.c -- `tandem train`: a job file becomes a run's directory with a trained model in it. What
 * is done is api/job_run.h's; here are the flags, the signals, the ranks to start, and what is
 * said.
 *
 * Signals are caught from the directory on: the first one asks the trainer to stop after the step
 * in flight, with a checkpoint; a second one, if not of the same moment, leaves at once.
 *
 * With -n this process starts the ranks, each of which is a `tandem train` of its own (ranks.h),
 * and so is one that mpirun or torchrun started. Rank 0 has the run's directory, prints, and says
 * whether the run begins. Another rank that fails says why by aborting the comm, in rank 0's
 * words. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/crew.h"
#include "auto_mesh.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/human.h"
#include "check_pipeline.h"
#include "coll/comm_setup.h"
#include "elastic_args.h"
#include "faults_sweep.h"
#include "ranks.h"
#include "run/backup_sets.h"
#include "step/pool.h"
#include "train_impl.h"
#include "train_remote.h"

enum { SPREAD_SILENT_NS = 1000000000, SPREAD_NS = 100000000 };

static atomic_int stop; /* what signal handlers may reach is static */
static _Atomic uint64_t stopped_ns;

static void on_signal(int sig)
{
    uint64_t first = 0, now = td__clock_ns();

    (void)sig;
    if (atomic_compare_exchange_strong(&stopped_ns, &first, now))
        atomic_store(&stop, 1);
    else if (now > first + TD_SIGNAL_MS * UINT64_C(1000000))
        _exit(TD_EXIT_INTERRUPTED);
}

static void catch_signals(void *user)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    (void)user;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    /* A terminal that goes away is no reason to lose work, and with nohup none to stop. */
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &act, NULL);
    /* A reader that goes away (`| head`) must not kill the run: writes then fail with EPIPE, which
     * nobody needs to be told. */
    signal(SIGPIPE, SIG_IGN);
}

/* The job file: the argument, or the one of the run that --resume or --replay names. */
static td_status find_job(td__training *t)
{
    const char *job = td__args_at(t->args, 0), *run = td__args_value(t->args, "resume");

    if (!job && !run)
        run = td__args_value(t->args, "replay");
    if (!job && !run && !t->run.o.resume) /* elastic ranks are told so */
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
                       t->run.o.resume ? "" : "; to continue a run: --resume=DIR");
    return TD_OK;
}

static td__observer *watch(void *user, bool leads)
{
    td__training *t = user;
    const td__args *a = t->args;

    if (!leads)
        return NULL;
    td__progress_init(&t->progress,
                      td__args_has(a, "json")    ? TD_PROGRESS_JSON
                      : td__args_has(a, "quiet") ? TD_PROGRESS_QUIET
                                                 : TD_PROGRESS_LINE,
                      td__job_log_opts(t->run.session.job)->every);
    td__observer *next = td__training_upload(t, &t->progress.observer);
    return td__args_at(a, 0)
               ? td__hooks_watch(&t->hooks, td__job_hook_commands(t->run.session.job), t->run.dir,
                                 t->run.session.opts.steps_per_epoch, next)
               : next;
}

static void unwatch(void *user)
{
    td__training *t = user;

    t->rc = td__training_uploaded(t, t->rc);
    td__progress_fini(&t->progress);
}

/* Elastic, as rank 0: the others wait for it. */
static void conclude(void *user)
{
    td__training *t = user;

    t->rc = td__training_conclude(t, &stop);
}

/* Rank 0's data on their way: a line on a terminal, after the first second. Nothing is lost yet if
 * the user wants to leave. */
static td_status spreading(void *user, const char *part, uint64_t done, uint64_t all)
{
    td__training *t = user;
    uint64_t now = td__clock_ns();
    bool silent = td__args_has(t->args, "json") || td__args_has(t->args, "quiet");
    char size[TD__HUMAN];

    if (atomic_load(&stop))
        return TD_FAIL(TD_EABORTED, "interrupted while sending the data to all ranks");
    if (silent || !isatty(STDOUT_FILENO))
        return TD_OK;
    if (!t->spread_ns)
        t->spread_ns = now + SPREAD_SILENT_NS;
    if (now < t->spread_ns && done < all)
        return TD_OK;
    if (now >= t->spread_ns)
        printf("\r\033[K%s data to all ranks: %.0f %% of %s", part,
               100 * (double)done / (double)all, td__human_bytes((double)all, size));
    if (done == all)
        fputs("\r\033[K", stdout);
    fflush(stdout);
    t->spread_ns = now + SPREAD_NS;
    return TD_OK;
}

static void print_head(td__training *t, int ranks, const char *how)
{
    if (td__args_has(t->args, "quiet") || td__args_has(t->args, "json"))
        return;
    printf("%s: %s%s", td__job_name(t->run.session.job), t->run.o.resume ? "resumed in " : "",
           t->run.dir);
    if (ranks > 1)
        printf(", on %d ranks (%s)", ranks, how);
    putchar('\n');
    fflush(stdout);
}

/* The job, as the command line has it. */
static td_status load_job(td__training *t)
{
    td__session *s = &t->run.session;
    const char *faults = td__args_value(t->args, "faults");

    TD_TRY(find_job(t));
    TD_TRY(td__args_job(s, t->args, t->job_path));
    TD_TRY(td__training_check_urls(t));
    if (faults)
        TD_TRY(td__faults_create(faults, NULL, NULL, &s->faults));
    s->opts.faults = s->faults;
    s->opts.no_advice = td__args_has(t->args, "quiet");
    return TD_OK;
}

static td_status send_shards(void *user)
{
    return td__training_send_shards(user);
}

/* The run is over, or this process has no more part in it. */
static int run_elastic(td__training *t)
{
    td_status st = td__job_run_train(&t->run, &stop);

    if (st == TD_EABORTED) /* fenced off, or not needed any more: others know better */
        return TD_EXIT_OK;
    if (st == TD_EIO || st == TD_ENOMEM) { /* this process alone knows why it goes */
        td__progress_clear(&t->progress);
        (void)td__failure(t->args, st);
        return TD_EXIT_FAILED;
    }
    if (st)
        return td__training_failed(t, st);
    if (!*t->run.result.digest) /* drained: the others go on */
        return TD_EXIT_INTERRUPTED;
    return t->run.concluded ? t->rc : td__training_conclude(t, &stop);
}

static int already_finished(const td__training *t)
{
    if (td__args_has(t->args, "json"))
        printf("{\"kind\": \"end\", \"step\": %" PRIu64
               ", \"end\": \"done\", \"digest\": \"%s\"}\n",
               t->run.past.step, t->run.past.digest);
    else
        printf("%s is already finished: step %" PRIu64 ", digest %s\n", t->run.dir,
               t->run.past.step, t->run.past.digest);
    return TD_EXIT_OK;
}

/* Does the run begin? Rank 0 decides, and all must be ready; *rc is the exit status if it does not.
 */
static bool begins(td__training *t, td_status st, int *rc)
{
    td_comm *comm = t->run.session.comm;
    int32_t leave = 0;

    if (st && !td__job_run_leads(&t->run)) {
        *rc = st == TD_EINVAL ? TD_EXIT_USAGE : TD_EXIT_FAILED;
        td_comm_abort(comm, td_last_error());
        return false;
    }
    if (st) {
        *rc = td__failure(t->args, st);
        leave = 1 + *rc;
    } else if (t->run.past.finished && td__job_run_leads(&t->run)) {
        *rc = already_finished(t);
        leave = 1 + *rc;
    }
    if (!comm)
        return !leave;
    bool said = leave != 0;
    st = td_allreduce(comm, &leave, &leave, 1, TD_I32, TD_REDUCE_MAX, NULL);
    if (st && !said) /* another rank could not begin: rank 0 says why */
        *rc = td__training_failed(t, st);
    else if (leave)
        *rc = leave - 1;
    return !st && !leave;
}

static int start_elastic(td__training *t, int n)
{
    char dir[PATH_MAX], run_dir[PATH_MAX + 16], threads[32];
    const char *more[] = {run_dir, threads, NULL};
    int each = td__processors() / n;
    td_status st = td__job_run_offer(&t->run);

    if (!st && t->run.past.finished)
        return already_finished(t);
    if (!st && !realpath(t->run.dir, dir))
        st = TD_FAIL(TD_EIO, "%s: %s", t->run.dir, strerror(errno));
    if (st)
        return td__failure(t->args, st);
    print_head(t, n, "elastic");
    snprintf(run_dir, sizeof run_dir, "--run-dir=%s", dir);
    const td__train_opts *o = &t->run.session.opts;
    td__sync_world w = {.ranks = n > 1 ? n : 2, .elastic = true}; /* others may join one rank */
    int limit = td__sync_traits_of(&o->sync, &w).threads;
    if (o->threads)
        each = o->threads;
    else if (limit)
        each = limit;
    snprintf(threads, sizeof threads, "--threads=%d", each > 1 ? each : 1);
    char cause[TD_LAUNCH_CAUSE] = "";
    int rc = td__ranks_run(t->args, &td__command_train, n, t->run.session.opts.sync.servers, more,
                           cause);
    bool refused = rc == TD_EXIT_USAGE && t->run.o.resume; /* it is as it was */
    if (*cause && rc != TD_EXIT_INTERRUPTED && !refused)
        td__run_dir_failed(dir, cause);
    return rc;
}

/* Can the model be cut into the stages of a pipeline? That needs the fields of the data: where they
 * cannot be had, and of a run that goes on, the ranks say what is wrong. */
static td_status check_pipeline(const td__training *t, int ranks, bool elastic)
{
    const td__session *job = &t->run.session;
    td__session s = {0};
    td_status st = TD_OK;

    if (job->opts.sync.mesh.size[TD_AXIS_PIPELINE] < 2 || t->run.o.resume)
        return TD_OK;
    bool known = !td__args_job(&s, t->args, t->job_path) && !td__session_data(&s);
    s.opts.blank = s.opts.untrained = true;
    s.opts.sync.mesh = job->opts.sync.mesh;
    s.opts.sync.rule = NULL;      /* it may be of ranks alone, which are not there yet */
    if (job->opts.sync.servers) { /* the ranks of a worker */
        int data = s.opts.sync.mesh.size[TD_AXIS_DATA];
        ranks = (data > 1 ? data : 1) * s.opts.sync.mesh.size[TD_AXIS_PIPELINE];
        s.opts.sync.servers = 0;
    }
    if (known && !td__session_trainer(&s))
        st = td__check_cut(&s, ranks, elastic);
    td__session_fini(&s);
    return st;
}

/* Ranks, in addition to servers; 0: as many as in the run that is replayed, else one. */
static td_status count_ranks(const td__training *t, int n, int *out)
{
    const td__sync_config *c = &t->run.session.opts.sync;
    *out = (n ? n : 1) + c->servers;
    return !n && c->replay ? td__backup_sets_ranks(c->replay, out) : TD_OK;
}

static int run_as(const td__args *a, td_comm *comm, int start);

static int as_thread(void *args, td_comm *comm)
{
    return run_as(args, comm, 0);
}

/* Ranks on the GPUs of this process; *n is 1: there are none to start. */
static td_status count_crew(const td__training *t, int *n)
{
    td__world w;
    *n = 1;
    if (t->run.session.comm || td__args_has(t->args, "ranks") || td__world_from_env(&w) ||
        w.size > 1 || w.elastic)
        return TD_OK;
    TD_TRY(td__crew_size(&t->run.session, n));
    if (*n > 1 && t->run.session.opts.sync.servers)
        return TD_FAIL(TD_EINVAL, "parallel.servers: not with ranks in one process "
                                  "(parallel.devices, mirrored): start ranks with -n");
    return TD_OK;
}

/* A job that is wrong is said to be so once, not by every rank. n: of -n; 0: it was not given. */
static int start_loaded(td__training *t, int n)
{
    td__launch_opts launch = {0};
    char flag[96] = "";
    const char *more[] = {flag, NULL};
    bool chosen = td__auto_mesh_wanted(t->args);
    bool elastic = !td__elastic_args(t->args, &launch) && launch.most;
    int crew = 1, rc = 0;
    td_status st = count_crew(t, &crew);

    if (!st)
        st = count_ranks(t, crew > 1 ? crew : n, &n);
    if (!st && elastic)
        st = td__job_run_check_elastic(&t->run);
    if (!st && elastic)
        st = td__launch_check(&launch);
    if (!st && chosen && (elastic || crew > 1 || td__args_has(t->args, "faults-sweep")))
        st = TD_FAIL(TD_EINVAL, "--parallel auto: not with %s: name the axes (data=2,pipeline=2)",
                     elastic    ? "elastic ranks"
                     : crew > 1 ? "ranks in one process"
                                : "--faults-sweep");
    if (!st && chosen) {
        td__auto_mesh best;
        st = td__auto_mesh_find(t->args, t->job_path, n, &best);
        if (!st && !td__args_has(t->args, "quiet"))
            td__auto_mesh_print(&best);
        if (!st) { /* all axes: the job may name others */
            t->run.session.opts.sync.mesh = best.mesh;
            snprintf(flag, sizeof flag, "--parallel=data=%d,pipeline=%d,tensor=%d",
                     best.mesh.size[TD_AXIS_DATA], best.mesh.size[TD_AXIS_PIPELINE],
                     best.mesh.size[TD_AXIS_TENSOR]);
        }
    }
    if (!st)
        st = td__train_check(&t->run.session.opts,
                             &(td__sync_world){.ranks = n, .elastic = elastic});
    if (!st)
        st = check_pipeline(t, n, elastic);
    if (!st)
        st = td__session_check_tensor(&t->run.session);
    if (st)
        return td__failure(t->args, st);
    if (td__args_has(t->args, "faults-sweep"))
        return td__faults_sweep(t->args, t->job_path, n);
    if (elastic)
        return start_elastic(t, n);
    if (crew > 1) {
        st = td__crew_run(&t->run.session, crew, as_thread, (void *)t->args, &rc);
        return st ? td__failure(t->args, st) : rc;
    }
    return td__ranks_run(t->args, &td__command_train, n, t->run.session.opts.sync.servers,
                         chosen ? more : NULL, NULL);
}

static int start_ranks(td__training *t, int n)
{
    td_status st = load_job(t);
    return st ? td__failure(t->args, st) : start_loaded(t, n);
}

/* Is this process to start the ranks of a job with parameter servers, those of the run that is
 * replayed, which -n does not give, or one on each of its GPUs? */
static bool starts_ranks(const td__training *t)
{
    const td__sync_config *c = &t->run.session.opts.sync;
    td__world w;
    int ranks = 1;
    if (t->run.session.comm || td__world_from_env(&w) || w.size > 1 || w.elastic)
        return false;
    if (count_crew(t, &ranks) || ranks > 1) /* start_loaded says what is wrong */
        return true;
    ranks = 1;
    if (c->servers || !c->replay || td__args_has(t->args, "ranks"))
        return c->servers > 0;
    return !td__backup_sets_ranks(c->replay, &ranks) && ranks > 1;
}

static int train(td__training *t)
{
    td__job_run *r = &t->run;
    td_status st = load_job(t);
    int rc = TD_EXIT_FAILED;

    if (!st && starts_ranks(t))
        return start_loaded(t, td__args_has(t->args, "ranks"));
    bool tells = !r->session.comm || td_comm_rank(r->session.comm) == 0;
    if (!st && tells && td__args_count(t->args) > 0) /* the run's copy is not warned of */
        td__session_warn_renamed(r->session.job);
    if (!st)
        st = td__job_run_prepare(r);
    if (r->session.members)
        return st ? td__failure(t->args, st) : run_elastic(t);
    bool ready = begins(t, st, &rc);
    if (ready)
        st = td__job_run_open(r);
    if (ready && !st)
        st = td__training_send_shards(t);
    if (!ready || !begins(t, st, &rc)) {
        if (st)
            td__job_run_take_back(r);
        return rc;
    }
    if (td__job_run_leads(r)) {
        const td_comm *c = r->session.comm;
        print_head(t, c ? td_comm_size(c) : 1, c ? td_comm_transport(c) : "");
    }
    st = td__job_run_train(r, &stop);
    if (st)
        return td__training_failed(t, st);
    rc = td__training_conclude(t, &stop);
    /* Launchers end all ranks when the first one leaves with a status other than 0. */
    if (r->session.comm && !td__trainer_alone(r->session.trainer) &&
        td_barrier(r->session.comm, NULL) && rc == TD_EXIT_OK) {
        fprintf(stderr, "tandem train: %s, after the last step\n", td_last_error());
        rc = TD_EXIT_FAILED;
    }
    return rc;
}

/* comm: of a rank that is a thread; NULL: the environment says what this process is. start: ranks
 * to start (-n); 0: this is one. */
static int run_as(const td__args *a, td_comm *comm, int start)
{
    int rc;
    td__training *t = td__calloc(1, sizeof *t);
    if (!t)
        return td__failure(a, TD_ENOMEM);
    t->args = a;
    t->run.lock = -1;
    t->run.session.comm = comm;
    t->run.session.borrowed = comm != NULL;
    td_status st = td__training_fetch(t);
    if (st) {
        td__free(t);
        return td__failure(a, st);
    }
    t->run.o = (td__job_run_opts){.resume = td__args_has(a, "resume"),
                                  .resume_dir = td__args_value(a, "resume"),
                                  .run_dir = td__args_value(a, "run-dir"),
                                  .profile = td__args_has(a, "profile"),
                                  .uploads = TD_UPLOADS,
                                  .late = true,
                                  .hooks = {.user = t,
                                            .ready = catch_signals,
                                            .spreading = spreading,
                                            .watch = watch,
                                            .unwatch = unwatch,
                                            .made = send_shards,
                                            .conclude = conclude}};
    if (!start && td__args_has(a, "faults-sweep"))
        rc =
            td__usage_error(a, "--faults-sweep: the number of ranks is missing: give -n 2 or more");
    else
        rc = start ? start_ranks(t, start) : train(t);
    td__training_sent_shards(t, rc);
    rc = td__training_uploaded(t, rc);
    td__hooks_end(&t->hooks, rc);
    td__progress_fini(&t->progress);
    td__job_run_fini(&t->run);
    td__free(t);
    return rc;
}

static int run(const td__args *a)
{
    int ranks, rc;
    bool start = td__ranks_wanted(a, &ranks, &rc);

    return rc ? rc : run_as(a, NULL, start ? ranks : 0);
}

static const td__flag FLAGS[] = {
    TD_FLAG_SET,
    {.name = "run-dir",
     .value = "DIR",
     .help = "the run's directory (log.dir/NAME-0001, with the first free number)",
     .words = "FILE"},
    {.name = "resume",
     .value = "[DIR]",
     .help = "continue the newest run of this job, the run in DIR, or what checkpoint.upload put "
             "at a URL (s3://BUCKET/PREFIX)",
     .words = "FILE"},
    {.name = "or-begin",
     .help = "with --resume=URL: begin the run where no checkpoint has been sent there yet"},
    {.name = "json", .help = "print one JSON object per line on standard output"},
    {.name = "quiet", .letter = 'q', .help = "print one line, at the end"},
    {.name = "faults",
     .value = "PLAN",
     .help = "fault injection: \"kill rank=2 at=step:17:allreduce:3; ...\", random by a seed "
             "(seed=7,rate=1/50steps, rate=1/10s), or a replay (@RUN/faults.txt)"},
    {.name = "faults-sweep",
     .help =
         "fault injection test: repeat three steps with a kill at every operation of every rank"},
    {.name = "profile", .help = "time every node: profile.txt and trace.json (for Perfetto)"},
    TD_FLAG_SYNC,
    TD_FLAG_PARALLEL,
    TD_FLAG_STRATEGY,
    TD_FLAG_SERVERS,
    {.name = "replay",
     .value = "RUN",
     .help = "repeat a run with parameter servers or an asynchronous sync rule: the same order of "
             "pushes and messages, the same bits",
     .words = "FILE"},
    TD_FLAG_RANKS,
    TD_FLAGS_ELASTIC,
    TD_FLAG_THREADS,
    {.name = NULL},
};

static const char *const EXAMPLES[] = {
    "tandem train examples/digits.yaml",
    "train; all files of the run are in runs/digits-0001",
    "tandem train job.yaml --set train.optimizer.lr=0.01 --set train.epochs=3",
    "the same job with two keys changed",
    "tandem train job.yaml --resume",
    "continue the newest run, with the same bits",
    "tandem train --resume=runs/digits-0001",
    "continue this run",
    "tandem train job.yaml -n 4",
    "on four ranks of this host, with the same bits",
    NULL};

const td__command td__command_train = {
    .name = "train",
    .args = "JOB.yaml",
    .summary = "train the model of a job file",
    .text =
        "Shows progress on a terminal, writes lines when the output is not a terminal, and ends "
        "with a summary, the digest of the weights and the path of the report.\n\n"
        "Ctrl-C (or SIGTERM, SIGHUP) finishes the current step, writes a checkpoint and exits "
        "with status 130; a second one exits at once. --resume continues from the newest intact "
        "checkpoint, also after a crash, and ends with the same weights, bit for bit, as a run "
        "without interruption. A job with other results is refused.\n\n"
        "Several ranks (-n, tandem launch, mpirun, torchrun) train data parallel and end with the "
        "weights of one rank, bit for bit; a run may be resumed with another number of ranks.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .max_args = 1,
    .run = run,
};
