/* launch_elastic.c -- the launcher of an elastic job: starts the agents, shows the output, takes
 * the operator's orders, and ends the job when it is told to.
 *
 * It decides nothing about generations: the agents do (docs/membership.md), and go on without any
 * of them that is lost. Its own end is the job's: the agents see their pipes close. Hosts that
 * appear in the file of hosts get an agent, those that vanish from it lose their slots. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "launch/agent_start.h"
#include "launch/control.h"
#include "launch/job_status.h"
#include "launch/membership.h"
#include "launch/output.h"
#include "launch/placement.h"
#include "launch/workers.h"

enum { START_MS = 60000, PATIENCE_MS = 5000, LOOK_MS = 500, HANG_MS = 240000 };

typedef struct agent {
    td__agent_link link;
    bool started, ready, gone, ended; /* gone: was told to go on, and with whom */
    char address[256];
    int slots, base; /* base: number of its first process' output */
} agent;

typedef struct launch {
    td__launch_opts o;
    const char *const *argv;
    td__hosts hosts; /* hosts.host[i] is that of agents[i]; it only grows */
    agent agents[TD_MS_AGENTS];
    td__output *output;
    td__job_secrets secrets;
    td__control *control;
    td__job_status *news;
    int signals, signal;
    td__deadline once; /* until then a signal is of what stops us already */
    uint64_t generation;
    int ranks;               /* of the generation, */
    char reason[TD_MS_TEXT]; /* and why it was formed */
    bool begun, stopping, killing, over;
    int status;
    char cause[TD_MS_TEXT];
    char last[1024]; /* line that a process wrote to its standard error */
    td_status failed;
    char why[512];
    td__deadline limit; /* of the current phase; 0: none */
    struct stat file;   /* the hosts file, as it was read last */
    td__deadline look_at;
} launch;

static void tell(agent *a, td__msg_kind kind, const char *one, const char *two)
{
    td__texts t = {0};
    if (one)
        td__texts_add(&t, "%s", one);
    if (two)
        td__texts_add(&t, "%s", two);
    if (a->started && !a->ended) {
        td_status st = td__channel_send(&a->link.down, kind, -1, t.data, t.used);
        (void)st; /* of one that is gone the end will be heard */
    }
    td__texts_fini(&t);
}

static void tell_all(launch *l, td__msg_kind kind)
{
    for (int i = 0; i < l->hosts.n; i++)
        tell(&l->agents[i], kind, NULL, NULL);
}

static void stop(launch *l, td__msg_kind how)
{
    if (how == TD_MSG_KILL ? l->killing : l->stopping)
        return;
    l->once = l->stopping ? l->once : td__deadline_in_ms(TD_SIGNAL_MS);
    l->stopping = true;
    l->killing |= how == TD_MSG_KILL;
    l->limit = td__deadline_in_ms((l->killing ? 0 : l->o.grace_ms) + PATIENCE_MS);
    tell_all(l, how);
}

static void give_up(launch *l, td_status st, const char *text)
{
    if (!l->failed && !l->stopping && !l->over) {
        l->failed = st;
        snprintf(l->why, sizeof l->why, "%s", text);
    }
    stop(l, TD_MSG_STOP);
}

/* ---- agents ---- */

static td_status start_agent(launch *l, int i)
{
    agent *a = &l->agents[i];
    const td__host *h = &l->hosts.host[i];
    a->link.child = (td__child){0, -1, -1, -1, -1};
    a->slots = h->count;
    a->base = i ? l->agents[i - 1].base + l->agents[i - 1].slots + l->o.spares : 0;
    TD_TRY(td__agent_start(&l->o, h, &a->link));
    a->started = true;
    td_status st = td__agent_tell_spec(&a->link, &l->o, &l->secrets, &l->hosts, i, l->argv);
    return st == TD_EPEER ? TD_OK : st; /* who is gone will be heard of with its own words */
}

