/* spawn.c -- fork, exec, and the end of processes.
 *
 * Between fork and exec only system calls are made: the parent may have threads. A child asks the
 * kernel for a signal at its parent's death, then looks whether the parent died before it asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "coll/hang.h"

extern char **environ;

enum { EXIT_NOT_RUN = 127 };

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

_Noreturn static void become(const char *const *argv, const td__spawn_opts *o, pid_t parent,
                             const int fd[3])
{
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, o->death_signal);
    if (getppid() != parent)
        _exit(EXIT_NOT_RUN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (o->share_out) /* stty tostop is against groups that interfere, not against this one */
        signal(SIGTTOU, SIG_IGN);
    if (o->files)
        setrlimit(RLIMIT_NOFILE, o->files);
    for (int i = 0; i < 3; i++)
        dup2(fd[i], i); /* the copies stay open across exec */
    if (o->keep)
        fcntl(o->keep, F_SETFD, 0);
    if (o->dir && chdir(o->dir)) {
        say("tandem: cannot enter ");
        say(o->dir);
        say("\n");
        _exit(EXIT_NOT_RUN);
    }
    execvpe(argv[0], (char *const *)(uintptr_t)argv, o->env ? o->env : environ);
    const char *why = strerrordesc_np(errno);
    say("tandem: cannot run ");
    say(argv[0]);
    say(": ");
    say(why ? why : "unknown error");
    say("\n");
    _exit(EXIT_NOT_RUN);
}

static void close_pair(int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

td_status td__spawn(const char *const *argv, const td__spawn_opts *o, td__child *out)
{
    /* Ends of the child at [0], ours at [1]. */
    int in[2] = {-1, -1}, to_out[2] = {-1, -1}, to_err[2] = {-1, -1}, pair[2];
    td_status st = TD_OK;
    pid_t parent = getpid(), pid = -1;
    if (o->pipe_in ? pipe2(in, O_CLOEXEC) : (in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        goto fail;
    int shared = o->log ? o->log : o->share_out ? STDOUT_FILENO : -1;
    if (shared >= 0 ? (to_out[0] = fcntl(shared, F_DUPFD_CLOEXEC, 3)) < 0 : pipe2(pair, O_CLOEXEC))
        goto fail;
    if (shared < 0)
        to_out[0] = pair[1], to_out[1] = pair[0];
    if (o->log ? (to_err[0] = fcntl(o->log, F_DUPFD_CLOEXEC, 3)) < 0 : pipe2(pair, O_CLOEXEC))
        goto fail;
    if (!o->log)
        to_err[0] = pair[1], to_err[1] = pair[0];
    pid = fork();
    if (pid < 0)
        goto fail;
    if (!pid)
        become(argv, o, parent, (int[]){in[0], to_out[0], to_err[0]});
    setpgid(pid, pid); /* whoever comes first */
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        goto fail;
    close(in[0]), close(to_out[0]), close(to_err[0]);
    *out = (td__child){pid, pidfd, in[1], to_out[1], to_err[1]};
    return TD_OK;
fail:
    st = TD_FAIL(TD_EIO, "cannot start %s: %s", argv[0], strerror(errno));
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    close_pair(in), close_pair(to_out), close_pair(to_err);
    return st;
}

_Noreturn static void become_detached(const char *const *argv, const char *log)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(EXIT_NOT_RUN);
}

td_status td__spawn_detached(const char *const *argv, const char *log, int *pidfd)
{
    pid_t pid = fork();

    if (!pid)
        become_detached(argv, log);
    *pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (*pidfd >= 0)
        return TD_OK;
    td_status st = TD_FAIL(TD_EIO, "cannot start %s: %s", argv[0], strerror(errno));
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return st;
}

int td__child_reap(td__child *c)
{
    siginfo_t info = {0};
    /* The zombie keeps its number, so that the group is still its own. */
    waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT);
    kill(-c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    close(c->pidfd);
    c->pidfd = -1;
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

bool td__child_killed(const td__child *c)
{
    siginfo_t info = {0};
    return !waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT | WNOHANG) && info.si_pid &&
           info.si_code != CLD_EXITED;
}

void td__child_close(td__child *c)
{
    int *fd[] = {&c->pidfd, &c->in, &c->out, &c->err};
    for (size_t i = 0; i < sizeof fd / sizeof fd[0]; i++) {
        if (*fd[i] >= 0)
            close(*fd[i]);
        *fd[i] = -1;
    }
}

typedef enum trace { NONE, MARKED, UNKNOWN } trace;

/* In the middle of exec a process has neither an environment nor arguments; those that never get
 * them (threads of the kernel) or lose them (who exits) look the same, but for their flags. */
static bool may_be_in_exec(const char *pid)
{
    char state;
    unsigned flags;
    return td__process_stat((int)strtol(pid, NULL, 10), &state, &flags) && state != 'Z' &&
           !(flags & (TD_PROCESS_EXITS | TD_PROCESS_KERNEL));
}

/* Bytes of /proc/PID/NAME; 0 also if it cannot be read. */
static size_t read_proc(const char *pid, const char *name, char *out, size_t max)
{
    char path[300];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    for (ssize_t got; n < max && (got = read(fd, out + n, max - n)) > 0;)
        n += (size_t)got;
    close(fd);
    return n;
}

static trace trace_of(const char *pid, const char *const marks[2], char *buffer, size_t max)
{
    char argument;
    size_t n = read_proc(pid, "environ", buffer, max);
    if (!n && may_be_in_exec(pid)) {
        if (!read_proc(pid, "cmdline", &argument, 1))
            return UNKNOWN;
        n = read_proc(pid, "environ", buffer, max); /* it may have got one meanwhile, or has none */
    }
    return memmem(buffer, n, marks[0], strlen(marks[0]) + 1) && /* with the 0 at its end */
                   memmem(buffer, n, marks[1], strlen(marks[1]) + 1)
               ? MARKED
               : NONE;
}

/* One look at all processes; true: there were marked ones, or may be. */
static bool kill_once(const char *const marks[2], char *buffer, size_t max)
{
    char own[16];
    bool found = false;
    DIR *dir = opendir("/proc");
    snprintf(own, sizeof own, "%d", (int)getpid());
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!isdigit((unsigned char)e->d_name[0]) || strcmp(e->d_name, own) == 0)
            continue;
        trace t = trace_of(e->d_name, marks, buffer, max);
        if (t == MARKED)
            kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
        found |= t != NONE;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* A process may fork just before it is killed, and its child's number may be behind the scan:
 * repeat until a scan finds none. */
void td__kill_marked(const char *job, td__env var, const char *value)
{
    enum { MAX_ENVIRON = 2 << 20, MOST_MS = 1000 };
    char mark[128], where[320];
    const char *const marks[] = {mark, where};
    td__deadline until = td__deadline_in_ms(MOST_MS);
    snprintf(mark, sizeof mark, "%s=%s", td__env_name(TD_ENV_JOB), job);
    snprintf(where, sizeof where, "%s=%s", td__env_name(var), value);
    char *buffer = td__malloc(MAX_ENVIRON);
    while (buffer && kill_once(marks, buffer, MAX_ENVIRON) && !td__deadline_passed(until))
        (void)poll(NULL, 0, 1);
    td__free(buffer);
}
