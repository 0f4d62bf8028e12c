/* launcher.c -- the launcher: starts the agents, passes on output, and ends the job when it is told
 * to, or when its ranks have ended. See launch.h.
 *
 * A job whose ranks are fixed has one generation, which the launcher decides: the first rank that
 * fails ends it. Of an elastic job it decides nothing: the agents agree on generations, and go on
 * without any of them that is lost. All else is the same. The launcher's end is the job's: the
 * agents see their pipes close. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "launch/launcher_impl.h"
#include "launch/poll_open.h"

enum {
    START_MS = 60000,   /* until all agents are ready */
    PATIENCE_MS = 5000, /* for agents after the grace time */
    LOOK_MS = 500,      /* at the file of hosts */
    GRACE_MS = 5000,
    CRASHES = 5,
    HEARTBEAT_MS = 200,
    LEASE_MS = 1000,
    HANG_MS = 240000
};

typedef td__launch launch;
typedef td__launch_agent agent;

/* ---- telling ---- */

void td__launch_tell(agent *a, td__msg_kind kind, const char *one, const char *two)
{
    td__texts t = {0};
    if (one)
        td__texts_add(&t, "%s", one);
    if (two)
        td__texts_add(&t, "%s", two);
    if (t.failed) /* half a message would be obeyed; without it the wait for the agent ends */
        TD_LOG(ERROR, LAUNCH, "no memory for a message to the agent of a host");
    else if (a->started && !a->ended) {
        td_status st = td__channel_send(&a->link.down, kind, -1, t.data, t.used);
        (void)st; /* the agent's end is reported separately */
    }
    td__texts_fini(&t);
}

void td__launch_tell_all(launch *l, td__msg_kind kind)
{
    for (int i = 0; i < l->hosts.n; i++)
        td__launch_tell(&l->agents[i], kind, NULL, NULL);
}

void td__launch_limit_end(launch *l)
{
    l->limit = td__deadline_in_ms((l->killing ? 0 : l->o.grace_ms) + PATIENCE_MS);
}

void td__launch_stop(launch *l, td__msg_kind how)
{
    if (how == TD_MSG_KILL ? l->killing : l->stopping)
        return;
    l->once = l->stopping ? l->once : td__deadline_in_ms(TD_SIGNAL_MS);
    l->stopping = true;
    l->killing |= how == TD_MSG_KILL;
    td__launch_limit_end(l);
    td__launch_tell_all(l, how);
}

/* Keep the first reason, and stop. */
static void give_up(launch *l, td_status st, const char *text)
{
    if (!l->failed && !l->stopping && !l->over) {
        l->failed = st;
        snprintf(l->why, sizeof l->why, "%s", text);
    }
    td__launch_stop(l, TD_MSG_STOP);
}

/* ---- agents ---- */

td_status td__launch_start_agent(launch *l, int i)
{
    agent *a = &l->agents[i];
    const td__host *h = &l->hosts.host[i];
    a->link.child = (td__child){0, -1, -1, -1, -1};
    a->slots = h->count;
    a->base = !l->elastic ? h->first
              : i         ? l->agents[i - 1].base + l->agents[i - 1].slots + l->o.spares
                          : 0;
    TD_TRY(td__agent_start(&l->o, h, &a->link));
    a->started = true;
    td_status st = td__agent_tell_spec(&a->link, &l->o, &l->secrets, &l->hosts, i, l->argv);
    return st == TD_EPEER ? TD_OK : st; /* its end is reported separately */
}

/* What cannot be done with one message (no disk for the output) is no reason to leave those that
 * came with it unheard: nothing else may follow that would wake us. */
static td_status take(void *user, int index, const td__msg *m)
{
    td_status st = td__launch_hear(user, index, m);
    if (!st || st == TD_EPEER || st == TD_EPROTO)
        return st;
    give_up(user, st, td_last_error());
    return TD_OK;
}

/* What a remote shell, or the agent, has said last, after a colon; the exit status of one that did
 * not come so far. */