/* The agents that this one connects to. */
static void send_go(launch *l, int index)
{
    td__texts t = {0};
    agent *a = &l->agents[index];
    for (int i = 0; i < l->hosts.n; i++)
        if (i != index && l->agents[i].ready && !l->agents[i].ended &&
            (i < index || l->agents[i].gone))
            td__texts_add(&t, "%d %s", i, l->agents[i].address);
    td_status st = td__channel_send(&a->link.down, TD_MSG_GO, -1, t.data, t.used);
    (void)st; /* as in tell */
    a->gone = true;
    td__texts_fini(&t);
}

static void agent_ready(launch *l, int index, const char *address)
{
    agent *a = &l->agents[index];
    bool all = true;
    a->ready = true;
    snprintf(a->address, sizeof a->address, "%s", address);
    if (l->begun) {
        send_go(l, index);
        return;
    }
    for (int i = 0; i < l->hosts.n; i++) {
        all &= l->agents[i].ready;
        if (index == 0 && i)
            tell(&l->agents[i], TD_MSG_PARENT, address, NULL);
    }
    if (!all)
        return;
    l->begun = true;
    l->limit = l->stopping ? l->limit : 0;
    for (int i = 0; i < l->hosts.n; i++)
        send_go(l, i);
}

static void hear_generation(launch *l, const char *number, const char *size, const char *why)
{
    uint64_t n = strtoull(number, NULL, 10);
    if (n <= l->generation)
        return;
    char text[TD_STATUS_TEXT];
    l->generation = n;
    l->ranks = (int)strtol(size, NULL, 10);
    snprintf(l->reason, sizeof l->reason, "%s", why);
    snprintf(text, sizeof text, "generation %s, %s rank%s: %s", number, size,
             l->ranks != 1 ? "s" : "", why);
    td__job_status_event(l->news, text, false);
    if (n > 1)
        td__output_say(l->output, "%s", text);
}

/* data: whole lines. */
static void note_line(launch *l, const char *data, size_t nbytes)
{
    size_t end = nbytes && data[nbytes - 1] == '\n' ? nbytes - 1 : nbytes, begin = end;
    while (begin > 0 && data[begin - 1] != '\n')
        begin--;
    snprintf(l->last, sizeof l->last, "%.*s", (int)(end - begin), data + begin);
}

/* Has the process that gave the cause said it itself, as the last thing that was said? */
static bool is_said(const launch *l)
{
    const char *status = strstr(l->cause, "exit status "),
               *words = status ? strchr(status, ':') : "";
    return l->o.plain && words && strlen(words) > 2 && strstr(l->last, words + 2);
}

static void set_slots(launch *l, int index, int slots)
{
    char text[24];
    agent *a = &l->agents[index];
    if (a->slots == slots || a->ended)
        return;
    a->slots = slots;
    snprintf(text, sizeof text, "%d", slots);
    tell(a, TD_MSG_SLOTS, text, NULL);
}

/* A host was asked to go: its ranks do, at a step border, or the job does if the others are too
 * few. */
static void drain(launch *l, int index)
{
    int left = 0;
    if (l->over || l->stopping)
        return;
    for (int i = 0; i < l->hosts.n; i++)
        left += i != index && l->agents[i].started && !l->agents[i].ended ? l->agents[i].slots : 0;
    if (left < l->o.min_ranks) {
        l->signal = SIGTERM;
        stop(l, TD_MSG_STOP);
        return;
    }
    td__output_say(l->output, "host %s was asked to go (SIGTERM): its ranks leave at a step border",
                   l->hosts.host[index].name);
    set_slots(l, index, 0);
}

/* Agents that are there besides this one. */
static int others(const launch *l, int index)
{
    int n = 0;
    for (int i = 0; i < l->hosts.n; i++)
        n += i != index && l->agents[i].started && !l->agents[i].ended;
    return n;
}

