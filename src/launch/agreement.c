/* agreement.c -- how the agents of an elastic job agree on its generations: their connections
 * (peers.h), the state machine (membership.h), and what the leader wants next (placement.h).
 *
 * The launcher hears of each generation. The leader hosts the store in which the ranks of its
 * generations meet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/decider.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "launch/membership.h"
#include "launch/peers.h"
#include "launch/placement.h"
#include "net/store.h"

enum {
    KIND_MEMBERSHIP = 1,
    KIND_REPORT = 2,
    GATHER_MS = 10000,
    GIVE_UP = 10, /* leases without a leader */
    REPORT_MS = 1000
};

typedef struct agreement {
    td__decider base;
    td__agent_spec *s;
    bool *lost;
    td__ms ms;
    td__peers *peers;
    td__workers *workers;
    td__store_server *store; /* once this agent has led */
    td__place place;
    td__place_report *report[TD_MS_AGENTS]; /* of the others */
    uint64_t reported;                      /* number of the last own report that was sent */
    uint64_t report_at;
    uint64_t said; /* generation that the launcher was told of */
    bool led;
    bool expelled; /* the other agents went on without this one: its processes are killed */
    bool over_said;
} agreement;

static uint64_t bit(int agent)
{
    return (uint64_t)1 << agent;
}

static void tell(agreement *g, td__msg_kind kind, const td__texts *t)
{
    if (t->failed) /* half a message would be obeyed */
        return;
    if (!*g->lost && td__channel_send(&g->s->up, kind, -1, t->data, t->used))
        *g->lost = true;
}

/* ---- what the state machine wants ---- */

static void send_message(void *user, int to, const td__ms_msg *m)
{
    agreement *g = user;
    td__peers_send(g->peers, to, KIND_MEMBERSHIP, m, td__ms_msg_nbytes(m));
}

static void decided(void *user, const td__ms_state *s)
{
    agreement *g = user;
    const td__ms_content *c = &s->content;
    td__workers_apply(g->workers, s);
    if (c->generation > g->said) {
        /* First, so that who hears of a generation knows its ranks. */
        td__workers_say_status(g->workers, g->led, true, td__clock_ns());
        td__texts t = {0};
        td__texts_add(&t, "%" PRIu64, c->generation);
        td__texts_add(&t, "%u", c->n_members);
        td__texts_add(&t, "%s", c->why);
        tell(g, TD_MSG_GENERATION, &t);
        td__texts_fini(&t);
        g->said = c->generation;
    }
}

static void must_stop(void *user, const char *why)
{
    agreement *g = user;
    td__texts t = {0};
    td__texts_add(&t, "host %s leaves the job: %s", td__agent_spec_host(g->s)->name, why);
    tell(g, TD_MSG_LEAVES, &t);
    td__texts_fini(&t);
    g->expelled = true;
    td__workers_kill(g->workers);
}

static const td__ms_ops MS_OPS = {.send = send_message, .decided = decided, .stop = must_stop};

/* ---- the other agents ---- */

static void send_report(agreement *g, int to)
{
    const td__place_report *r = td__workers_report(g->workers);
    td__peers_send(g->peers, to, KIND_REPORT, r, td__place_report_nbytes(r));
}

static void met(void *user, int agent)
{
    agreement *g = user;
    td__ms_peer(&g->ms, td__clock_ns(), agent);
    send_report(g, agent);
}

static void hear_report(agreement *g, int from, const void *data, size_t nbytes)
{
    td__place_report *r = g->report[from];
    if (!r)
        r = g->report[from] = td__calloc(1, sizeof *r);
    if (!r || nbytes > sizeof *r)
        return;
    td__place_report *copy = td__malloc(sizeof *copy);
    if (copy) {
        memset(copy, 0, sizeof *copy);
        memcpy(copy, data, nbytes);
        if (td__place_report_good(copy, nbytes) && copy->number > r->number)
            *r = *copy;
        td__workers_order(g->workers, r->order, r->wanted);
    }
    td__free(copy);
}

