/* launcher.c -- the launcher: starts the agents, joins their stores to a tree, passes on output,
 * and ends the job when the first rank fails. See launch.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "launch/agent_start.h"
#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/message.h"
#include "launch/output.h"
#include "launch/secrets.h"
#include "launch/spawn.h"

enum {
    FAN_OUT = 16,      /* agents below one agent's store */
    START_MS = 60000,  /* until all agents are ready */
    PATIENCE_MS = 5000 /* for agents after the grace time */
};

typedef struct agent {
    const td__host *host;
    td__agent_link link;
    bool started, ready, ended;
    int n_ended; /* ranks */
    char store[256];
    char **address; /* "HOST:PORT" of its ranks, (count + 1) */
} agent;

typedef struct launch {
    const td__launch_opts *o;
    const char *const *argv;
    td__hosts hosts;
    agent *agents;
    td__output *output;
    td__job_secrets secrets;
    int n_ready, n_done;
    int first, first_status; /* rank that failed first; -1: none */
    bool killed;             /* by a signal */
    int signal;              /* that we got */
    td__deadline once;       /* until then a signal is of what stops us already */
    td_status failed;        /* could not be started or lost an agent */
    char why[512];
    bool gone; /* GO was sent */
    bool stopping, killing, ending;
    td__deadline limit; /* of the current phase; 0: none */
} launch;

static void tell(agent *a, td__msg_kind what)
{
    if (a->started && !a->ended && td__channel_send(&a->link.down, what, -1, NULL, 0))
        return; /* an agent that is gone needs no words */
}

static void stop(launch *l, td__msg_kind how)
{
    if (how == TD_MSG_KILL ? l->killing : l->stopping)
        return;
    l->once = l->stopping ? l->once : td__deadline_in_ms(TD_SIGNAL_MS);
    l->stopping = true;
    l->killing |= how == TD_MSG_KILL;
    l->limit = td__deadline_in_ms((l->killing ? 0 : l->o->grace_ms) + PATIENCE_MS);
    for (int i = 0; i < l->hosts.n; i++)
        tell(&l->agents[i], how);
}

/* Keep the first reason, and stop. */
static void give_up(launch *l, td_status st, const char *text)
{
    if (!l->failed && !l->stopping) {
        l->failed = st;
        snprintf(l->why, sizeof l->why, "%s", text);
    }
    stop(l, TD_MSG_STOP);
}

static td_status start_agents(launch *l)
{
    for (int i = 0; i < l->hosts.n; i++) {
        agent *a = &l->agents[i];
        a->address = td__calloc((size_t)a->host->count + 1, sizeof *a->address);
        if (!a->address)
            return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", a->host->count);
        TD_TRY(td__agent_start(l->o, a->host, &a->link));
        a->started = true;
    }
    for (int i = 0; i < l->hosts.n; i++) {
        td_status st =
            td__agent_tell_spec(&l->agents[i].link, l->o, &l->secrets, &l->hosts, i, l->argv);
        if (st && st != TD_EPEER) /* who is gone will be heard of with its own words */
            return st;
    }
    td_status st = td__channel_send(&l->agents[0].link.down, TD_MSG_PARENT, -1, NULL, 0);
    return st == TD_EPEER ? TD_OK : st;
}

/* All agents are ready: tell each where all ranks live. */
static td_status send_go(launch *l)
{
    td__texts t = {0};
    for (int i = 0; i < l->hosts.n; i++)
        for (int k = 0; k < l->hosts.host[i].count; k++)
            td__texts_add(&t, "%s", l->agents[i].address[k]);
    td__texts_add(&t, "%s", l->agents[0].address[l->hosts.host[0].count]);
    td_status st =
        t.failed ? TD_FAIL(TD_ENOMEM, "no memory for %d addresses", l->hosts.size) : TD_OK;
    for (int i = 0; i < l->hosts.n && !st; i++) {
        st = td__channel_send(&l->agents[i].link.down, TD_MSG_GO, -1, t.data, t.used);
        st = st == TD_EPEER ? TD_OK : st; /* as above */
    }
    td__texts_fini(&t);
    l->gone = true;
    l->limit = l->stopping ? l->limit : 0;
    return st;
}

