/* agent.c -- one host's part of a launch: its processes and their output.
 *
 * Conversation with the launcher (message.h): SPEC, PARENT; READY; GO; then output, and what became
 * of the processes; END when this agent is no longer needed.
 *
 * Which processes run is decided by generations. A job with fixed ranks has one, which the launcher
 * decides (fixed_ranks.h); those of an elastic job are agreed on by its agents (agreement.h). All
 * else is the same: the processes (workers.h), signals, orders to stop.
 *
 * When the launcher's end of the pipe closes, everything here is killed at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "launch/agent_spec.h"
#include "launch/agreement.h"
#include "launch/fixed_ranks.h"
#include "launch/launch.h"
#include "launch/poll_open.h"
#include "launch/workers.h"

enum {
    LOOK_MS = 1000,       /* at a store that may be cut off, and for `tandem status` */
    LAST_WORDS_MS = 1000, /* for a launcher that does not read */
    FDS = 3               /* of the launcher's pipe both ends, and signals */
};

typedef struct agent {
    td__agent_spec s;
    bool lost; /* the launcher is gone */
    td__workers *workers;
    td__fixed_ranks fixed;
    td__agreement *agreement; /* of an elastic job; NULL: ranks are fixed */
    bool stopping, ending;    /* ordered by the launcher */
    bool over_said;
    bool drained; /* asked to go, by a signal: when its processes are gone, so is it */
    int signals;
    struct pollfd *fds;
} agent;

static void tell(agent *a, td__msg_kind kind, const td__texts *t)
{
    if (t->failed) /* half a message would be obeyed */
        return;
    if (!a->lost && td__channel_send(&a->s.up, kind, -1, t->data, t->used))
        a->lost = true;
}

/* ---- beginning ---- */

static td_status create_parts(agent *a, const char *parent, td__texts *ready)
{
    size_t n = FDS;
    TD_TRY(td__agent_spec_offer(&a->s, parent));
    TD_TRY(td__workers_create(&a->s, &a->lost, &a->workers));
    if (a->s.most) {
        TD_TRY(td__agreement_create(&a->s, a->workers, &a->lost, &a->agreement));
        td__texts_add(ready, "%s", td__agreement_address(a->agreement));
        n += (size_t)td__agreement_most_fds(a->agreement);
    } else {
        TD_TRY(td__fixed_ranks_init(&a->fixed, &a->s, parent));
        td__fixed_ranks_ready(&a->fixed, ready);
    }
    n += (size_t)td__workers_most_fds(a->workers);
    a->fds = td__calloc(2 * n, sizeof *a->fds); /* as many again for td__poll_open */
    if (!a->fds || ready->failed)
        return TD_FAIL(TD_ENOMEM, "no memory to watch processes");
    return TD_OK;
}

static td_status make_ready(agent *a)
{
    td__msg m;
    td__texts ready = {0};
    char parent[256] = "";
    TD_TRY(td__channel_await(&a->s.up, TD_MSG_PARENT, &m));
    if (m.nbytes >= sizeof parent)
        return TD_FAIL(TD_EPROTO, "the address of the agent above is too long");
    memcpy(parent, m.data, m.nbytes);
    td_status st = create_parts(a, parent, &ready);
    if (!st)
        st = td__channel_send(&a->s.up, TD_MSG_READY, -1, ready.data, ready.used);
    td__texts_fini(&ready);
    return st;
}

static td_status begin(agent *a)
{
    td__msg m;
    TD_TRY(td__channel_await(&a->s.up, TD_MSG_GO, &m));
    if (a->agreement) {
        TD_TRY(td__agreement_begin(a->agreement, &m));
    } else {
        TD_TRY(td__fixed_ranks_begin(&a->fixed, &m));
        td__workers_fix(a->workers, &a->fixed.plan);
    }
    if (chdir(a->s.cwd))
        return TD_FAIL(TD_EINVAL, "cannot enter %s: %s", a->s.cwd, strerror(errno));
    TD_TRY(td__channel_queue(&a->s.up));
    /* Fixed ranks begin even if the order to stop has come too: the launcher awaits their end. */
    return a->agreement ? TD_OK : td__workers_tick(a->workers, td__clock_ns());
}

/* ---- the launcher ---- */

/* What has been read already. */
static td_status obey_launcher(agent *a, uint64_t now)
{
    bool found;
    td__msg m;
    for (;;) {
        TD_TRY(td__channel_next(&a->s.up, &m, &found));
        if (!found)
            return TD_OK;
        size_t at = 0;
        const char *one = td__texts_next(m.data, m.nbytes, &at);
        const char *two = td__texts_next(m.data, m.nbytes, &at);
        if (m.kind == TD_MSG_KILL) {
            a->stopping = true;
            td__workers_kill(a->workers);
        } else if (m.kind == TD_MSG_STOP) {
            a->stopping = true;
            td__workers_stop(a->workers, now);
        } else if (m.kind == TD_MSG_END) {
            a->ending = true;
        } else if (m.kind == TD_MSG_ORDER && one && two) {
            td__workers_order(a->workers, strtoull(one, NULL, 10),
                              (uint32_t)strtoul(two, NULL, 10));
        } else if (m.kind == TD_MSG_SLOTS && one) {
            td__workers_slots(a->workers, (uint32_t)strtoul(one, NULL, 10));
        }
    }
}

static td_status hear_launcher(agent *a, uint64_t now)
{
    bool eof;
    TD_TRY(td__channel_fill(&a->s.up, &eof));
    a->lost |= eof;
    return obey_launcher(a, now);
}

/* SIGTERM, as of a scheduler that wants the host back: the launcher knows whether the others can go
 * on without it. */
