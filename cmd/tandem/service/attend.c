/* attend.c -- `tandem attend`: what a job's program runs under where the service does not see its
 * files, in pods and on hosts: its metrics are brought to the service while it runs, and its
 * artifacts when it has succeeded. Also what programs of Horovod and MPI find each other by in a
 * group that no launcher of theirs has started. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/file_below.h"
#include "agent_http.h"
#include "command.h"
#include "launch/foreign/member.h"
#include "mpi_program.h"
#include "remote/url.h"
#include "service/track/artifact_list.h"
#include "service/track/results.h"

extern char **environ;

enum {
    LOOK_MS = 500,
    SEND_MS = 3600 * 1000,
    METRICS_MS = 20000, /* for a piece of them while the program runs */
    PIECE = 256 << 10,
    PATH_BYTES = 4300,
};

typedef struct attendance {
    const char *run, *artifacts, *metrics;
    char url[TD__URL_BYTES];     /* of the job */
    td__remote *remote;          /* NULL: another rank's affair */
    char path[PATH_BYTES];       /* of the metrics; "": none has been seen */
    uint64_t sent;               /* bytes of it */
    bool told;                   /* that they cannot be sent */
    td__foreign_member *meeting; /* NULL: the program finds the others by itself */
    pid_t guard;                 /* 0, -1: there is none */
} attendance;

static td_status open_store(attendance *t)
{
    const char *rank = td__env_get(TD_ENV_TORCH_RANK), *server = td__env_get(TD_ENV_SERVER);
    const char *job = getenv("JOB_ID");

    if (rank && strcmp(rank, "0") != 0)
        return TD_OK;
    if (!server || !job || !td__env_get(TD_ENV_TOKEN))
        return TD_FAIL(TD_EINVAL, "where? %s, %s and JOB_ID are set in jobs of `tandem serve`",
                       td__env_name(TD_ENV_SERVER), td__env_name(TD_ENV_TOKEN));
    snprintf(t->url, sizeof t->url, "%.3000s/v1/jobs/%.20s", server, job);
    t->artifacts = getenv("TANDEM_ARTIFACTS_DIR");
    t->metrics = getenv("TANDEM_METRICS_FILE");
    return td__remote_create(&(td__remote_opts){0}, &t->remote);
}

/* ---- metrics ---- */

/* The run's file, or the program's. */
static int open_metrics(attendance *t)
{
    char run[PATH_BYTES];

    if (t->run && !t->path[0]) {
        snprintf(run, sizeof run, "%.4200s/metrics.jsonl", t->run);
        if (access(run, F_OK) == 0)
            snprintf(t->path, sizeof t->path, "%s", run);
    }
    if (t->metrics && !t->path[0] && access(t->metrics, F_OK) == 0)
        snprintf(t->path, sizeof t->path, "%.4200s", t->metrics);
    return t->path[0] ? td__file_open_plain(t->path, O_RDONLY, 0) : -1;
}

/* Whole lines that have come. What cannot be sent now is sent later. */
static td_status send_metrics(attendance *t, td__deadline until)
{
    static char piece[PIECE];
    char url[TD__URL_BYTES];
    int fd = open_metrics(t);
    struct stat info;
    td_status st = TD_OK;

    if (fd >= 0 && !fstat(fd, &info) && (uint64_t)info.st_size < t->sent)
        t->sent = 0; /* it was made anew */
    while (fd >= 0 && !st) {
        ssize_t n = pread(fd, piece, sizeof piece, (off_t)t->sent);
        while (n > 0 && piece[n - 1] != '\n')
            n--;
        if (n <= 0)
            break;
        snprintf(url, sizeof url, "%.4000s/metrics?from=%llu", t->url, (unsigned long long)t->sent);
        st = td__remote_put(t->remote, url, piece, (size_t)n, until);
        if (!st)
            t->sent += (uint64_t)n;
    }
    if (fd >= 0)
        close(fd);
    return st;
}

static void bring_metrics(attendance *t)
{
    if (t->remote && send_metrics(t, td__deadline_in_ms(METRICS_MS))) {
        if (!t->told)
            fprintf(stderr, "tandem attend: metrics: %s\n", td_last_error());
        t->told = true;
        t->sent = 0; /* the service may have other ones, of an attempt before */
    }
}

/* ---- artifacts ---- */

