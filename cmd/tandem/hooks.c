/* hooks.c -- see hooks.h. Commands of epoch and best run beside training, one at a time; those of
 * the end are waited for, at most a minute. A command that fails is said, and changes nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"

enum { MOST_MS = 60000, OWN_VARIABLES = 5 };

extern char **environ;

static void say(const char *event, const char *what)
{
    fprintf(stderr, "tandem train: on.%s: %s\n", event, what);
}

/* This process' environment without what makes it a rank, and with what the command is told. */
static char **make_environment(const td__hooks *h, const char *event)
{
    size_t n = 0, used = 0;

    while (environ[n])
        n++;
    char **env = calloc(n + OWN_VARIABLES + 1, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], "TANDEM_", 7) != 0)
            env[used++] = environ[i];
    for (int i = 0; env && i < OWN_VARIABLES; i++) {
        char text[PATH_MAX + 64];
        switch (i) {
        case 0: snprintf(text, sizeof text, "RUN_EVENT=%s", event); break;
        case 1: snprintf(text, sizeof text, "RUN_DIR=%s", h->dir); break;
        case 2: snprintf(text, sizeof text, "RUN_STEP=%" PRIu64, h->step); break;
        case 3: snprintf(text, sizeof text, "RUN_EPOCH=%" PRIu64, h->epoch); break;
        default: snprintf(text, sizeof text, "RUN_LOSS=%.9g", h->loss);
        }
        env[used++] = strdup(text);
    }
    return env;
}

static void free_environment(char **env)
{
    size_t n = 0;

    while (env && env[n])
        n++;
    for (size_t i = n > OWN_VARIABLES ? n - OWN_VARIABLES : 0; i < n; i++)
        free(env[i]);
    free(env);
}

/* In a process group of its own, so that it can be ended whole; what it prints goes to stderr. */
static void start(td__hooks *h, const char *event, const char *command)
{
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdup(command), NULL};
    char **env = make_environment(h, event);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t defaults, none;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    int error =
        env && argv[2] ? posix_spawn(&h->running, "/bin/sh", &files, &attr, argv, env) : ENOMEM;
    if (error) {
        h->running = 0;
        say(event, strerror(error));
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    free(argv[2]);
    free_environment(env);
}

/* Has the command ended? Waits for ms; ended: then it is not left running. */
static void await(td__hooks *h, const char *event, int ms, bool ended)
{
    int status = 0;

    if (!h->running)
        return;
    if (ms) {
        int fd = (int)syscall(SYS_pidfd_open, h->running, 0);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (fd >= 0 && poll(&p, 1, ms) < 0 && errno == EINTR)
            continue;
        if (fd >= 0)
            close(fd);
    }
    pid_t got = waitpid(h->running, &status, WNOHANG);
    if (got == 0 && ended) {
        kill(-h->running, SIGKILL);
        got = waitpid(h->running, &status, 0); /* killed: it does not wait */
        say(event, "stopped: it did not end within a minute");
    } else if (got == h->running && status) {
        char text[64];
        snprintf(text, sizeof text, "the command ended with status %d",
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        say(event, text);
    }
    if (got)
        h->running = 0;
}

static void in_background(td__hooks *h, const char *event, const char *command)
{
    if (!command)
        return;
    await(h, event, 0, false);
    if (h->running)
        say(event, "left out: the command before it is still running");
    else
        start(h, event, command);
}

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    td__hooks *h = (td__hooks *)o;

    if (!h->steps_per_epoch)
        h->steps_per_epoch = info->steps_per_epoch;
    return h->next && h->next->begin ? h->next->begin(h->next, info) : TD_OK;
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    td__hooks *h = (td__hooks *)o;

    h->step = e->step;
    h->loss = e->loss;
    h->epoch = h->steps_per_epoch ? e->step / h->steps_per_epoch : 0;
    if (h->steps_per_epoch && e->step % h->steps_per_epoch == 0)
        in_background(h, "epoch", h->commands->epoch);
    return h->next && h->next->step ? h->next->step(h->next, e) : TD_OK;
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    td__hooks *h = (td__hooks *)o;

    if (e->best)
        in_background(h, "best", h->commands->best);
    return h->next && h->next->eval ? h->next->eval(h->next, e) : TD_OK;
}

static td_status on_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    td__observer *next = ((td__hooks *)o)->next;
    return next && next->checkpoint ? next->checkpoint(next, e) : TD_OK;
}

static td_status on_shards(td__observer *o, const td__shards_event *e)
{
    td__observer *next = ((td__hooks *)o)->next;
    return next && next->shards ? next->shards(next, e) : TD_OK;
}

static td_status on_end(td__observer *o, const td__train_result *r)
{
    td__observer *next = ((td__hooks *)o)->next;
    return next && next->end ? next->end(next, r) : TD_OK;
}

static td_status on_ranks(td__observer *o, const td__ranks_event *e)
{
    td__observer *next = ((td__hooks *)o)->next;
    return next && next->ranks ? next->ranks(next, e) : TD_OK;
}

static td_status on_spans(td__observer *o, const td__spans_event *e)
{
    td__observer *next = ((td__hooks *)o)->next;
    return next && next->spans ? next->spans(next, e) : TD_OK;
}

td__observer *td__hooks_watch(td__hooks *h, const td__job_hooks *commands, const char *dir,
                              int64_t steps_per_epoch, td__observer *next)
{
    if (!commands->epoch && !commands->best && !commands->end && !commands->fail)
        return next;
    *h = (td__hooks){.observer = {.begin = on_begin,
                                  .step = on_step,
                                  .eval = on_eval,
                                  .checkpoint = on_checkpoint,
                                  .shards = on_shards,
                                  .end = on_end,
                                  .ranks = on_ranks,
                                  .spans = on_spans},
                     .next = next,
                     .commands = commands,
                     .dir = dir,
                     .steps_per_epoch = (uint64_t)steps_per_epoch,
                     .watching = true};
    return &h->observer;
}

void td__hooks_end(td__hooks *h, int rc)
{
    bool failed = rc != TD_EXIT_OK && rc != TD_EXIT_INTERRUPTED;
    const char *event = failed ? "fail" : "end";

    if (!h->watching)
        return;
    await(h, h->commands->best ? "best" : "epoch", MOST_MS, true);
    const char *command = failed ? h->commands->fail : rc == TD_EXIT_OK ? h->commands->end : NULL;
    if (!command)
        return;
    start(h, event, command);
    await(h, event, MOST_MS, true);
}