static td_status agent_ready(launch *l, int index, const td__msg *m)
{
    agent *a = &l->agents[index];
    size_t at = 0;
    const char *text = td__texts_next(m->data, m->nbytes, &at);
    if (a->ready || !text || strlen(text) >= sizeof a->store)
        return TD_FAIL(TD_EPROTO, "the agent on %s says nonsense", a->host->name);
    snprintf(a->store, sizeof a->store, "%s", text);
    for (int k = 0; k < a->host->count + (index == 0); k++) {
        text = td__texts_next(m->data, m->nbytes, &at);
        a->address[k] = text ? td__strdup(text) : NULL;
        if (!a->address[k])
            return TD_FAIL(TD_EPROTO, "the agent on %s names too few ports", a->host->name);
    }
    a->ready = true;
    l->n_ready++;
    for (int i = FAN_OUT * index + 1; i <= FAN_OUT * (index + 1) && i < l->hosts.n; i++) {
        td_status st = td__channel_send(&l->agents[i].link.down, TD_MSG_PARENT, -1, a->store,
                                        strlen(a->store) + 1);
        if (st && st != TD_EPEER)
            return st;
    }
    return l->n_ready == l->hosts.n ? send_go(l) : TD_OK;
}

static td_status rank_ended(launch *l, agent *a, const td__msg *m)
{
    char *end;
    int status = (int)strtol(m->data, &end, 10); /* ends with 0: checked by the caller */
    bool killed = strcmp(end, " killed") == 0, none = l->first < 0 && !l->stopping;
    a->n_ended++;
    l->n_done++;
    /* Who was killed before anybody was told to end is the cause of those that left by themselves,
     * also if the news of it comes later. */
    if (status && (none || (killed && l->first >= 0 && !l->killed))) {
        l->first = m->rank;
        l->first_status = status;
        l->killed = killed;
    }
    if (status && none)
        stop(l, TD_MSG_STOP);
    return TD_OK;
}

static td_status take_message(void *user, int index, const td__msg *m)
{
    launch *l = user;
    agent *a = &l->agents[index];
    bool is_text = m->nbytes && !m->data[m->nbytes - 1];
    bool is_own = m->rank >= a->host->first && m->rank < a->host->first + a->host->count;
    switch (m->kind) {
    case TD_MSG_READY:
        if (is_text)
            return agent_ready(l, index, m);
        break;
    case TD_MSG_OUT:
    case TD_MSG_ERR:
        if (is_own)
            return td__output_lines(l->output, m->rank, m->kind == TD_MSG_ERR, m->data, m->nbytes);
        break;
    case TD_MSG_EXIT:
        if (is_text && is_own)
            return rank_ended(l, a, m);
        break;
    case TD_MSG_FAILED:
        if (is_text)
            return TD_FAIL(TD_EIO, "host %s: %s", a->host->name, m->data);
        break;
    case TD_MSG_DRAIN: /* its host is to go, and no rank can */
        l->signal = l->signal ? l->signal : SIGTERM;
        stop(l, TD_MSG_STOP);
        return TD_OK;
    default: break;
    }
    return TD_FAIL(TD_EPROTO, "malformed message from the agent on %s", a->host->name);
}

/* What cannot be done with one message (no disk for the output) is no reason to leave those that
 * came with it unheard: nothing else may follow that would wake us. */
static td_status take(void *user, int index, const td__msg *m)
{
    td_status st = take_message(user, index, m);
    if (!st || st == TD_EPEER || st == TD_EPROTO)
        return st;
    give_up(user, st, td_last_error());
    return TD_OK;
}

