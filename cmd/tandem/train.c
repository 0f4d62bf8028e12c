/* train.c -- `tandem train`: a job file becomes a run's directory with a trained model in it.
 *
 * Order: everything that can be wrong with the job, its data and its model is found before the
 * run's directory is made; if the trainer then cannot be made, an empty directory is taken away
 * again. Signals are caught from the directory on: the first one asks the trainer to stop after the
 * step in flight, with a checkpoint; a second one, if not of the same moment, leaves at once.
 *
 * With -n this process starts the ranks, each of which is a `tandem train` of its own (ranks.h),
 * and so is one that mpirun or torchrun started. Rank 0 has the run's directory, prints, and says
 * whether the run begins. Another rank that fails says why by aborting the comm, in rank 0's
 * words.
 *
 * Elastic ranks (-n 2:8, --elastic) come and go, so the process that starts them makes the run's
 * directory, and every rank is told which it is: whoever is rank 0 opens it (lead_begin), and goes
 * on with what it holds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/human.h"
#include "elastic_args.h"
#include "faults_sweep.h"
#include "ranks.h"
#include "step/pool.h"
#include "train_impl.h"

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

static void catch_signals(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
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

static void begin_progress(td__training *t)
{
    const td__args *a = t->args;
    td__progress_init(&t->progress,
                      td__args_has(a, "json")    ? TD_PROGRESS_JSON
                      : td__args_has(a, "quiet") ? TD_PROGRESS_QUIET
                                                 : TD_PROGRESS_LINE,
                      td__job_log_opts(t->session.job)->every);
}

static td_status observe(td__training *t)
{
    const td__job_log *log = td__job_log_opts(t->session.job);
    td__trainer *trainer = t->session.trainer;

    TD_TRY(td__metrics_file_create(t->dir, t->from_step, &t->metrics));
    TD_TRY(td__trainer_observe(trainer, t->metrics));
    if (log->tensorboard) {
        TD_TRY(td__tensorboard_create(t->dir, t->from_step, false, &t->tensorboard));
        TD_TRY(td__trainer_observe(trainer, t->tensorboard));
    }
    if (t->profile) {
        TD_TRY(td__trace_create(t->dir, &t->trace));
        TD_TRY(td__trainer_observe(trainer, t->trace));
    }
    begin_progress(t);
    return td__trainer_observe(trainer, &t->progress.observer);
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
        return TD_FAIL(TD_EABORTED, "interrupted while the data were sent to all ranks");
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
    printf("%s: %s%s", td__job_name(t->session.job), t->resume ? "resumed in " : "", t->dir);
    if (ranks > 1)
        printf(", on %d ranks (%s)", ranks, how);
    putchar('\n');
    fflush(stdout);
}

/* ---- Elastic ranks --------------------------------------------------------------------------- */

static td_status lead_begin(void *user, td__trainer *trainer, uint64_t step, uint64_t valid,
                            uint64_t *told_step, uint64_t *told_valid)
{
    td__training *t = user;
    const td__job_log *log = td__job_log_opts(t->session.job);
    td__members *m = t->session.members;

    td__run_dir_sweep(t->dir);
    TD_TRY(td__metrics_file_take_over(t->dir, step, valid, told_step, told_valid, &t->metrics));
    TD_TRY(td__trainer_observe(trainer, t->metrics));
    if (log->tensorboard) {
        TD_TRY(td__tensorboard_create(t->dir, step, true, &t->tensorboard));
        TD_TRY(td__trainer_observe(trainer, t->tensorboard));
    }
    m->ops->run_dir(m, t->dir);
    begin_progress(t);
    return td__trainer_observe(trainer, &t->progress.observer);
}

/* Once, however often the others' loss makes it the end. */
static void lead_conclude(void *user, td__train_result *r)
{
    td__training *t = user;

    if (t->concluded)
        return;
    t->result = *r;
    t->test = *td__trainer_test(t->session.trainer);
    t->rc = td__training_conclude(t, &stop);
    t->concluded = true;
    *r = t->result;
}

static void lead_end(void *user)
{
    td__training *t = user;

    td__progress_fini(&t->progress);
    td__tensorboard_destroy(t->tensorboard);
    td__metrics_file_destroy(t->metrics);
    t->tensorboard = t->metrics = NULL;
}