static void last_words(agent *a, bool with_status, char out[300])
{
    int status = 0, n;
    while (a->link.child.err >= 0) { /* they may still be on their way */
        struct pollfd p = {a->link.child.err, POLLIN, 0};
        if (poll(&p, 1, 200) <= 0)
            break;
        td__agent_noise(&a->link);
    }
    n = snprintf(out, 300, "%s%s", a->link.noise[0] ? ": " : "", a->link.noise);
    if (!with_status || waitpid(a->link.child.pid, &status, 0) != a->link.child.pid)
        return;
    close(a->link.child.pidfd);
    a->link.child.pidfd = -1;
    snprintf(out + n, 300 - (size_t)n, " (exit status %d)",
             WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void kill_left_behind(const launch *l, int index)
{
    char socket[96];
    snprintf(socket, sizeof socket, "unix:@tandem-%s-%d", l->secrets.job, index);
    td__kill_marked(l->secrets.job, TD_ENV_AGENT, socket);
}

static void agent_ended(launch *l, int index)
{
    agent *a = &l->agents[index];
    const td__host *host = &l->hosts.host[index];
    char text[512], words[300];
    int n_left = 0, n_running = host->count - a->n_ended;
    a->ended = true;
    for (int i = 0; i < l->hosts.n; i++)
        n_left += td__launch_is_up(l, i);
    last_words(a, !host->local && !a->ready, words);
    if (!l->elastic && !n_running)
        return;
    if (host->local)
        kill_left_behind(l, index);
    if (l->over || l->stopping) {
        (void)td__worlds_lost(l, index, ""); /* for the next generation */
        return;
    }
    if (!l->elastic && host->local)
        snprintf(text, sizeof text, "the agent of this host ended before its ranks did");
    else if (!l->begun)
        snprintf(text, sizeof text, "cannot start an agent on host %s%s", host->name, words);
    else if (!l->elastic)
        snprintf(text, sizeof text, "lost the agent on host %s with %d of its ranks running%s",
                 host->name, n_running, words);
    else if (!n_left)
        snprintf(text, sizeof text, "the agent on host %s was lost, and no other is left%s",
                 host->name, words);
    else {
        if (a->ready)
            td__output_say(l->output, "lost the agent on host %s; %d left", host->name, n_left);
        else /* one that was added */
            td__output_say(l->output, "cannot start an agent on host %s; continuing without it%s",
                           host->name, words);
        return;
    }
    if (!td__worlds_lost(l, index, text))
        give_up(l, TD_EPEER, text);
}

static void hear_agent(launch *l, int index)
{
    bool eof, unread;
    td_status st = td__agent_hear(&l->agents[index].link, take, l, index, &eof, &unread);
    if (unread) { /* as if by SIGPIPE */
        l->signal = l->signal ? l->signal : SIGPIPE;
        td__launch_stop(l, TD_MSG_STOP);
    }
    if (st)
        give_up(l, st, td_last_error());
    if (eof)
        agent_ended(l, index);
}

/* ---- the loop ---- */

static void hear_signal(launch *l)
{
    struct signalfd_siginfo all[8]; /* those that wait together are one */
    if (read(l->signals, all, sizeof all) < (ssize_t)sizeof *all)
        return;
    if (l->stopping && !td__deadline_passed(l->once))
        return;
    if (l->stopping) {
        l->signal = l->signal ? l->signal : (int)all[0].ssi_signo; /* nothing begins anew */
        td__launch_stop(l, TD_MSG_KILL);
        return;
    }
    l->signal = (int)all[0].ssi_signo;
    td__launch_stop(l, TD_MSG_STOP);
}

static void time_is_up(launch *l)
{
    l->limit = 0;
    if (!l->stopping && !l->over && l->n_leaders && l->n_leaders == l->o.lossy_from) {
        td__output_say(l->output, "ranks that have not ended with the servers are killed");
        td__launch_stop(l, TD_MSG_KILL);
    } else if (!l->stopping && !l->over) {
        char text[300] = "";
        int late = 0;
        while (late < l->hosts.n - 1 && l->agents[late].ready)
            late++;
        snprintf(text, sizeof text, "host %s was not ready in %d s", l->hosts.host[late].name,
                 START_MS / 1000);
        if (!td__worlds_lost(l, late, text))
            give_up(l, TD_ETIMEDOUT, text);
    } else if (!l->killing) {
        l->stopping = true;
        td__launch_stop(l, TD_MSG_KILL);
    } else { /* closing their pipes is what is left */
        for (int i = 0; i < l->hosts.n; i++)
            l->agents[i].ended = true;
    }
}

/* One round; false: no agent is left. */
static bool go_round(launch *l, struct pollfd *p)
{
    int n = l->hosts.n, first = 1 + TD_CONTROL_FDS;
    bool any = false;
    p[0] = (struct pollfd){l->signals, POLLIN, 0};
    td__control_poll(l->control, p + 1);
    for (int i = 0; i < n; i++) {
        bool up = td__launch_is_up(l, i);
        const td__agent_link *link = &l->agents[i].link;
        any |= up;
        p[first + 2 * i] = (struct pollfd){up ? link->down.in : -1, POLLIN, 0};
        p[first + 1 + 2 * i] = (struct pollfd){up ? link->child.err : -1, POLLIN, 0};
    }
    if (!any)
        return false;
    int ms = l->limit ? td__deadline_left_ms(l->limit, START_MS) : START_MS;
    bool grows = (l->elastic || l->o.min_world) && l->o.hosts_file;
    if (td__poll_open(p, first + 2 * n, grows ? td__deadline_left_ms(l->look_at, ms) : ms) < 0 &&
        errno != EINTR)
        return false;
    if (l->limit && td__deadline_passed(l->limit))
        time_is_up(l);
    if (p[0].revents)
        hear_signal(l);
    td__control_serve(l->control, p + 1, td__launch_answer, l);
    for (int i = 0; i < n; i++) {
        if (p[first + 1 + 2 * i].revents && !l->agents[i].ended)
            td__agent_noise(&l->agents[i].link);
        if (p[first + 2 * i].revents && !l->agents[i].ended)
            hear_agent(l, i);
    }
    if (!l->elastic)
        td__launch_end_agents(l);
    if (grows && td__deadline_passed(l->look_at)) {
        l->look_at = td__deadline_in_ms(LOOK_MS);
        if (l->elastic)
            td__launch_look_at_hosts(l);
        else if (td__worlds_look_at_hosts(l))
            give_up(l, TD_EPEER, td_last_error());
    }
    return true;
}

static td_status watch(launch *l)
{
    size_t n = 1 + TD_CONTROL_FDS + 2 * (size_t)l->max_agents;
    struct pollfd *p = td__calloc(2 * n, sizeof *p); /* see td__poll_open */
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory to watch %d agents", l->hosts.n);
    while (go_round(l, p))
        ;
    td__free(p);
    return TD_OK;
}

/* ---- beginning and end ---- */

static void release_agents(launch *l)
{
    for (int i = 0; l->agents && i < l->hosts.n; i++) {
        agent *a = &l->agents[i];
        if (a->started)
            td__agent_release(&a->link, PATIENCE_MS);
        for (int k = 0; a->rank_address && k <= l->hosts.host[i].count; k++)
            td__free(a->rank_address[k]);
        td__free(a->rank_address);
    }
    td__free(l->agents);
    l->agents = NULL;
}

/* From the start of the agents to the end of all: the whole of an elastic job, or one generation of
 * fixed ranks. */
static td_status run_agents(launch *l)
{
    l->agents = td__calloc((size_t)l->max_agents, sizeof *l->agents);
    if (!l->agents)
        return TD_FAIL(TD_ENOMEM, "no memory for %d hosts", l->max_agents);
    if (!l->elastic) {
        l->o.generation = (int)++l->generation;
        l->o.failures = l->failures;
        l->ranks = l->hosts.size;
    }
    l->limit = td__deadline_in_ms(START_MS);
    l->look_at = td__deadline_in_ms(LOOK_MS);
    for (int i = 0; i < l->hosts.n; i++)
        TD_TRY(td__launch_start_agent(l, i));
    td__launch_tell(&l->agents[0], TD_MSG_PARENT, NULL, NULL);
    return watch(l);
}

static td_status run(launch *l)
{
    td_status st;
    bool again;
    TD_TRY(td__launch_find_hosts(l));
    int most = l->elastic ? l->o.most : l->o.min_world ? l->o.size : l->hosts.size;
    TD_TRY(td__output_create(most, &l->o, &l->output));
    td__output_interrupt(l->output, l->signals);
    TD_TRY(td__job_secrets_init(&l->secrets, l->o.tls));
    TD_TRY(td__job_status_create(l->max_agents, &l->news));
    TD_TRY(td__control_create(l->secrets.job, l->o.control, &l->control));
    l->o.resume = l->run_dir;
    do {
        st = run_agents(l);
        release_agents(l);
        again = !st && td__launch_again(l);
        if (again && l->o.min_world)
            st = td__worlds_next(l);
    } while (!st && again);
    return st;
}

static void set_defaults(td__launch_opts *o)
{
    o->grace_ms = o->grace_ms ? o->grace_ms : GRACE_MS;
    o->out = o->out ? o->out : STDOUT_FILENO;
    o->err = o->err ? o->err : STDERR_FILENO;
    o->crashes = o->crashes ? o->crashes : CRASHES;
    o->heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : HEARTBEAT_MS;
    /* Fixed ranks are watched only if that is asked for: nobody takes their places. */
    uint32_t lease = o->most ? LEASE_MS : o->hang_ms > 0 ? o->hang_ms : UINT32_MAX;
    o->lease_ms = o->lease_ms ? o->lease_ms : lease;
    o->hang_ms = o->hang_ms ? o->hang_ms : o->most ? HANG_MS : UINT32_MAX;
}

td_status td__launch_run(const td__launch_opts *opts, const char *const *argv, int *exit_status)
{
    launch *l = td__calloc(1, sizeof *l);
    sigset_t set, old;
    *exit_status = 0;
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a launch");
    *l = (launch){.o = *opts, .elastic = opts->most > 0, .argv = argv, .first = -1};
    set_defaults(&l->o);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    void (*old_pipe)(int) = signal(SIGPIPE, SIG_IGN);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    td_status st =
        l->signals < 0 ? TD_FAIL(TD_EIO, "cannot watch signals: %s", strerror(errno)) : run(l);
    if (!st)
        st = td__launch_conclude(l, exit_status);
    td__control_destroy(l->control);
    td__job_status_destroy(l->news);
    td__output_destroy(l->output);
    td__hosts_fini(&l->hosts);
    td__hosts_fini(&l->listed);
    td__job_secrets_fini(&l->secrets);
    if (l->signals >= 0)
        close(l->signals);
    signal(SIGPIPE, old_pipe);
    sigprocmask(SIG_SETMASK, &old, NULL);
    td__free(l);
    return st;
}