static void agent_ended(launch *l, agent *a)
{
    a->ended = true;
    while (a->link.child.err >= 0) { /* its last words may still be on their way */
        struct pollfd p = {a->link.child.err, POLLIN, 0};
        if (poll(&p, 1, 200) <= 0)
            break;
        td__agent_noise(&a->link);
    }
    if (a->n_ended == a->host->count)
        return;
    char text[512];
    int status = 0;
    if (a->host->local) {
        snprintf(text, sizeof text, "the agent of this host ended before its ranks did");
        td__kill_marked(l->secrets.job, TD_ENV_STORE, a->store);
    } else if (!a->ready) {
        waitpid(a->link.child.pid, &status, 0);
        close(a->link.child.pidfd);
        a->link.child.pidfd = -1;
        snprintf(text, sizeof text, "cannot start an agent on host %s: %s%s(exit status %d)",
                 a->host->name, a->link.noise, a->link.noise[0] ? " " : "",
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    } else {
        snprintf(text, sizeof text, "lost the agent on host %s with %d of its ranks running%s%s",
                 a->host->name, a->host->count - a->n_ended, a->link.noise[0] ? ": " : "",
                 a->link.noise);
    }
    give_up(l, TD_EPEER, text);
}

static void hear_agent(launch *l, int index)
{
    agent *a = &l->agents[index];
    bool eof, unread;
    td_status st = td__agent_hear(&a->link, take, l, index, &eof, &unread);
    if (unread) { /* as if by SIGPIPE */
        l->signal = l->signal ? l->signal : SIGPIPE;
        stop(l, TD_MSG_STOP);
    }
    if (st)
        give_up(l, st, td_last_error());
    if (eof)
        agent_ended(l, a);
}

/* Ranks may need the stores of other hosts until they end: agents stay until all have. */
static void end_agents(launch *l)
{
    for (int i = 0; i < l->hosts.n; i++)
        if (!l->agents[i].ended && l->agents[i].n_ended < l->agents[i].host->count)
            return;
    for (int i = 0; i < l->hosts.n && !l->ending; i++)
        tell(&l->agents[i], TD_MSG_END);
    l->ending = true;
}

static void hear_signal(launch *l, int fd)
{
    struct signalfd_siginfo all[8]; /* those that wait together are one */
    if (read(fd, all, sizeof all) < (ssize_t)sizeof *all)
        return;
    if (l->stopping && !td__deadline_passed(l->once))
        return;
    if (l->stopping) {
        stop(l, TD_MSG_KILL);
        return;
    }
    l->signal = (int)all[0].ssi_signo;
    stop(l, TD_MSG_STOP);
}

static void time_is_up(launch *l)
{
    l->limit = 0;
    if (!l->stopping) {
        char text[300];
        for (int i = 0; i < l->hosts.n; i++)
            if (!l->agents[i].ready) {
                snprintf(text, sizeof text, "host %s was not ready in %d s",
                         l->agents[i].host->name, START_MS / 1000);
                give_up(l, TD_ETIMEDOUT, text);
            }
    } else if (!l->killing) {
        stop(l, TD_MSG_KILL);
    } else { /* closing their pipes is what is left */
        for (int i = 0; i < l->hosts.n; i++)
            l->agents[i].ended = true;
    }
}

static td_status watch(launch *l, int signals)
{
    struct pollfd *p = td__calloc(1 + 2 * (size_t)l->hosts.n, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory to watch %d agents", l->hosts.n);
    for (;;) {
        int alive = 0;
        p[0] = (struct pollfd){signals, POLLIN, 0};
        for (int i = 0; i < l->hosts.n; i++) {
            const agent *a = &l->agents[i];
            alive += !a->ended;
            p[1 + 2 * i] = (struct pollfd){a->ended ? -1 : a->link.down.in, POLLIN, 0};
            p[2 + 2 * i] = (struct pollfd){a->ended ? -1 : a->link.child.err, POLLIN, 0};
        }
        if (!alive)
            break;
        int ms = l->limit ? td__deadline_left_ms(l->limit, START_MS) : START_MS;
        if (poll(p, 1 + 2 * (nfds_t)l->hosts.n, ms) < 0 && errno != EINTR)
            break;
        if (l->limit && td__deadline_passed(l->limit))
            time_is_up(l);
        if (p[0].revents)
            hear_signal(l, signals);
        for (int i = 0; i < l->hosts.n; i++) {
            if (p[2 + 2 * i].revents && !l->agents[i].ended)
                td__agent_noise(&l->agents[i].link);
            if (p[1 + 2 * i].revents && !l->agents[i].ended)
                hear_agent(l, i);
        }
        end_agents(l);
    }
    td__free(p);
    return TD_OK;
}

/* Say how it ended; the failed rank's name comes last. */
static td_status conclude(launch *l, int *exit_status)
{
    *exit_status = 0;
    if (l->failed)
        return TD_FAIL(l->failed, "%s", l->why);
    if (l->first >= 0) {
        int host = 0, s = l->first_status;
        while (l->first >= l->hosts.host[host].first + l->hosts.host[host].count)
            host++;
        if (!l->o->plain)
            td__output_tail(l->output, l->first);
        /* A status of the program's own, 130 included, for which rank 0 has given the reason? */
        bool said = l->o->plain && s <= 128 + SIGINT;
        if (!said && s > 128 && s < 128 + NSIG)
            td__output_say(l->output, "killed by signal %d (%s): rank %d of %d on host %s", s - 128,
                           strsignal(s - 128), l->first, l->hosts.size, l->hosts.host[host].name);
        else if (!said)
            td__output_say(l->output, "failed with exit status %d: rank %d of %d on host %s", s,
                           l->first, l->hosts.size, l->hosts.host[host].name);
        *exit_status = s;
    } else if (l->signal) {
        if (l->signal != SIGPIPE)
            td__output_say(l->output, "stopped by signal %d (%s)", l->signal, strsignal(l->signal));
        *exit_status = 128 + l->signal;
    }
    return TD_OK;
}

static void release_agents(launch *l)
{
    for (int i = 0; l->agents && i < l->hosts.n; i++) {
        agent *a = &l->agents[i];
        if (a->started)
            td__agent_release(&a->link, PATIENCE_MS);
        for (int k = 0; a->address && k <= a->host->count; k++)
            td__free(a->address[k]);
        td__free(a->address);
    }
    td__free(l->agents);
}

static td_status find_hosts(const td__launch_opts *o, td__hosts *out)
{
    char here[32];
    if (o->hosts && o->hosts_file)
        return TD_FAIL(TD_EINVAL, "give the hosts or a file of hosts, not both");
    if (o->hosts_file)
        return td__hosts_read(o->hosts_file, o->size, out);
    if (o->hosts)
        return td__hosts_parse(o->hosts, o->size, out);
    if (o->size < 1)
        return TD_FAIL(TD_EINVAL, "how many ranks? give -n N or --hosts");
    snprintf(here, sizeof here, "localhost:%d", o->size);
    return td__hosts_parse(here, 0, out);
}

/* Descriptors 0, 1 and 2 must not become something else by chance. */
static void hold_standard_fds(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = fcntl(fd, F_DUPFD, 0);
    if (fd > STDERR_FILENO)
        close(fd);
}

td_status td__launch_run(const td__launch_opts *opts, const char *const *argv, int *exit_status)
{
    td__launch_opts o = *opts;
    launch l = {.o = &o, .argv = argv, .first = -1};
    sigset_t set, old;
    td_status st = TD_OK;
    hold_standard_fds();
    o.grace_ms = o.grace_ms ? o.grace_ms : 5000;
    o.out = o.out ? o.out : STDOUT_FILENO;
    o.err = o.err ? o.err : STDERR_FILENO;
    if (o.most)
        return td__launch_elastic(&o, argv, exit_status);
    TD_TRY(find_hosts(&o, &l.hosts));
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    void (*old_pipe)(int) = signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        TD_TRY_OR(st, done, TD_FAIL(TD_EIO, "cannot watch signals: %s", strerror(errno)));
    TD_TRY_OR(st, done, td__output_create(l.hosts.size, &o, &l.output));
    td__output_interrupt(l.output, signals);
    TD_TRY_OR(st, done, td__job_secrets_init(&l.secrets, o.tls));
    l.agents = td__calloc((size_t)l.hosts.n, sizeof *l.agents);
    if (!l.agents)
        TD_TRY_OR(st, done, TD_FAIL(TD_ENOMEM, "no memory for %d hosts", l.hosts.n));
    for (int i = 0; i < l.hosts.n; i++) {
        l.agents[i].host = &l.hosts.host[i];
        l.agents[i].link.child = (td__child){0, -1, -1, -1, -1};
    }
    l.limit = td__deadline_in_ms(START_MS);
    TD_TRY_OR(st, done, start_agents(&l));
    TD_TRY_OR(st, done, watch(&l, signals));
done:
    release_agents(&l);
    if (!st)
        st = conclude(&l, exit_status);
    td__output_destroy(l.output);
    td__hosts_fini(&l.hosts);
    td__job_secrets_fini(&l.secrets);
    if (signals >= 0)
        close(signals);
    signal(SIGPIPE, old_pipe);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return st;
}