/* What is asked for and cannot be had. */
static td_status check_elastic(const td__training *t)
{
    if (t->profile)
        return TD_FAIL(TD_EINVAL, "--profile follows ranks from the first step to the last, and "
                                  "elastic ranks come and go: profile with -n N alone");
    if (strcmp(td__job_parallel_opts(t->session.job)->distribute, "none") != 0)
        return TD_FAIL(TD_EINVAL, "data.distribute: elastic ranks read their data themselves");
    return TD_OK;
}

static td_status prepare_elastic(td__training *t)
{
    td__session *s = &t->session;
    const char *dir = td__args_value(t->args, "run-dir");
    char job[TD__PATH];
    struct stat info;

    if (!dir)
        return TD_FAIL(TD_EINVAL, "elastic ranks need --run-dir, the same for all (tandem train -n "
                                  "LEAST:MOST makes it)");
    TD_TRY(td__run_dir_create(dir, NULL, t->dir));
    TD_TRY(td__training_lock(t, TD_LOCK_MS));
    TD_TRY(td__run_dir_path(t->dir, "job.yaml", job));
    if (stat(job, &info) != 0)
        TD_TRY(td__training_write_job(t));
    TD_TRY(td__session_data(s));
    TD_TRY(td__faults_record(s->faults, t->dir));
    TD_TRY(td__run_dir_path(t->dir, "checkpoints", t->checkpoints));
    t->lead = (td__train_lead){
        .user = t, .begin = lead_begin, .conclude = lead_conclude, .end = lead_end};
    s->opts.checkpoint_dir = t->checkpoints;
    s->opts.lead = &t->lead;
    s->opts.test = true;
    return td__session_trainer(s);
}

/* Everything up to the first step. */
static td_status prepare(td__training *t)
{
    td__session *s = &t->session;
    const char *faults = td__args_value(t->args, "faults");

    TD_TRY(td__training_find_job(t));
    TD_TRY(td__session_job(s, t->args, t->job_path));
    if (td__args_count(t->args) > 0) /* not the run's own copy, which nobody needs to edit */
        td__session_warn_renamed(s->job);
    if (faults)
        TD_TRY(td__faults_create(faults, NULL, NULL, &s->faults));
    s->opts.faults = s->faults;
    TD_TRY(td__session_join(s));
    if (s->members) {
        TD_TRY(check_elastic(t));
        catch_signals();
        return prepare_elastic(t);
    }
    if (s->comm) { /* when a rank fails, the launcher ends the others, which have to say why: */
        catch_signals();
        TD_TRY(td_barrier(s->comm, NULL)); /* so none does before all are ready for that */
    }
    td__sync_world w = td__sync_world_of(s->comm, false);
    w.starts = true;
    TD_TRY(td__train_check(&s->opts, &w));
    if (t->resume && td__training_leads(t))
        TD_TRY(td__training_find_run(t));
    if (t->past.finished)
        return TD_OK;
    s->spreading = spreading;
    s->spreading_user = t;
    TD_TRY(td__session_data(s));
    catch_signals();
    s->opts.profile = t->profile;
    if (!td__training_leads(t)) {
        s->opts.blank = true; /* rank 0 sends the weights */
        return td__session_trainer(s);
    }
    if (!t->resume) {
        TD_TRY(td__training_make_run(t));
        TD_TRY(td__training_write_job(t)); /* from here on --resume can go on with it */
        t->described = true;
    }
    TD_TRY(td__run_dir_path(t->dir, "checkpoints", t->checkpoints));
    s->opts.checkpoint_dir = t->checkpoints;
    return td__session_trainer(s);
}

static td_status start(td__training *t)
{
    bool found = false;

    if (t->past.finished || !td__training_leads(t))
        return TD_OK;
    if (t->resume) {
        TD_TRY(td__trainer_resume(t->session.trainer, &found));
        t->from_step = found ? td__trainer_step(t->session.trainer) : 0;
    }
    if (t->resume)
        TD_TRY(td__training_write_job(t)); /* it may be longer now */
    return observe(t);
}

