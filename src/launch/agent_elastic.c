/* agent_elastic.c -- the agent of an elastic launch: one loop that puts the parts together.
 *
 * In each round everything that has come is heard first, and time is looked at after that: an
 * agent that was stopped for a while must not take for silent those who spoke meanwhile. The leader
 * hosts the store in which the ranks of its generations meet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/agent_elastic.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/membership.h"
#include "launch/peers.h"
#include "launch/placement.h"
#include "launch/workers.h"
#include "net/store.h"

enum {
    KIND_MEMBERSHIP = 1,
    KIND_REPORT = 2,
    GATHER_MS = 10000,
    GIVE_UP = 10,
    REPORT_MS = 1000,
    LAST_WORDS_MS = 1000
};
enum { STATUS_MS = 500 }; /* between words for `tandem status` */
enum { FDS = 3 };         /* of the launcher's pipe both ends, and signals */

typedef struct elastic {
    td__agent_spec *s;
    bool *lost;
    td__ms ms;
    td__peers *peers;
    td__workers *workers;
    td__store_server *store; /* once this agent has led */
    td__place place;
    td__place_report *report[TD_MS_AGENTS]; /* of the others */
    uint64_t reported;                      /* number of the last own report that was sent */
    uint64_t report_at, status_at;
    uint64_t said; /* generation that the launcher was told of */
    bool led, over_said;
    bool stopping, ending; /* the launcher's words */
    bool out;              /* must not go on */
    bool drained;          /* asked to go, by a signal: when its processes are gone, so is it */
    int signals;
    struct pollfd *fds;
} elastic;

static uint64_t bit(int agent)
{
    return (uint64_t)1 << agent;
}

static void tell(elastic *e, td__msg_kind kind, const td__texts *t)
{
    if (!*e->lost && td__channel_send(&e->s->up, kind, -1, t->data, t->used))
        *e->lost = true;
}

/* ---- for `tandem status` ---- */

static void say_status(elastic *e, uint64_t now)
{
    td__text t = {0};
    if (*e->lost || td__channel_full(&e->s->up))
        return;
    e->status_at = now + STATUS_MS * 1000000ull;
    const td__ms_content *c = &e->ms.decided.content;
    td__text_add(&t, "{\"host\": ");
    td__text_json(&t, td__agent_spec_host(e->s)->name);
    td__text_printf(
        &t,
        ", \"leads\": %s, \"generation\": %" PRIu64 ", \"wanted\": %u, \"started\": %u, "
        "\"processes\": [",
        e->led ? "true" : "false", c->generation, c->wanted, td__workers_started(e->workers));
    td__workers_status(e->workers, now, &t);
    td__text_add(&t, "]}");
    if (!td__text_status(&t) && td__channel_send(&e->s->up, TD_MSG_STATUS, -1, t.data, t.used + 1))
        *e->lost = true;
    td__text_fini(&t);
}

/* ---- what the state machine wants ---- */

static void send_message(void *user, int to, const td__ms_msg *m)
{
    elastic *e = user;
    td__peers_send(e->peers, to, KIND_MEMBERSHIP, m, td__ms_msg_nbytes(m));
}

static void decided(void *user, const td__ms_state *s)
{
    elastic *e = user;
    const td__ms_content *c = &s->content;
    td__workers_apply(e->workers, s);
    if (c->generation > e->said) {
        say_status(e, td__clock_ns()); /* first: who hears of a generation knows its ranks */
        td__texts t = {0};
        td__texts_add(&t, "%" PRIu64, c->generation);
        td__texts_add(&t, "%u", c->n_members);
        td__texts_add(&t, "%s", c->why);
        tell(e, TD_MSG_GENERATION, &t);
        td__texts_fini(&t);
        e->said = c->generation;
    }
}

static void must_stop(void *user, const char *why)
{
    elastic *e = user;
    td__texts t = {0};
    td__texts_add(&t, "host %s leaves the job: %s", td__agent_spec_host(e->s)->name, why);
    tell(e, TD_MSG_LEAVES, &t);
    td__texts_fini(&t);
    e->out = true;
    td__workers_kill(e->workers);
}

static const td__ms_ops MS_OPS = {.send = send_message, .decided = decided, .stop = must_stop};