static void heard(void *user, int from, uint8_t kind, const void *data, size_t nbytes)
{
    agreement *g = user;
    td__ms_msg m = {0};
    if (kind == KIND_REPORT) {
        hear_report(g, from, data, nbytes);
    } else if (kind == KIND_MEMBERSHIP && nbytes <= sizeof m) {
        memcpy(&m, data, nbytes);
        if (td__ms_msg_good(&m, nbytes))
            td__ms_hear(&g->ms, td__clock_ns(), from, &m, &MS_OPS, g);
    }
}

static void ended(void *user, int agent, bool reset)
{
    agreement *g = user;
    uint64_t now = td__clock_ns();
    /* A connection that breaks after a silence may have been given up by our own kernel. */
    if (reset && now > g->ms.heard_ns[agent] + g->ms.c.silence_ns)
        return;
    td__ms_lost(&g->ms, now, agent, &MS_OPS, g);
}

static const td__peers_ops PEERS_OPS = {.met = met, .heard = heard, .ended = ended};

/* ---- leading ---- */

static td_status host_store(agreement *g)
{
    char listen[80];
    if (g->store)
        return TD_OK;
    snprintf(listen, sizeof listen, "%s:0", g->s->address);
    return td__store_server_create(
        &g->s->secret, &(td__store_opts){.listen = listen, .tls_dir = td__agent_spec_tls(g->s)},
        &g->store);
}

static td_status lead(agreement *g, uint64_t now)
{
    if (!g->ms.leading) {
        g->led = false;
        return TD_OK;
    }
    if (!g->led) {
        TD_TRY(host_store(g));
        g->place.store = td__store_server_address(g->store);
        g->place.since_ns = now;
        g->led = true;
    }
    /* Once more when it is decided at once, as with one agent. */
    while (td__ms_may_propose(&g->ms)) {
        uint64_t voters, alive = td__ms_alive(&g->ms, now);
        td__ms_content *next = td__malloc(sizeof *next);
        if (!next)
            return TD_FAIL(TD_ENOMEM, "no memory for a generation");
        g->place.alive = alive;
        g->place.dead = g->ms.dead;
        for (int a = 0; a < TD_MS_AGENTS; a++) {
            bool is_new = (g->ms.peers & ~g->ms.accepted.known & ~g->ms.dead & bit(a)) != 0;
            if (is_new && g->report[a])
                g->place.alive |= bit(a);
            g->place.report[a] = a == g->s->index ? td__workers_report(g->workers) : g->report[a];
        }
        bool propose = td__place_next(&g->place, &g->ms.accepted, now, &voters, next) &&
                       td__ms_quorum(g->ms.accepted.voters, alive, g->ms.dead);
        if (propose)
            td__ms_propose(&g->ms, now, voters, next, &MS_OPS, g);
        td__free(next);
        if (!propose)
            break;
    }
    return TD_OK;
}

/* ---- beginning and end ---- */

static void destroy(td__decider *d)
{
    agreement *g = (agreement *)d;
    td__peers_destroy(g->peers);
    td__store_server_destroy(g->store);
    for (int a = 0; a < TD_MS_AGENTS; a++)
        td__free(g->report[a]);
    td__free(g);
}

/* m: "NUMBER ADDRESS" of each agent to connect to. */
static td_status begin(td__decider *d, const td__msg *m)
{
    agreement *g = (agreement *)d;
    const td__agent_spec *s = g->s;
    bool late = s->index >= (int)s->n_first;
    size_t at = 0;
    for (const char *t; (t = td__texts_next(m->data, m->nbytes, &at));) {
        char *end;
        long agent = strtol(t, &end, 10);
        if (*end != ' ' || agent < 0 || agent >= TD_MS_AGENTS)
            return TD_FAIL(TD_EPROTO, "malformed list of agents from the launcher");
        td__peers_dial(g->peers, (int)agent, end + 1);
    }
    td__ms_content *first = td__calloc(1, sizeof *first);
    if (!first)
        return TD_FAIL(TD_ENOMEM, "no memory for the first generation");
    first->wanted = s->most;
    td__ms_init(&g->ms,
                &(td__ms_config){.self = s->index,
                                 .voters = late ? 0 : (uint64_t)-1 >> (64 - s->n_first),
                                 .heartbeat_ns = (uint64_t)s->heartbeat_ms * 1000000u,
                                 .silence_ns = (uint64_t)s->lease_ms * 1000000u,
                                 .give_up_ns = GIVE_UP * (uint64_t)s->lease_ms * 1000000u},
                first, td__clock_ns());
    td__free(first);
    g->place = (td__place){.min = s->min_ranks,
                           .spares = s->spares,
                           .most_crashes = s->crashes,
                           .gather_ns = GATHER_MS * 1000000ull};
    return TD_OK;
}

