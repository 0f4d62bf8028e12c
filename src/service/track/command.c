/* command.c -- running a program of another system to its end (see command.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { MOST_OUTPUT = 16 << 20, MOST_ERROR = 64 << 10, LOOK_MS = 100 };

extern char **environ;

typedef struct run {
    const td__command_opts *o;
    pid_t pid;
    int in, out, err; /* our ends; -1: closed */
    size_t written;   /* of the input */
    td__text said;    /* standard error */
    bool unwanted;    /* by the sink, or longer than is believable */
} run;

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static bool make_pipe(int ours_at, int pipe_fds[2])
{
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return false;
    return fcntl(pipe_fds[ours_at], F_SETFL, O_NONBLOCK) == 0;
}

/* The service's own variables, and then the others, which win in most programs' eyes; NULL: out of
 * memory. */
static char **environment(const char *const *more)
{
    size_t n = 0, m = 0;
    while (environ[n])
        n++;
    while (more && more[m])
        m++;
    char **env = td__calloc(n + m + 1, sizeof *env);
    size_t used = 0;
    for (size_t i = 0; env && i < n; i++) {
        bool replaced = false;
        for (size_t k = 0; k < m; k++)
            replaced = replaced || strncmp(environ[i], more[k], strcspn(more[k], "=") + 1) == 0;
        if (!replaced)
            env[used++] = environ[i];
    }
    for (size_t k = 0; env && k < m; k++)
        env[used++] = (char *)(uintptr_t)more[k];
    return env;
}

static td_status spawn(run *r)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, error = 0;
    sigset_t none, defaults;
    char **env = environment(r->o->env);

    if (!env || !make_pipe(1, in) || !make_pipe(0, out) || !make_pipe(0, err))
        error = errno ? errno : ENOMEM;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGTERM);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    /* A group of its own, so that what it starts is killed with it. */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    if (!error) {
        posix_spawn_file_actions_adddup2(&actions, in[0], 0);
        posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        posix_spawn_file_actions_adddup2(&actions, err[1], 2);
        error = posix_spawnp(&r->pid, r->o->argv[0], &actions, &attr,
                             (char *const *)(uintptr_t)r->o->argv, env);
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    td__free(env);
    shut(&in[0]);
    shut(&out[1]);
    shut(&err[1]);
    r->in = in[1];
    r->out = out[0];
    r->err = err[0];
    return error ? TD_FAIL(TD_EIO, "%s: cannot be run: %s", r->o->argv[0], strerror(error)) : TD_OK;
}

static void give_input(run *r)
{
    size_t left = r->o->input ? strlen(r->o->input + r->written) : 0;
    ssize_t n = left ? write(r->in, r->o->input + r->written, left) : 0;

    if (n > 0)
        r->written += (size_t)n;
    if (left == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        shut(&r->in);
}

static void take_output(run *r)
{
    char block[1 << 14];
    ssize_t n = read(r->out, block, sizeof block);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        shut(&r->out);
    if (n <= 0)
        return;
    if (r->o->out) {
        td__text_append(r->o->out, block, (size_t)n);
        r->unwanted = r->o->out->used > MOST_OUTPUT;
    } else if (r->o->sink) {
        r->unwanted = !r->o->sink(r->o->sink_user, block, (size_t)n);
    }
}

static void take_errors(run *r)
{
    char block[1 << 12];
    ssize_t n = read(r->err, block, sizeof block);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        shut(&r->err);
    if (n > 0 && r->said.used < MOST_ERROR)
        td__text_append(&r->said, block, (size_t)n);
}

/* Until the program has closed both of its outputs; otherwise why not. */
static td_status converse(run *r)
{
    while (r->out >= 0 || r->err >= 0) {
        struct pollfd p[3] = {{.fd = r->in, .events = POLLOUT},
                              {.fd = r->out, .events = POLLIN},
                              {.fd = r->err, .events = POLLIN}};
        poll(p, 3, td__deadline_left_ms(r->o->until, LOOK_MS));
        if (p[0].revents)
            give_input(r);
        if (p[1].revents)
            take_output(r);
        if (p[2].revents)
            take_errors(r);
        if (r->unwanted)
            return TD_FAIL(TD_EABORTED, "%s: its output is not wanted any more", r->o->argv[0]);
        if (r->o->stop && atomic_load(r->o->stop))
            return TD_FAIL(TD_EABORTED, "%s: stopped", r->o->argv[0]);
        if (td__deadline_passed(r->o->until))
            return TD_FAIL(TD_ETIMEDOUT, "%s: has not ended in time", r->o->argv[0]);
    }
    return TD_OK;
}

/* The last line that is not empty. */
static const char *last_line(td__text *said)
{
    while (said->used > 0 && strchr("\r\n ", said->data[said->used - 1]))
        said->data[--said->used] = '\0';
    const char *newline = said->data ? strrchr(said->data, '\n') : NULL;
    return newline ? newline + 1 : said->data ? said->data : "";
}

td_status td__command(const td__command_opts *o, int *status)
{
    run r = {.o = o, .in = -1, .out = -1, .err = -1};
    int ended = 0, code = -1;
    td_status st;

    if (status)
        *status = -1;
    st = spawn(&r);
    if (!st)
        st = converse(&r);
    shut(&r.in);
    shut(&r.out);
    shut(&r.err);
    if (r.pid > 0) {
        if (st)
            kill(-r.pid, SIGKILL);
        while (waitpid(r.pid, &ended, 0) < 0 && errno == EINTR)
            continue;
        code = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    }
    if (status)
        *status = code;
    if (!st && code != 0)
        st = TD_FAIL(TD_EINVAL, "%s: %s (exit status %d)", o->argv[0], last_line(&r.said), code);
    if (!st && o->out)
        st = td__text_status(o->out);
    td__text_fini(&r.said);
    return st;
}