/* The run is over, or this process has no more part in it. */
static int run_elastic(td__training *t)
{
    td_status st = td__trainer_run(t->session.trainer, &stop, &t->result);

    if (st == TD_EABORTED) /* fenced off, or not needed any more: others know better */
        return TD_EXIT_OK;
    if (st == TD_EIO || st == TD_ENOMEM) { /* this process alone knows why it goes */
        td__progress_clear(&t->progress);
        (void)td__failure(t->args, st);
        return TD_EXIT_FAILED;
    }
    if (st)
        return td__training_failed(t, st);
    if (!*t->result.digest) /* drained: the others go on */
        return TD_EXIT_INTERRUPTED;
    return t->concluded ? t->rc : td__training_conclude(t, &stop);
}

static void finish(td__training *t)
{
    td__free(t->times);
    td__progress_fini(&t->progress);
    td__session_fini(&t->session);
    td__trace_destroy(t->trace);
    td__tensorboard_destroy(t->tensorboard);
    td__metrics_file_destroy(t->metrics);
    if (t->lock >= 0)
        close(t->lock);
}

static int already_finished(const td__training *t)
{
    if (td__args_has(t->args, "json"))
        printf("{\"kind\": \"end\", \"step\": %" PRIu64
               ", \"end\": \"done\", \"digest\": \"%s\"}\n",
               t->past.step, t->past.digest);
    else
        printf("%s is finished already: step %" PRIu64 ", digest %s\n", t->dir, t->past.step,
               t->past.digest);
    return TD_EXIT_OK;
}

/* Does the run begin? Rank 0 decides; *rc is the exit status if it does not. */
static bool begins(td__training *t, td_status st, int *rc)
{
    td_comm *comm = t->session.comm;
    int32_t leave = 0;

    if (st && !td__training_leads(t)) {
        *rc = st == TD_EINVAL ? TD_EXIT_USAGE : TD_EXIT_FAILED;
        td_comm_abort(comm, td_last_error());
        return false;
    }
    if (st) {
        *rc = td__failure(t->args, st);
        leave = 1 + *rc;
    } else if (t->past.finished) {
        *rc = already_finished(t);
        leave = 1 + *rc;
    }
    if (!comm)
        return !leave;
    st = td_broadcast(comm, &leave, 1, TD_I32, 0, NULL);
    if (st && !*rc) /* else it is said already */
        *rc = td__training_failed(t, st);
    else if (leave)
        *rc = leave - 1;
    return !st && !leave;
}

static int train(td__training *t)
{
    td_status st = prepare(t);
    int rc = TD_EXIT_FAILED;

    if (t->session.members)
        return st ? td__failure(t->args, st) : run_elastic(t);
    if (!st)
        st = start(t);
    if (!begins(t, st, &rc)) {
        if (st)
            td__training_take_back(t);
        return rc;
    }
    if (td__training_leads(t)) {
        const td_comm *c = t->session.comm;
        print_head(t, c ? td_comm_size(c) : 1, c ? td_comm_transport(c) : "");
    }
    st = td__trainer_run(t->session.trainer, &stop, &t->result);
    if (st)
        return td__training_failed(t, st);
    rc = td__training_conclude(t, &stop);
    /* Launchers end all ranks when the first one leaves with a status other than 0. */
    if (t->session.comm && td_barrier(t->session.comm, NULL) && rc == TD_EXIT_OK) {
        fprintf(stderr, "tandem train: %s, when the run was finished\n", td_last_error());
        rc = TD_EXIT_FAILED;
    }
    return rc;
}

static int start_elastic(td__training *t, int n)
{
    char dir[PATH_MAX], run_dir[PATH_MAX + 16], threads[32];
    const char *more[] = {run_dir, threads, NULL};
    int each = td__processors() / n;
    td_status st = td__training_offer_run(t);

    if (!st && t->past.finished)
        return already_finished(t);
    if (!st && !realpath(t->dir, dir))
        st = TD_FAIL(TD_EIO, "%s: %s", t->dir, strerror(errno));
    if (st)
        return td__failure(t->args, st);
    print_head(t, n, "elastic");
    snprintf(run_dir, sizeof run_dir, "--run-dir=%s", dir);
    if (t->session.opts.threads)
        each = t->session.opts.threads;
    else if (t->session.opts.sync.zero > 1) /* ranks that run in step have one */
        each = 1;
    snprintf(threads, sizeof threads, "--threads=%d", each > 1 ? each : 1);
    char cause[TD_LAUNCH_CAUSE] = "";
    int rc = td__ranks_run(t->args, &td__command_train, n, more, cause);
    if (*cause && rc != TD_EXIT_INTERRUPTED)
        td__run_dir_failed(dir, cause);
    return rc;
}