static td_status send_listed(attendance *t, const char *list)
{
    char path[PATH_BYTES], sha256[TD_SHA256_HEX];
    td__artifact_line line;
    td__file_map m;
    td_status st = TD_OK;

    TD_TRY(td__file_map_copy(&m, list, TD__ARTIFACT_LIST_BYTES));
    for (size_t at = 0;
         !st && td__artifact_list_next((const char *)m.data, m.nbytes, &at, &line);) {
        td__text url = {0};
        td__text_printf(&url, "%s/artifacts/", t->url);
        td__url_encode(&url, line.name, true);
        td__text_printf(&url, "?sha256=%s", line.sha256);
        snprintf(path, sizeof path, "%.3200s/%s", t->artifacts, line.name);
        st = td__text_status(&url);
        if (!st)
            st =
                td__remote_put_file(t->remote, url.data, path, sha256, td__deadline_in_ms(SEND_MS));
        td__text_fini(&url);
    }
    td__file_map_close(&m);
    return st;
}

static td_status send_artifacts(attendance *t)
{
    const char *temporary = td__env_get(TD_ENV_TMPDIR);
    char list[PATH_BYTES];

    if (!t->artifacts)
        return TD_OK;
    if (t->run && mkdir(t->artifacts, 0777) && errno != EEXIST)
        return TD_FAIL(TD_EIO, "%s: %s", t->artifacts, strerror(errno));
    if (access(t->artifacts, F_OK))
        return TD_OK; /* the program has made none */
    snprintf(list, sizeof list, "%.4200s/tandem-attend-XXXXXX", temporary ? temporary : "/tmp");
    int fd = mkstemp(list);
    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: %s", list, strerror(errno));
    close(fd);
    td__left_out left_out = {0};
    char shown[400];
    td_status st = td__results_publish(&(td__results){.run = t->run,
                                                      .left_out = &left_out,
                                                      .artifacts = t->artifacts,
                                                      .list = list,
                                                      .env = (const char *const *)environ});
    td__left_out_show(&left_out, shown, sizeof shown);
    if (*shown)
        fprintf(stderr, "tandem attend: %s\n", shown);
    if (!st)
        st = send_listed(t, list);
    unlink(list);
    return st;
}

/* ---- the program ---- */

/* Before there are threads, which then have them blocked too. */
static td_status hold_signals(sigset_t *before, int *signals)
{
    sigset_t wanted;

    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGCHLD);
    sigprocmask(SIG_BLOCK, &wanted, before);
    signal(SIGPIPE, SIG_IGN);
    *signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    return *signals < 0 ? TD_FAIL(TD_EIO, "no descriptor for signals: %s", strerror(errno)) : TD_OK;
}

/* The rendezvous of this rank; its program's libraries say which MPI. Signals interrupt it. */
static td_status meet(attendance *t, const char *framework, const char *program, int signals)
{
    const char *id = getenv("JOB_ID"), *attempt = getenv("TANDEM_ATTEMPT");
    char library[128], job[64];

    if (!strcmp(framework, "mpi")) {
        if (!td__mpi_program(program, library, sizeof library)) {
            fprintf(stderr,
                    "tandem attend: %s is linked with no MPI: what it runs has a world under "
                    "`tandem attend --framework mpich -- PROGRAM`, or openmpi\n",
                    program);
            return TD_OK;
        }
        framework = td__mpi_framework(library);
    }
    snprintf(job, sizeof job, "%.24s-%.24s", id ? id : "job", attempt ? attempt : "1");
    return td__foreign_member_create(framework, job, td__agent_http(), signals, &t->meeting);
}

/* A process in the program's group, which kills the group when we are gone: SIGKILL leaves us no
 * time to do so, and the death of its parent reaches the program's first process only. */
static void guard(attendance *t, pid_t program)
{
    int ends[2];
    char none;
    sigset_t all;

    if (pipe2(ends, O_CLOEXEC))
        return;
    t->guard = fork();
    if (t->guard == 0) {
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        if (setpgid(0, program) || dup2(ends[0], 0) < 0)
            _exit(0);
        close_range(1, ~0u, 0);
        while (read(0, &none, 1) < 0 && errno == EINTR)
            continue;
        kill(0, SIGKILL);
        _exit(0);
    }
    close(ends[0]); /* the other end stays open as long as we live */
}