static void hear_signal(agent *a)
{
    struct signalfd_siginfo info;
    if (read(a->signals, &info, sizeof info) != sizeof info || a->drained)
        return;
    a->drained = true;
    tell(a, TD_MSG_DRAIN, &(td__texts){0});
}

static void say_over(agent *a)
{
    const td__ms_content *c = td__agreement_decided(a->agreement);
    if (!c->over || a->over_said || td__workers_running(a->workers))
        return;
    td__texts t = {0};
    td__texts_add(&t, "%d", c->status);
    td__texts_add(&t, "%s", c->cause);
    tell(a, TD_MSG_OVER, &t);
    a->over_said = !t.failed; /* else again at the next look */
    td__texts_fini(&t);
}

/* ---- the loop ---- */

static int wait_ms(const agent *a)
{
    uint64_t at = td__workers_deadline(a->workers);
    if (!a->agreement)
        return td__deadline_left_ms(at, LOOK_MS);
    uint64_t g = td__agreement_deadline(a->agreement);
    return td__deadline_left_ms(g < at ? g : at, (int)a->s.heartbeat_ms);
}

static td_status tick(agent *a)
{
    uint64_t now = td__clock_ns();
    if (a->agreement)
        TD_TRY(td__agreement_tick(a->agreement, now, !a->stopping));
    else if (td__fixed_ranks_cut_off(&a->fixed))
        td__workers_stop(a->workers, now);
    TD_TRY(td__workers_tick(a->workers, now));
    td__workers_say_status(
        a->workers, a->agreement ? td__agreement_leads(a->agreement) : a->s.index == 0, false, now);
    if (!a->agreement)
        return TD_OK;
    td__agreement_report(a->agreement, now);
    say_over(a);
    return TD_OK;
}

static td_status go_round(agent *a)
{
    td__channel *up = &a->s.up;
    struct pollfd *p = a->fds;
    p[0] = (struct pollfd){up->in, POLLIN, 0};
    p[1] = (struct pollfd){up->queue_used > up->queue_sent ? up->out : -1, POLLOUT, 0};
    p[2] = (struct pollfd){a->signals, POLLIN, 0};
    int n_agents = a->agreement ? td__agreement_poll(a->agreement, p + FDS) : 0;
    int n = FDS + n_agents + td__workers_poll(a->workers, p + FDS + n_agents);
    if (td__poll_open(p, n, wait_ms(a)) < 0 && errno != EINTR)
        return TD_FAIL(TD_EIO, "cannot wait for processes: %s", strerror(errno));
    uint64_t now = td__clock_ns();
    if (p[0].revents)
        TD_TRY(hear_launcher(a, now));
    if (p[1].revents && td__channel_flush(up))
        a->lost = true;
    if (p[2].revents)
        hear_signal(a);
    if (a->agreement)
        td__agreement_serve(a->agreement, p + FDS);
    td__workers_serve(a->workers, p + FDS + n_agents, now);
    return tick(a);
}

/* Ranks may need the stores of other hosts until they end: an agent of fixed ranks stays until the
 * ranks of all hosts have ended, or it is cut off and will hear nothing more. */
static bool is_done(const agent *a)
{
    if (a->lost)
        return true;
    if (td__workers_running(a->workers))
        return false;
    if (!a->agreement)
        return a->ending || td__fixed_ranks_cut_off(&a->fixed);
    if (a->drained && !td__workers_report(a->workers)->slots) /* the others have it */
        return true;
    return a->stopping || a->ending || td__agreement_expelled(a->agreement);
}

static td_status run(agent *a)
{
    TD_TRY(td__agent_spec_read(&a->s));
    TD_TRY(make_ready(a));
    TD_TRY(begin(a));
    TD_TRY(obey_launcher(a, td__clock_ns())); /* what came together with GO */
    while (!is_done(a))
        TD_TRY(go_round(a));
    return TD_OK;
}

/* Flush the queue: wait for a launcher that reads slowly, not for one that does not read. */
static void say_the_rest(td__channel *up, bool *lost)
{
    td__deadline until = td__deadline_in_ms(LAST_WORDS_MS);
    while (!*lost && up->queue_used > up->queue_sent && !td__deadline_passed(until)) {
        struct pollfd p = {up->out, POLLOUT, 0};
        size_t sent = up->queue_sent;
        poll(&p, 1, td__deadline_left_ms(until, LAST_WORDS_MS));
        *lost = td__channel_flush(up) != TD_OK;
        if (up->queue_sent != sent) /* it reads */
            until = td__deadline_in_ms(LAST_WORDS_MS);
    }
}

td_status td__agent_run(int in, int out, const td__foreign_http *http)
{
    agent *a = td__calloc(1, sizeof *a);
    sigset_t set, old;
    if (!a)
        return TD_FAIL(TD_ENOMEM, "no memory for an agent");
    a->s.secret_fd = a->s.tls_fd = -1;
    a->s.http = http;
    td__channel_init(&a->s.up, in, out);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    a->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    td_status st = run(a);
    if (st && !a->lost) {
        td__texts why = {0};
        td__texts_add(&why, "%s", td_last_error());
        tell(a, TD_MSG_FAILED, &why);
        td__texts_fini(&why);
    }
    td__workers_destroy(a->workers); /* before the others hear that we are gone */
    say_the_rest(&a->s.up, &a->lost);
    td__agreement_destroy(a->agreement);
    td__fixed_ranks_fini(&a->fixed);
    if (a->signals >= 0)
        close(a->signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    td__free(a->fds);
    td__agent_spec_fini(&a->s);
    td__channel_fini(&a->s.up);
    td__free(a);
    return st;
}