/* ---- the other agents ---- */

static void send_report(elastic *e, int to)
{
    const td__place_report *r = td__workers_report(e->workers);
    td__peers_send(e->peers, to, KIND_REPORT, r, td__place_report_nbytes(r));
}

static void met(void *user, int agent)
{
    elastic *e = user;
    td__ms_peer(&e->ms, td__clock_ns(), agent);
    send_report(e, agent);
}

static void hear_report(elastic *e, int from, const void *data, size_t nbytes)
{
    td__place_report *r = e->report[from];
    if (!r)
        r = e->report[from] = td__calloc(1, sizeof *r);
    if (!r || nbytes > sizeof *r)
        return;
    td__place_report *copy = td__malloc(sizeof *copy);
    if (copy) {
        memset(copy, 0, sizeof *copy);
        memcpy(copy, data, nbytes);
        if (td__place_report_good(copy, nbytes) && copy->number > r->number)
            *r = *copy;
        td__workers_order(e->workers, r->order, r->wanted);
    }
    td__free(copy);
}

static void heard(void *user, int from, uint8_t kind, const void *data, size_t nbytes)
{
    elastic *e = user;
    td__ms_msg m = {0};
    if (kind == KIND_REPORT) {
        hear_report(e, from, data, nbytes);
    } else if (kind == KIND_MEMBERSHIP && nbytes <= sizeof m) {
        memcpy(&m, data, nbytes);
        if (td__ms_msg_good(&m, nbytes))
            td__ms_hear(&e->ms, td__clock_ns(), from, &m, &MS_OPS, e);
    }
}

static void ended(void *user, int agent, bool reset)
{
    elastic *e = user;
    uint64_t now = td__clock_ns();
    /* A connection that breaks after a silence may have been given up by our own kernel. */
    if (reset && now > e->ms.heard_ns[agent] + e->ms.c.silence_ns)
        return;
    td__ms_lost(&e->ms, now, agent, &MS_OPS, e);
}

static const td__peers_ops PEERS_OPS = {.met = met, .heard = heard, .ended = ended};

/* ---- leading ---- */

static td_status host_store(elastic *e)
{
    char listen[80];
    if (e->store)
        return TD_OK;
    snprintf(listen, sizeof listen, "%s:0", e->s->address);
    return td__store_server_create(
        &e->s->secret, &(td__store_opts){.listen = listen, .tls_dir = td__agent_spec_tls(e->s)},
        &e->store);
}

static td_status lead(elastic *e, uint64_t now)
{
    if (!e->ms.leading) {
        e->led = false;
        return TD_OK;
    }
    if (!e->led) {
        TD_TRY(host_store(e));
        e->place.store = td__store_server_address(e->store);
        e->place.since_ns = now;
        e->led = true;
    }
    /* Once more when it is decided at once, as with one agent. */
    while (td__ms_may_propose(&e->ms)) {
        uint64_t voters, alive = td__ms_alive(&e->ms, now);
        td__ms_content *next = td__malloc(sizeof *next);
        if (!next)
            return TD_FAIL(TD_ENOMEM, "no memory for a generation");
        e->place.alive = alive;
        e->place.dead = e->ms.dead;
        for (int a = 0; a < TD_MS_AGENTS; a++) {
            bool is_new = (e->ms.peers & ~e->ms.accepted.known & ~e->ms.dead & bit(a)) != 0;
            if (is_new && e->report[a])
                e->place.alive |= bit(a);
            e->place.report[a] = a == e->s->index ? td__workers_report(e->workers) : e->report[a];
        }
        bool propose = td__place_next(&e->place, &e->ms.accepted, now, &voters, next) &&
                       td__ms_quorum(e->ms.accepted.voters, alive, e->ms.dead);
        if (propose)
            td__ms_propose(&e->ms, now, voters, next, &MS_OPS, e);
        td__free(next);
        if (!propose)
            break;
    }
    return TD_OK;
}

/* ---- the launcher ---- */