static td_status begin(attendance *t, const char *const *argv, const sigset_t *before, pid_t *pid)
{
    td__texts own = {0};
    int keep = -1;
    td_status st = t->meeting ? td__foreign_member_env(t->meeting, &own, &keep) : TD_OK;
    char **env = td__rank_environ(environ, &own);

    if (!st && !env)
        st = TD_FAIL(TD_ENOMEM, "out of memory for an environment");
    *pid = st ? -1 : fork();
    if (*pid == 0) {
        setpgid(0, 0); /* a signal to our group would reach it twice, and end a run at once */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, before, NULL);
        signal(SIGPIPE, SIG_DFL);
        if (keep >= 0)
            fcntl(keep, F_SETFD, 0);
        execvpe(argv[0], (char *const *)(uintptr_t)argv, env);
        fprintf(stderr, "tandem attend: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    if (!st && *pid < 0)
        st = TD_FAIL(TD_EIO, "%s: it cannot be started: %s", argv[0], strerror(errno));
    if (!st) {
        setpgid(*pid, *pid); /* whoever comes first */
        guard(t, *pid);
    }
    if (keep >= 0)
        close(keep);
    td__free(env);
    td__texts_fini(&own);
    return st;
}

/* Its exit status. */
static int attend(attendance *t, pid_t pid, int signals)
{
    struct pollfd p = {.fd = signals, .events = POLLIN};
    struct signalfd_siginfo info;
    bool passed = false;
    int status;

    for (;;) {
        (void)poll(&p, 1, LOOK_MS);
        while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD && !passed) {
                passed = true;
                /* tandem train tells its own processes; others may be a shell's. */
                kill(t->run ? pid : -pid, (int)info.ssi_signo);
            }
        int aborted = td__foreign_member_aborted(t->meeting);
        if (aborted >= 0) /* it waits to be killed */
            kill(-pid, SIGKILL);
        pid_t ended = waitpid(pid, &status, aborted >= 0 ? 0 : WNOHANG);
        if (ended == pid && aborted >= 0)
            return aborted;
        if (ended == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (ended < 0 && errno != EINTR)
            return TD_EXIT_FAILED;
        bring_metrics(t);
    }
}

static int run(const td__args *a)
{
    attendance t = {.run = td__args_value(a, "run")};
    const char *framework = td__args_value(a, "framework");
    sigset_t before;
    const char *argv[256] = {NULL};
    int n = 0, signals = -1, rc;
    pid_t pid;

    for (; td__args_at(a, n); n++) {
        if (n == 255)
            return td__usage_error(a, "more than 255 words");
        argv[n] = td__args_at(a, n);
    }
    if (framework && strcmp(framework, "mpi") != 0 && !td__foreign_known(framework)) {
        char names[128];
        return td__usage_error(a, "--framework: '%s' is not mpi or one of %s", framework,
                               td__foreign_names(names, sizeof names));
    }
    td_status st = td__args_has(a, "no-results") ? TD_OK : open_store(&t);
    if (!st)
        st = hold_signals(&before, &signals);
    if (!st && framework)
        st = meet(&t, framework, argv[0], signals);
    if (!st)
        st = begin(&t, argv, &before, &pid);
    if (st) {
        td__foreign_member_destroy(t.meeting, false);
        td__remote_destroy(t.remote);
        return td__failure(a, st);
    }
    rc = attend(&t, pid, signals);
    if (t.guard > 0) {
        kill(t.guard, SIGKILL);
        waitpid(t.guard, NULL, 0);
    }
    td__foreign_member_destroy(t.meeting, rc == 0);
    bring_metrics(&t);
    if (rc == 0 && t.remote && send_artifacts(&t)) { /* a success without its results is none */
        fprintf(stderr, "tandem attend: its artifacts: %s\n", td_last_error());
        rc = TD_EXIT_FAILED;
    }
    td__remote_destroy(t.remote);
    close(signals);
    return rc;
}

static const td__flag FLAGS[] = {
    {"framework", 0, "NAME",
     "serve what programs of horovod, mpi, mpich or openmpi find each "
     "other by",
     NULL},
    {"no-results", 0, NULL, "bring nothing to the service, which sees the files itself", NULL},
    {"run", 0, "DIR", "directory of a run of tandem train; its best weights are sent too", "FILE"},
    {0}};

static const char *const EXAMPLES[] = {"tandem attend -- python3 train.py",
                                       "in a job: its metrics and artifacts reach the service",
                                       NULL};

const td__command td__command_attend = {
    .name = "attend",
    .args = "-- COMMAND ...",
    .summary = "run a job's program where `tandem serve` does not see its files",
    .text =
        "For programs of jobs in pods and on other hosts. Lines of TANDEM_METRICS_FILE are "
        "brought to the service while the program runs, and files of TANDEM_ARTIFACTS_DIR "
        "when it has ended with status 0, by rank 0. `tandem serve` runs job files under it "
        "by itself. With --framework the members of a group, each under a `tandem attend` of its "
        "own, find each other without a launcher of theirs: the service runs commands of jobs "
        "with `framework: horovod` or `mpi` in this way. Signals are passed on, and the status is "
        "the program's.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 255,
    .run = run,
};