static td_status take_message(void *user, int index, const td__msg *m)
{
    launch *l = user;
    agent *a = &l->agents[index];
    size_t at = 0;
    const char *one = td__texts_next(m->data, m->nbytes, &at);
    const char *two = td__texts_next(m->data, m->nbytes, &at);
    const char *three = td__texts_next(m->data, m->nbytes, &at);
    switch (m->kind) {
    case TD_MSG_READY:
        if (one && !a->ready) {
            agent_ready(l, index, one);
            return TD_OK;
        }
        break;
    case TD_MSG_OUT:
    case TD_MSG_ERR:
        if (m->rank >= 0 && m->rank < TD_PLACE_PROCS) {
            int number = a->base + m->rank;
            TD_TRY(td__output_room(l->output, number + 1, &l->o));
            if (m->kind == TD_MSG_ERR)
                note_line(l, m->data, m->nbytes);
            td_status st =
                td__output_lines(l->output, number, m->kind == TD_MSG_ERR, m->data, m->nbytes);
            if (l->over && !l->stopping) /* who has more to say ends when it is said */
                l->limit = td__deadline_in_ms(l->o.grace_ms + PATIENCE_MS);
            return st;
        }
        break;
    case TD_MSG_GENERATION:
        if (three)
            hear_generation(l, one, two, three);
        return TD_OK;
    case TD_MSG_OVER:
        if (two && !l->over) {
            l->over = true;
            l->status = (int)strtol(one, NULL, 10);
            snprintf(l->cause, sizeof l->cause, "%s", two);
            l->limit = td__deadline_in_ms(l->o.grace_ms + PATIENCE_MS);
            tell_all(l, TD_MSG_END);
        }
        return TD_OK;
    case TD_MSG_RUN_DIR:
        if (one && l->control)
            td__control_offer(l->control, one);
        return TD_OK;
    case TD_MSG_STATUS:
        if (one)
            td__job_status_host(l->news, index, one);
        return TD_OK;
    case TD_MSG_HANG:
        if (one) {
            td__job_status_event(l->news, one, true);
            td__output_say(l->output, "%s", one);
        }
        return TD_OK;
    case TD_MSG_DRAIN: drain(l, index); return TD_OK;
    case TD_MSG_LEAVES:
    case TD_MSG_FAILED:
        if (one && !a->gone)
            return TD_FAIL(TD_EIO, "host %s: %s", l->hosts.host[index].name, one);
        if (one && !others(l, index)) /* its end comes next, with these words */
            snprintf(a->link.noise, sizeof a->link.noise, "%s", one);
        else if (one && !l->over && !l->stopping)
            td__output_say(l->output, "%s", one);
        return TD_OK;
    default: break;
    }
    return TD_FAIL(TD_EPROTO, "the agent on %s says nonsense", l->hosts.host[index].name);
}

static void agent_ended(launch *l, int index)
{
    agent *a = &l->agents[index];
    const char *name = l->hosts.host[index].name;
    char text[512], socket[96];
    int n_left = others(l, index);
    a->ended = true;
    while (a->link.child.err >= 0) { /* its last words may still be on their way */
        struct pollfd p = {a->link.child.err, POLLIN, 0};
        if (poll(&p, 1, 200) <= 0)
            break;
        td__agent_noise(&a->link);
    }
    snprintf(socket, sizeof socket, "unix:@tandem-%s-%d", l->secrets.job, index);
    if (l->hosts.host[index].local)
        td__kill_marked(l->secrets.job, TD_ENV_AGENT, socket);
    if (l->over || l->stopping)
        return;
    if (!a->gone && !l->begun) {
        snprintf(text, sizeof text, "cannot start an agent on host %s%s%s", name,
                 a->link.noise[0] ? ": " : "", a->link.noise);
        give_up(l, TD_EPEER, text);
    } else if (!n_left) {
        snprintf(text, sizeof text, "the agent on host %s was lost, and no other is left%s%s", name,
                 a->link.noise[0] ? ": " : "", a->link.noise);
        give_up(l, TD_EPEER, text);
    } else if (!a->ready) { /* one that was added */
        td__output_say(l->output, "cannot start an agent on host %s, the others go on%s%s", name,
                       a->link.noise[0] ? ": " : "", a->link.noise);
    } else {
        td__output_say(l->output, "the agent on host %s is gone; %d left", name, n_left);
    }
}