/* A job that is wrong is said to be so once, not by every rank. */
static int start_ranks(td__training *t, int n)
{
    const char *faults = td__args_value(t->args, "faults");
    td__launch_opts launch = {0};
    bool elastic = !td__elastic_args(t->args, &launch) && launch.most;
    td_status st = td__training_find_job(t);

    if (!st)
        st = td__session_job(&t->session, t->args, t->job_path);
    if (!st && elastic)
        st = check_elastic(t);
    if (!st)
        st = td__train_check(&t->session.opts, &(td__sync_world){.ranks = n, .elastic = elastic});
    if (!st && faults)
        st = td__faults_create(faults, NULL, NULL, &t->session.faults);
    if (st)
        return td__failure(t->args, st);
    if (td__args_has(t->args, "faults-sweep"))
        return td__faults_sweep(t->args, t->job_path, n);
    if (elastic)
        return start_elastic(t, n);
    return td__ranks_run(t->args, &td__command_train, n, NULL, NULL);
}

static int run(const td__args *a)
{
    int ranks, rc;
    bool start = td__ranks_wanted(a, &ranks, &rc);

    if (rc)
        return rc;
    td__training *t = td__calloc(1, sizeof *t);
    if (!t)
        return td__failure(a, TD_ENOMEM);
    t->args = a;
    t->lock = -1;
    t->resume = td__args_has(a, "resume");
    t->profile = td__args_has(a, "profile");
    if (!start && td__args_has(a, "faults-sweep"))
        rc = td__usage_error(a, "--faults-sweep: on how many ranks? give -n 2 or more");
    else
        rc = start ? start_ranks(t, ranks) : train(t);
    finish(t);
    td__free(t);
    return rc;
}

static const td__flag FLAGS[] = {
    TD_FLAG_SET,
    {.name = "run-dir",
     .value = "DIR",
     .help = "the run's directory (log.dir/NAME-0001, with the first number that is free)",
     .words = "FILE"},
    {.name = "resume",
     .value = "[DIR]",
     .help = "go on with the newest run of this job, or with the run in DIR",
     .words = "FILE"},
    {.name = "json", .help = "one JSON object per line on standard output, for machines"},
    {.name = "quiet", .letter = 'q', .help = "print one line, at the end"},
    {.name = "faults",
     .value = "PLAN",
     .help = "things that break on purpose: \"kill rank=2 at=step:17:allreduce:3; ...\", by a seed "
             "(seed=7,rate=1/50steps, rate=1/10s), or again (@RUN/faults.txt)"},
    {.name = "faults-sweep",
     .help = "three steps, over and over: a kill at every operation of every rank (-n)"},
    {.name = "profile", .help = "time every node: profile.txt and trace.json (for Perfetto)"},
    TD_FLAG_RANKS,
    TD_FLAGS_ELASTIC,
    TD_FLAG_THREADS,
    {.name = NULL},
};

static const char *const EXAMPLES[] = {
    "tandem train examples/digits.yaml",
    "train; runs/digits-0001 holds everything about it",
    "tandem train job.yaml --set train.optimizer.lr=0.01 --set train.epochs=3",
    "the same job with two keys changed",
    "tandem train job.yaml --resume",
    "go on where the newest run stopped, with the same bits",
    "tandem train --resume=runs/digits-0001",
    "go on with this run",
    "tandem train job.yaml -n 4",
    "on four ranks of this host, with the same bits",
    NULL};

const td__command td__command_train = {
    .name = "train",
    .args = "JOB.yaml",
    .summary = "train the model of a job file",
    .text =
        "Shows progress on a terminal, writes lines where the output is no terminal, and ends "
        "with a summary, the digest of the weights and the path of the report.\n\n"
        "Ctrl-C (or SIGTERM, SIGHUP) finishes the step in flight, writes a checkpoint and leaves "
        "with status 130; a second one leaves at once. --resume goes on from the newest whole "
        "checkpoint, also after a crash, and ends with the same weights, bit for bit, as a run "
        "without interruption. A job that would give other numbers is refused.\n\n"
        "Several ranks (-n, tandem launch, mpirun, torchrun) share the batches and end with the "
        "weights that one rank ends with, bit for bit; a run may be resumed with another number "
        "of them.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .max_args = 1,
    .run = run,
};
