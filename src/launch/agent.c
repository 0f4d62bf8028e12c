/* agent.c -- one host's part of a launch: its processes and their output.
 *
 * Conversation with the launcher (message.h): SPEC, PARENT; READY; GO; then output, and what became
 * of the processes; END when this agent is no longer needed.
 *
 * Which processes run is decided by generations, and who decides those is the one thing in which
 * agents of fixed and of elastic ranks differ (decider.h).
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
#include "launch/decider.h"
#include "launch/launch.h"
#include "launch/poll_open.h"
#include "launch/workers.h"

enum {
    LOOK_MS = 1000,
    LAST_WORDS_MS = 1000, /* for a launcher that does not read */
    FDS = 3               /* of the launcher's pipe both ends, and signals */
};

typedef struct agent {
    td__agent_spec s;
    bool lost; /* the launcher is gone */
    td__workers *workers;
    td__decider *decider;
    bool stopping, ending; /* ordered by the launcher */
    bool drained;          /* asked to go, by a signal: when its processes are gone, so is it */
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
    td__decider_create *create = a->s.most ? td__agreement_create : td__fixed_ranks_create;
    TD_TRY(create(&a->s, a->workers, &a->lost, parent, ready, &a->decider));
    if (a->decider->ops->most_fds)
        n += (size_t)a->decider->ops->most_fds(a->decider);
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
    TD_TRY(a->decider->ops->begin(a->decider, &m));
    if (chdir(a->s.cwd))
        return TD_FAIL(TD_EINVAL, "cannot enter %s: %s", a->s.cwd, strerror(errno));
    TD_TRY(td__channel_queue(&a->s.up));
    /* Fixed ranks begin even if the order to stop has come too: the launcher awaits their end. */
    return td__workers_tick(a->workers, td__clock_ns());
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

/* ---- the loop ---- */

static int wait_ms(const agent *a)
{
    uint64_t at = td__workers_deadline(a->workers), next = a->decider->ops->deadline(a->decider);
    return td__deadline_left_ms(next < at ? next : at, LOOK_MS);
}

static td_status tick(agent *a)
{
    uint64_t now = td__clock_ns();
    const td__decider_ops *ops = a->decider->ops;
    TD_TRY(ops->tick(a->decider, now, !a->stopping));
    TD_TRY(td__workers_tick(a->workers, now));
    td__workers_say_status(a->workers, ops->leads(a->decider), false, now);
    if (ops->say)
        ops->say(a->decider, now);
    return TD_OK;
}

static td_status go_round(agent *a)
{
    td__channel *up = &a->s.up;
    struct pollfd *p = a->fds;
    p[0] = (struct pollfd){up->in, POLLIN, 0};
    p[1] = (struct pollfd){up->queue_used > up->queue_sent ? up->out : -1, POLLOUT, 0};
    p[2] = (struct pollfd){a->signals, POLLIN, 0};
    const td__decider_ops *ops = a->decider->ops;
    int first = FDS + (ops->poll ? ops->poll(a->decider, p + FDS) : 0);
    int n = first + td__workers_poll(a->workers, p + first);
    if (td__poll_open(p, n, wait_ms(a)) < 0 && errno != EINTR)
        return TD_FAIL(TD_EIO, "cannot wait for processes: %s", strerror(errno));
    uint64_t now = td__clock_ns();
    if (p[0].revents)
        TD_TRY(hear_launcher(a, now));
    if (p[1].revents && td__channel_flush(up))
        a->lost = true;
    if (p[2].revents)
        hear_signal(a);
    if (ops->serve)
        ops->serve(a->decider, p + FDS);
    td__workers_serve(a->workers, p + first, now);
    return tick(a);
}

static bool is_done(const agent *a)
{
    if (a->lost || td__workers_running(a->workers))
        return a->lost;
    return a->ending || !a->decider->ops->needed(a->decider, a->stopping, a->drained);
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
    if (a->decider)
        a->decider->ops->destroy(a->decider);
    if (a->signals >= 0)
        close(a->signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    td__free(a->fds);
    td__agent_spec_fini(&a->s);
    td__channel_fini(&a->s.up);
    td__free(a);
    return st;
}