static void hear_agent(launch *l, int index)
{
    agent *a = &l->agents[index];
    bool eof, unread;
    td_status st = td__agent_hear(&a->link, take_message, l, index, &eof, &unread);
    if (unread) { /* as if by SIGPIPE */
        l->signal = l->signal ? l->signal : SIGPIPE;
        stop(l, TD_MSG_STOP);
    }
    if (st)
        give_up(l, st, td_last_error());
    if (eof)
        agent_ended(l, index);
}

/* ---- orders ---- */

static void tell_status(const launch *l, td__text *out)
{
    const char *host[TD_MS_AGENTS];
    bool up[TD_MS_AGENTS];
    for (int i = 0; i < l->hosts.n; i++) {
        host[i] = l->hosts.host[i].name;
        up[i] = l->agents[i].started && !l->agents[i].ended;
    }
    td__text_add(out, "ok ");
    td__job_status_write(l->news,
                         &(td__job_facts){.generation = l->generation,
                                          .ranks = l->ranks,
                                          .why = l->reason,
                                          .min_ranks = l->o.min_ranks,
                                          .most = l->o.most,
                                          .spares = l->o.spares,
                                          .n_agents = l->hosts.n,
                                          .host = host,
                                          .up = up},
                         out);
}

static void answer(void *user, const char *question, td__text *out)
{
    launch *l = user;
    if (!strcmp(question, "status")) {
        tell_status(l, out);
        return;
    }
    char *end, order[24], text[24];
    long n = strncmp(question, "scale ", 6) == 0 ? strtol(question + 6, &end, 10) : 0;
    int slots = 0;
    for (int i = 0; i < l->hosts.n; i++)
        slots += l->agents[i].started && !l->agents[i].ended ? l->agents[i].slots : 0;
    if (l->o.capped && l->o.most < slots)
        slots = l->o.most;
    if (strncmp(question, "scale ", 6) != 0 || *end) {
        td__text_printf(out, "error the order is not understood: %.60s", question);
    } else if (n < l->o.min_ranks || n > slots) {
        td__text_printf(out, "error this job can have %d to %d ranks", l->o.min_ranks, slots);
    } else {
        snprintf(order, sizeof order, "%llu", (unsigned long long)td__order_number());
        snprintf(text, sizeof text, "%ld", n);
        for (int i = 0; i < l->hosts.n; i++)
            tell(&l->agents[i], TD_MSG_ORDER, order, text);
        td__text_printf(out, "ok %ld ranks are wanted from the next step border on", n);
    }
}

static int find_host(const td__hosts *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->host[i].name, name))
            return i;
    return -1;
}

static td_status add_host(launch *l, const td__host *host)
{
    int n = l->hosts.n;
    if (n == TD_MS_AGENTS)
        return TD_FAIL(TD_EINVAL, "host %s: at most %d agents in the life of a job", host->name,
                       (int)TD_MS_AGENTS);
    td__host *more = td__realloc(l->hosts.host, (size_t)(n + 1) * sizeof *more);
    if (!more)
        return TD_FAIL(TD_ENOMEM, "no memory for the list of hosts");
    l->hosts.host = more;
    l->hosts.host[n] = *host;
    l->hosts.n++;
    TD_TRY(start_agent(l, n));
    for (int i = 0; i < n; i++)
        if (l->agents[i].gone && !l->agents[i].ended) {
            tell(&l->agents[n], TD_MSG_PARENT, l->agents[i].address, NULL);
            break;
        }
    return TD_OK;
}