/* ---- the agent's loop ---- */

static int most_fds(const td__decider *d)
{
    return td__peers_most_fds(((const agreement *)d)->peers);
}

static int poll_peers(td__decider *d, struct pollfd *p)
{
    return td__peers_poll(((agreement *)d)->peers, p);
}

static void serve(td__decider *d, const struct pollfd *p)
{
    td__peers_serve(((agreement *)d)->peers, p);
}

static td_status tick(td__decider *d, uint64_t now, bool may_lead)
{
    agreement *g = (agreement *)d;
    td__ms_tick(&g->ms, now, &MS_OPS, g);
    return may_lead && !g->expelled ? lead(g, now) : TD_OK;
}

/* Tell the others of the processes of this host, if that has changed. */
static void report(agreement *g, uint64_t now)
{
    const td__place_report *r = td__workers_report(g->workers);
    if (r->number == g->reported && now < g->report_at)
        return;
    g->reported = r->number;
    g->report_at = now + REPORT_MS * 1000000ull;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        td__peers_send(g->peers, a, KIND_REPORT, r, td__place_report_nbytes(r));
}

static void say(td__decider *d, uint64_t now)
{
    agreement *g = (agreement *)d;
    const td__ms_content *c = &g->ms.decided.content;
    report(g, now);
    if (!c->over || g->over_said || td__workers_running(g->workers))
        return;
    td__texts t = {0};
    td__texts_add(&t, "%d", c->status);
    td__texts_add(&t, "%s", c->cause);
    tell(g, TD_MSG_OVER, &t);
    g->over_said = !t.failed; /* else again at the next look */
    td__texts_fini(&t);
}

static uint64_t deadline(const td__decider *d)
{
    const agreement *g = (const agreement *)d;
    uint64_t at = td__ms_deadline(&g->ms);
    at = g->led && g->place.look_at < at ? g->place.look_at : at;
    uint64_t heartbeat = td__deadline_in_ms(g->s->heartbeat_ms);
    return heartbeat < at ? heartbeat : at;
}

static bool leads(const td__decider *d)
{
    return ((const agreement *)d)->led;
}

static bool needed(const td__decider *d, bool ordered, bool drained)
{
    const agreement *g = (const agreement *)d;
    /* Of one that was asked to go: once the others have its processes. */
    return !ordered && !g->expelled && !(drained && !td__workers_report(g->workers)->slots);
}

static const td__decider_ops OPS = {.begin = begin,
                                    .most_fds = most_fds,
                                    .poll = poll_peers,
                                    .serve = serve,
                                    .tick = tick,
                                    .say = say,
                                    .deadline = deadline,
                                    .leads = leads,
                                    .needed = needed,
                                    .destroy = destroy};

/* Listens at once; has no parent. */
td_status td__agreement_create(td__agent_spec *s, td__workers *w, bool *lost, const char *parent,
                               td__texts *ready, td__decider **out)
{
    (void)parent;
    agreement *g = td__calloc(1, sizeof *g);
    if (!g)
        return TD_FAIL(TD_ENOMEM, "no memory for the agreement of agents");
    *out = &g->base;
    g->base.ops = &OPS;
    g->s = s;
    g->workers = w;
    g->lost = lost;
    TD_TRY(td__peers_create(s, &PEERS_OPS, g, &g->peers));
    td__texts_add(ready, "%s", td__peers_address(g->peers));
    return TD_OK;
}