/* What has been read already. */
static td_status obey_launcher(elastic *e, uint64_t now)
{
    bool found;
    td__msg m;
    for (;;) {
        TD_TRY(td__channel_next(&e->s->up, &m, &found));
        if (!found)
            return TD_OK;
        size_t at = 0;
        const char *one = td__texts_next(m.data, m.nbytes, &at);
        const char *two = td__texts_next(m.data, m.nbytes, &at);
        if (m.kind == TD_MSG_KILL) {
            e->stopping = true;
            td__workers_kill(e->workers);
        } else if (m.kind == TD_MSG_STOP) {
            e->stopping = true;
            td__workers_stop(e->workers, now);
        } else if (m.kind == TD_MSG_END) {
            e->ending = true;
        } else if (m.kind == TD_MSG_ORDER && one && two) {
            td__workers_order(e->workers, strtoull(one, NULL, 10),
                              (uint32_t)strtoul(two, NULL, 10));
        } else if (m.kind == TD_MSG_SLOTS && one) {
            td__workers_slots(e->workers, (uint32_t)strtoul(one, NULL, 10));
        }
    }
}

static td_status hear_launcher(elastic *e, uint64_t now)
{
    bool eof;
    TD_TRY(td__channel_fill(&e->s->up, &eof));
    *e->lost |= eof;
    return obey_launcher(e, now);
}

/* SIGTERM, as of a scheduler that wants the host back: the launcher knows whether the others can go
 * on without it. */
static void hear_signal(elastic *e)
{
    struct signalfd_siginfo info;
    if (read(e->signals, &info, sizeof info) != sizeof info || e->drained)
        return;
    e->drained = true;
    tell(e, TD_MSG_DRAIN, &(td__texts){0});
}

static void say_over(elastic *e)
{
    const td__ms_content *c = &e->ms.decided.content;
    if (!c->over || e->over_said || td__workers_running(e->workers))
        return;
    td__texts t = {0};
    td__texts_add(&t, "%d", c->status);
    td__texts_add(&t, "%s", c->cause);
    tell(e, TD_MSG_OVER, &t);
    td__texts_fini(&t);
    e->over_said = true;
}

static td_status make_ready(elastic *e)
{
    td__msg m;
    char parent[256] = "";
    TD_TRY(td__channel_await(&e->s->up, TD_MSG_PARENT, &m));
    if (m.nbytes >= sizeof parent)
        return TD_FAIL(TD_EPROTO, "the address of the first agent is too long");
    memcpy(parent, m.data, m.nbytes);
    TD_TRY(td__agent_spec_offer(e->s, parent));
    TD_TRY(td__peers_create(e->s, &PEERS_OPS, e, &e->peers));
    TD_TRY(td__workers_create(e->s, e->lost, &e->workers));
    size_t n =
        (size_t)td__peers_most_fds(e->peers) + (size_t)td__workers_most_fds(e->workers) + FDS;
    e->fds = td__calloc(n, sizeof *e->fds);
    if (!e->fds)
        return TD_FAIL(TD_ENOMEM, "no memory to watch processes");
    const char *address = td__peers_address(e->peers);
    TD_TRY(td__channel_send(&e->s->up, TD_MSG_READY, -1, address, strlen(address) + 1));
    TD_TRY(td__channel_await(&e->s->up, TD_MSG_GO, &m));
    size_t at = 0;
    for (const char *t; (t = td__texts_next(m.data, m.nbytes, &at));) {
        char *end;
        long agent = strtol(t, &end, 10);
        if (*end != ' ' || agent < 0 || agent >= TD_MS_AGENTS)
            return TD_FAIL(TD_EPROTO, "the launcher's list of agents is not understood");
        td__peers_dial(e->peers, (int)agent, end + 1);
    }
    if (chdir(e->s->cwd))
        return TD_FAIL(TD_EINVAL, "cannot enter %s: %s", e->s->cwd, strerror(errno));
    return td__channel_queue(&e->s->up);
}