/* The hosts file may have changed: by its owner's editor, or by a service that writes it. */
static void look_at_hosts(launch *l)
{
    struct stat now;
    td__hosts new = {0};
    l->look_at = td__deadline_in_ms(LOOK_MS);
    if (!l->begun || l->over || l->stopping || stat(l->o.hosts_file, &now))
        return;
    if (now.st_mtim.tv_sec == l->file.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == l->file.st_mtim.tv_nsec && now.st_ino == l->file.st_ino &&
        now.st_size == l->file.st_size)
        return;
    l->file = now;
    td_status st = td__hosts_read(l->o.hosts_file, 0, &new);
    for (int i = 0; i < l->hosts.n && !st; i++)
        if (find_host(&new, l->hosts.host[i].name) < 0)
            set_slots(l, i, 0);
    for (int k = 0; k < new.n && !st; k++) {
        int i = l->hosts.n;
        while (i-- > 0 &&
               (l->agents[i].ended || strcmp(l->hosts.host[i].name, new.host[k].name) != 0))
            ;
        if (i >= 0)
            set_slots(l, i, new.host[k].count);
        else
            st = add_host(l, &new.host[k]);
    }
    if (st)
        td__output_say(l->output, "the file of hosts: %s", td_last_error());
    td__hosts_fini(&new);
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
        stop(l, TD_MSG_KILL);
        return;
    }
    l->signal = (int)all[0].ssi_signo;
    stop(l, TD_MSG_STOP);
}

static void time_is_up(launch *l)
{
    l->limit = 0;
    if (!l->stopping && !l->over) {
        char text[300] = "";
        for (int i = 0; i < l->hosts.n && !text[0]; i++)
            if (!l->agents[i].ready)
                snprintf(text, sizeof text, "host %s was not ready in %d s", l->hosts.host[i].name,
                         START_MS / 1000);
        give_up(l, TD_ETIMEDOUT, text);
    } else if (!l->killing) {
        l->stopping = true;
        stop(l, TD_MSG_KILL);
    } else { /* closing their pipes is what is left */
        for (int i = 0; i < l->hosts.n; i++)
            l->agents[i].ended = true;
    }
}

static int alive(const launch *l)
{
    int n = 0;
    for (int i = 0; i < l->hosts.n; i++)
        n += l->agents[i].started && !l->agents[i].ended;
    return n;
}

static void watch(launch *l)
{
    struct pollfd p[2 + TD_CONTROL_FDS + 2 * TD_MS_AGENTS];
    while (alive(l)) {
        int n = l->hosts.n, first = 1 + TD_CONTROL_FDS;
        p[0] = (struct pollfd){l->signals, POLLIN, 0};
        td__control_poll(l->control, p + 1);
        for (int i = 0; i < n; i++) {
            const agent *a = &l->agents[i];
            bool up = a->started && !a->ended;
            p[first + 2 * i] = (struct pollfd){up ? a->link.down.in : -1, POLLIN, 0};
            p[first + 1 + 2 * i] = (struct pollfd){up ? a->link.child.err : -1, POLLIN, 0};
        }
        int ms = l->limit ? td__deadline_left_ms(l->limit, START_MS) : START_MS;
        if (l->o.hosts_file)
            ms = td__deadline_left_ms(l->look_at, ms);
        if (poll(p, (nfds_t)first + 2 * (nfds_t)n, ms) < 0 && errno != EINTR)
            break;
        if (l->limit && td__deadline_passed(l->limit))
            time_is_up(l);
        if (p[0].revents)
            hear_signal(l);
        td__control_serve(l->control, p + 1, answer, l);
        for (int i = 0; i < n; i++) {
            if (p[first + 1 + 2 * i].revents && !l->agents[i].ended)
                td__agent_noise(&l->agents[i].link);
            if (p[first + 2 * i].revents && !l->agents[i].ended)
                hear_agent(l, i);
        }
        if (l->o.hosts_file && td__deadline_passed(l->look_at))
            look_at_hosts(l);
    }
}

static td_status conclude(launch *l, int *exit_status)
{
    *exit_status = 0;
    const char *cause = l->failed ? l->why : l->over && l->status ? l->cause : "";
    if (l->o.cause)
        snprintf(l->o.cause, TD_LAUNCH_CAUSE, "%s", cause);
    if (l->failed)
        return TD_FAIL(l->failed, "%s", l->why);
    if (l->over) {
        if (l->status && *l->cause && !is_said(l))
            td__output_say(l->output, "%s", l->cause);
        *exit_status = l->status;
    } else if (l->signal) {
        if (l->signal != SIGPIPE)
            td__output_say(l->output, "stopped by signal %d (%s)", l->signal, strsignal(l->signal));
        *exit_status = 128 + l->signal;
    }
    return TD_OK;
}

static td_status find_hosts(launch *l)
{
    char here[32];
    int size = 0;
    if (l->o.hosts && l->o.hosts_file)
        return TD_FAIL(TD_EINVAL, "give the hosts or a file of hosts, not both");
    if (l->o.hosts_file) {
        if (stat(l->o.hosts_file, &l->file))
            return TD_FAIL(TD_EINVAL, "cannot read %s: %s", l->o.hosts_file, strerror(errno));
        TD_TRY(td__hosts_read(l->o.hosts_file, 0, &l->hosts));
    } else if (l->o.hosts) {
        TD_TRY(td__hosts_parse(l->o.hosts, 0, &l->hosts));
    } else {
        snprintf(here, sizeof here, "localhost:%d", (int)TD_PLACE_PROCS - l->o.spares);
        TD_TRY(td__hosts_parse(here, 0, &l->hosts));
    }
    for (int i = 0; i < l->hosts.n; i++)
        size += l->hosts.host[i].count;
    if (l->hosts.n > TD_MS_AGENTS || l->o.most > TD_MS_MEMBERS)
        return TD_FAIL(TD_EINVAL, "an elastic job has at most %d hosts and %d ranks",
                       (int)TD_MS_AGENTS, (int)TD_MS_MEMBERS);
    if (size < l->o.min_ranks)
        return TD_FAIL(TD_EINVAL, "%d ranks, but the hosts have %d slots", l->o.min_ranks, size);
    l->o.n_first = l->hosts.n;
    return TD_OK;
}

static td_status run(launch *l)
{
    TD_TRY(td__output_create(l->o.most, &l->o, &l->output));
    td__output_interrupt(l->output, l->signals);
    TD_TRY(td__job_secrets_init(&l->secrets, l->o.tls));
    TD_TRY(td__job_status_create(&l->news));
    TD_TRY(td__control_create(l->secrets.job, l->o.control, &l->control));
    l->limit = td__deadline_in_ms(START_MS);
    l->look_at = td__deadline_in_ms(LOOK_MS);
    for (int i = 0; i < l->hosts.n; i++)
        TD_TRY(start_agent(l, i));
    tell(&l->agents[0], TD_MSG_PARENT, NULL, NULL);
    watch(l);
    return TD_OK;
}

td_status td__launch_elastic(const td__launch_opts *opts, const char *const *argv, int *exit_status)
{
    launch *l = td__calloc(1, sizeof *l);
    sigset_t set, old;
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a launch");
    l->o = *opts;
    l->argv = argv;
    l->o.crashes = l->o.crashes ? l->o.crashes : 5;
    l->o.heartbeat_ms = l->o.heartbeat_ms ? l->o.heartbeat_ms : 200;
    l->o.lease_ms = l->o.lease_ms ? l->o.lease_ms : 1000;
    l->o.hang_ms = l->o.hang_ms ? l->o.hang_ms : HANG_MS;
    td_status st = find_hosts(l);
    if (st) {
        td__hosts_fini(&l->hosts);
        td__free(l);
        return st;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    void (*old_pipe)(int) = signal(SIGPIPE, SIG_IGN);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    st = l->signals < 0 ? TD_FAIL(TD_EIO, "cannot watch signals: %s", strerror(errno)) : run(l);
    for (int i = 0; i < l->hosts.n; i++)
        if (l->agents[i].started)
            td__agent_release(&l->agents[i].link, PATIENCE_MS);
    if (!st)
        st = conclude(l, exit_status);
    td__control_destroy(l->control);
    td__job_status_destroy(l->news);
    td__output_destroy(l->output);
    td__hosts_fini(&l->hosts);
    td__job_secrets_fini(&l->secrets);
    if (l->signals >= 0)
        close(l->signals);
    signal(SIGPIPE, old_pipe);
    sigprocmask(SIG_SETMASK, &old, NULL);
    td__free(l);
    return st;
}