static void begin(elastic *e)
{
    const td__agent_spec *s = e->s;
    uint64_t heartbeat = (uint64_t)s->heartbeat_ms * 1000000u,
             lease = (uint64_t)s->lease_ms * 1000000u;
    td__ms_content *first = td__calloc(1, sizeof *first);
    bool late = s->index >= s->first;
    if (first) {
        first->wanted = s->most;
        td__ms_init(&e->ms,
                    &(td__ms_config){.self = s->index,
                                     .voters = late ? 0 : (uint64_t)-1 >> (64 - s->first),
                                     .heartbeat_ns = heartbeat,
                                     .silence_ns = lease,
                                     .give_up_ns = GIVE_UP * lease},
                    first, td__clock_ns());
    }
    td__free(first);
    e->place = (td__place){.min = s->min_ranks,
                           .spares = s->spares,
                           .most_crashes = s->crashes,
                           .gather_ns = GATHER_MS * 1000000ull};
}

/* ---- the loop ---- */

static int wait_ms(const elastic *e)
{
    uint64_t at = td__ms_deadline(&e->ms), w = td__workers_deadline(e->workers);
    at = w < at ? w : at;
    if (e->led && e->place.look_at < at)
        at = e->place.look_at;
    return td__deadline_left_ms(at, (int)e->s->heartbeat_ms);
}

static void report(elastic *e, uint64_t now)
{
    const td__place_report *r = td__workers_report(e->workers);
    if (r->number == e->reported && now < e->report_at)
        return;
    e->reported = r->number;
    e->report_at = now + REPORT_MS * 1000000ull;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        td__peers_send(e->peers, a, KIND_REPORT, r, td__place_report_nbytes(r));
}

static td_status go_round(elastic *e)
{
    td__channel *up = &e->s->up;
    struct pollfd *p = e->fds;
    p[0] = (struct pollfd){up->in, POLLIN, 0};
    p[1] = (struct pollfd){up->queue_used > up->queue_sent ? up->out : -1, POLLOUT, 0};
    p[2] = (struct pollfd){e->signals, POLLIN, 0};
    int n_peers = td__peers_poll(e->peers, p + FDS);
    int n_workers = td__workers_poll(e->workers, p + FDS + n_peers);
    if (poll(p, FDS + (nfds_t)n_peers + (nfds_t)n_workers, wait_ms(e)) < 0 && errno != EINTR)
        return TD_FAIL(TD_EIO, "cannot wait for processes: %s", strerror(errno));
    uint64_t now = td__clock_ns();
    if (p[0].revents)
        TD_TRY(hear_launcher(e, now));
    if (p[1].revents && td__channel_flush(up))
        *e->lost = true;
    if (p[2].revents)
        hear_signal(e);
    td__peers_serve(e->peers, p + FDS);
    td__workers_serve(e->workers, p + FDS + n_peers, now);
    now = td__clock_ns();
    td__ms_tick(&e->ms, now, &MS_OPS, e);
    if (!e->stopping && !e->out)
        TD_TRY(lead(e, now));
    td__workers_tick(e->workers, now);
    report(e, now);
    if (now >= e->status_at)
        say_status(e, now);
    say_over(e);
    return TD_OK;
}

static td_status run(elastic *e)
{
    begin(e);
    TD_TRY(obey_launcher(e, td__clock_ns())); /* what came together with GO */
    for (;;) {
        bool idle = !td__workers_running(e->workers);
        if (e->drained && idle && !td__workers_report(e->workers)->slots) /* the others have it */
            return TD_OK;
        if (*e->lost || (idle && (e->out || e->stopping || e->ending)))
            return TD_OK;
        TD_TRY(go_round(e));
    }
}

/* The last words: for a launcher that is slow to read, not for one that does not. */
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

td_status td__agent_elastic(td__agent_spec *s, bool *lost)
{
    elastic *e = td__calloc(1, sizeof *e);
    td_status st = TD_OK;
    if (!e)
        return TD_FAIL(TD_ENOMEM, "no memory for an agent");
    e->s = s;
    e->lost = lost;
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    e->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    TD_TRY_OR(st, done, make_ready(e));
    TD_TRY_OR(st, done, run(e));
done:
    td__workers_destroy(e->workers); /* before the others hear that we are gone */
    say_the_rest(&s->up, lost);
    td__peers_destroy(e->peers);
    td__store_server_destroy(e->store);
    if (e->signals >= 0)
        close(e->signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    for (int a = 0; a < TD_MS_AGENTS; a++)
        td__free(e->report[a]);
    td__free(e->fds);
    td__free(e);
    return st;
}
