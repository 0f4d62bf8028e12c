/* membership.c -- see membership.h, and docs/membership.md for why it is right. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/membership.h"

#include <stdio.h>
#include <string.h>

static uint64_t bit(int agent)
{
    return (uint64_t)1 << agent;
}

static int count(uint64_t set)
{
    return __builtin_popcountll(set);
}

static uint64_t lowest(uint64_t set)
{
    return set & (~set + 1);
}

size_t td__ms_msg_nbytes(const td__ms_msg *m)
{
    if (m->kind != TD_MS_PROMISE && m->kind != TD_MS_STATE)
        return offsetof(td__ms_msg, state);
    return offsetof(td__ms_msg, state) + offsetof(td__ms_state, content) +
           offsetof(td__ms_content, member) +
           m->state.content.n_members * sizeof m->state.content.member[0];
}

bool td__ms_msg_good(const td__ms_msg *m, size_t nbytes)
{
    const td__ms_content *c = &m->state.content;
    const size_t least = offsetof(td__ms_msg, state) + offsetof(td__ms_state, content) +
                         offsetof(td__ms_content, member);
    if (nbytes < offsetof(td__ms_msg, state) || m->kind >= TD_MS_KIND_COUNT)
        return false;
    if (m->kind != TD_MS_PROMISE && m->kind != TD_MS_STATE)
        return nbytes == offsetof(td__ms_msg, state);
    if (nbytes < least || c->n_members > TD_MS_MEMBERS || nbytes != td__ms_msg_nbytes(m))
        return false;
    for (uint32_t i = 0; i < c->n_members; i++)
        if (td__ms_proc_agent(c->member[i]) >= TD_MS_AGENTS)
            return false;
    return memchr(c->store, 0, sizeof c->store) && memchr(c->why, 0, sizeof c->why) &&
           memchr(c->cause, 0, sizeof c->cause);
}

bool td__ms_quorum(uint64_t voters, uint64_t some, uint64_t dead)
{
    uint64_t in = voters & some;
    int twice = 2 * count(in), n = count(voters);
    if (!in)
        return false;
    return twice > n || (twice == n && (in & lowest(voters))) || !(voters & ~dead & ~some);
}

void td__ms_init(td__ms *m, const td__ms_config *c, const td__ms_content *first, uint64_t now)
{
    *m = (td__ms){.c = *c, .leader = -1};
    m->accepted.voters = m->accepted.before = m->accepted.known = c->voters;
    m->accepted.content = *first;
    m->decided = m->accepted;
    m->led_ns = now;
    m->heartbeat_at = now;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        m->heard_ns[a] = now;
}

static bool is_silent(const td__ms *m, int agent, uint64_t now)
{
    return agent != m->c.self && now > m->heard_ns[agent] + m->c.silence_ns;
}

static uint64_t alive_of(const td__ms *m, uint64_t set, uint64_t now)
{
    uint64_t alive = 0;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        if ((set & ~m->dead & bit(a)) && !is_silent(m, a, now))
            alive |= bit(a);
    return alive;
}

uint64_t td__ms_alive(const td__ms *m, uint64_t now)
{
    return alive_of(m, m->accepted.voters, now);
}

uint64_t td__ms_deadline(const td__ms *m)
{
    return m->heartbeat_at;
}

/* ---- saying ---- */

static td__ms_msg message(const td__ms *m, td__ms_kind kind)
{
    return (td__ms_msg){.kind = kind,
                        .leading = m->leading,
                        .term = m->term,
                        .position = m->accepted.position,
                        .accepted_term = m->accepted.term,
                        .decided = m->decided.position};
}

static void say(const td__ms *m, td__ms_kind kind, int to, const td__ms_ops *ops, void *user)
{
    td__ms_msg msg = message(m, kind);
    if (kind == TD_MS_PROMISE || kind == TD_MS_STATE)
        msg.state = m->accepted;
    ops->send(user, to, &msg);
}

static void say_all(const td__ms *m, td__ms_kind kind, uint64_t to, const td__ms_ops *ops,
                    void *user)
{
    for (int a = 0; a < TD_MS_AGENTS; a++)
        if ((to & ~m->dead & bit(a)) && a != m->c.self)
            say(m, kind, a, ops, user);
}

static void stop(td__ms *m, const char *why, const td__ms_ops *ops, void *user)
{
    if (m->stopped)
        return;
    m->stopped = true;
    m->leading = m->asking = false;
    ops->stop(user, why);
}

/* ---- deciding ---- */

static void decide(td__ms *m, const td__ms_ops *ops, void *user)
{
    m->decided = m->accepted;
    ops->decided(user, &m->decided);
    if (!(m->decided.voters & bit(m->c.self)))
        stop(m, "the other hosts have removed it and continue", ops, user);
}

static bool is_open(const td__ms *m)
{
    return m->decided.position != m->accepted.position || m->decided.term != m->accepted.term;
}

static void count_acks(td__ms *m, const td__ms_ops *ops, void *user)
{
    if (!m->leading || !is_open(m) || !td__ms_quorum(m->accepted.before, m->acks, m->dead) ||
        !td__ms_quorum(m->accepted.voters, m->acks, m->dead))
        return;
    uint64_t all = m->accepted.voters | m->accepted.before;
    decide(m, ops, user);
    if (!m->stopped)
        say_all(m, TD_MS_HEARTBEAT, all, ops, user);
}

/* Everybody is asked to accept m->accepted, in our term. */
static void put_forward(td__ms *m, const td__ms_ops *ops, void *user)
{
    m->acks = bit(m->c.self);
    say_all(m, TD_MS_STATE, m->accepted.voters | m->accepted.before, ops, user);
    count_acks(m, ops, user);
}

bool td__ms_may_propose(const td__ms *m)
{
    return m->leading && !is_open(m);
}

void td__ms_propose(td__ms *m, uint64_t now, uint64_t voters, const td__ms_content *content,
                    const td__ms_ops *ops, void *user)
{
    if (!td__ms_may_propose(m))
        return;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        if (voters & ~m->accepted.known & bit(a))
            m->heard_ns[a] = now;
    m->accepted.position++;
    m->accepted.before = m->accepted.voters;
    m->accepted.voters = voters;
    m->accepted.known |= voters;
    m->accepted.content = *content;
    put_forward(m, ops, user);
}

/* ---- leading ---- */

static bool is_newer(const td__ms_state *a, const td__ms_state *b)
{
    return a->position != b->position ? a->position > b->position : a->term > b->term;
}

/* Enough promises: whatever may have been decided at this position is the newest of theirs, and is
 * put forward again before anything else. */
static void count_votes(td__ms *m, const td__ms_ops *ops, void *user)
{
    if (!m->asking || !td__ms_quorum(m->best.before, m->votes, m->dead) ||
        !td__ms_quorum(m->best.voters, m->votes, m->dead))
        return;
    m->asking = false;
    m->leading = true;
    m->leader = m->c.self;
    m->accepted = m->best;
    m->accepted.term = m->term;
    put_forward(m, ops, user);
}

static void ask(td__ms *m, uint64_t now, const td__ms_ops *ops, void *user)
{
    m->term = (m->term / TD_MS_AGENTS + 1) * TD_MS_AGENTS + (uint64_t)m->c.self;
    m->leader = -1;
    m->leading = false;
    m->asking = true;
    m->asked_ns = now;
    m->votes = bit(m->c.self);
    m->best = m->accepted;
    say_all(m, TD_MS_ASK, m->accepted.voters | m->accepted.before, ops, user);
    count_votes(m, ops, user);
}

static void follow(td__ms *m, uint64_t term, int leader)
{
    if (term > m->term || leader >= 0)
        m->leading = m->asking = false;
    if (term > m->term)
        m->leader = -1;
    m->term = term;
    if (leader >= 0)
        m->leader = leader;
}

/* Is there a leader, as far as this agent knows? Then it does not ask. */
static bool has_leader(const td__ms *m, uint64_t now)
{
    if (m->leading)
        return td__ms_quorum(m->accepted.voters, alive_of(m, m->accepted.voters, now), m->dead);
    return m->leader >= 0 && !(m->dead & bit(m->leader)) && !is_silent(m, m->leader, now);
}

/* ---- hearing ---- */

static void hear_heartbeat(td__ms *m, int from, const td__ms_msg *msg, const td__ms_ops *ops,
                           void *user)
{
    if (msg->leading && msg->term >= m->term)
        follow(m, msg->term, from);
    else if (msg->term > m->term)
        follow(m, msg->term, -1);
    if (msg->leading && msg->term == m->accepted.term && msg->decided >= m->accepted.position &&
        is_open(m))
        decide(m, ops, user);
    if (!m->leading || !((m->accepted.voters | m->accepted.before) & bit(from)))
        return;
    if (msg->position != m->accepted.position || msg->accepted_term != m->accepted.term) {
        say(m, TD_MS_STATE, from, ops, user);
    } else { /* as good as an ACK, which may be lost */
        m->acks |= bit(from);
        count_acks(m, ops, user);
    }
}

static void hear_ask(td__ms *m, uint64_t now, int from, const td__ms_msg *msg,
                     const td__ms_ops *ops, void *user)
{
    if (msg->term <= m->term) {
        say(m, TD_MS_HEARTBEAT, from, ops, user);
        return;
    }
    if (m->leader != from && has_leader(m, now))
        return;
    follow(m, msg->term, -1);
    m->asked_ns = now; /* let it try first */
    say(m, TD_MS_PROMISE, from, ops, user);
}

/* Also from who was asked to accept something older than what it has. */
static void hear_promise(td__ms *m, int from, const td__ms_msg *msg, const td__ms_ops *ops,
                         void *user)
{
    if (msg->term != m->term || !(m->leading || m->asking))
        return;
    m->votes |= bit(from);
    if (m->leading && is_newer(&msg->state, &m->accepted)) {
        m->leading = false;
        m->asking = true;
        m->best = msg->state;
    } else if (m->asking && is_newer(&msg->state, &m->best)) {
        m->best = msg->state;
    }
    count_votes(m, ops, user);
}

static void hear_state(td__ms *m, int from, const td__ms_msg *msg, const td__ms_ops *ops,
                       void *user)
{
    if (msg->term < m->term) {
        say(m, TD_MS_HEARTBEAT, from, ops, user);
        return;
    }
    follow(m, msg->term, from);
    if (msg->state.position < m->accepted.position) {
        say(m, TD_MS_PROMISE, from, ops, user);
        return;
    }
    if (is_newer(&msg->state, &m->accepted))
        m->accepted = msg->state;
    say(m, TD_MS_ACK, from, ops, user);
    if (msg->decided >= m->accepted.position && is_open(m))
        decide(m, ops, user);
}

void td__ms_hear(td__ms *m, uint64_t now, int from, const td__ms_msg *msg, const td__ms_ops *ops,
                 void *user)
{
    if (m->stopped || (m->dead & bit(from)))
        return;
    if (m->decided.known & ~m->decided.voters & bit(from)) {
        if (msg->kind != TD_MS_OUT)
            say(m, TD_MS_OUT, from, ops, user);
        return;
    }
    m->heard_ns[from] = now;
    switch ((td__ms_kind)msg->kind) {
    case TD_MS_HEARTBEAT: hear_heartbeat(m, from, msg, ops, user); break;
    case TD_MS_ASK: hear_ask(m, now, from, msg, ops, user); break;
    case TD_MS_PROMISE: hear_promise(m, from, msg, ops, user); break;
    case TD_MS_STATE: hear_state(m, from, msg, ops, user); break;
    case TD_MS_ACK:
        if (m->leading && msg->term == m->term && msg->position == m->accepted.position) {
            m->acks |= bit(from);
            count_acks(m, ops, user);
        }
        break;
    case TD_MS_OUT: stop(m, "the other hosts have removed it and continue", ops, user); break;
    case TD_MS_KIND_COUNT: break;
    }
}

/* ---- time ---- */

void td__ms_peer(td__ms *m, uint64_t now, int agent)
{
    m->peers |= bit(agent);
    m->heard_ns[agent] = now;
}

/* No leader: the lowest that we hear of should ask; if it does not, it hears less than we do. */
static void look_for_leader(td__ms *m, uint64_t now, const td__ms_ops *ops, void *user)
{
    uint64_t voters = m->accepted.voters, alive = alive_of(m, voters, now);
    if (m->leading || !(voters & bit(m->c.self)) || has_leader(m, now))
        return;
    uint64_t turn = (uint64_t)count(alive & (bit(m->c.self) - 1)) * 2 * m->c.silence_ns;
    if (now >= m->led_ns + turn && now >= m->asked_ns + 2 * m->c.heartbeat_ns &&
        td__ms_quorum(voters, alive, m->dead))
        ask(m, now, ops, user);
}

void td__ms_lost(td__ms *m, uint64_t now, int agent, const td__ms_ops *ops, void *user)
{
    if (m->stopped || (m->dead & bit(agent)))
        return;
    m->dead |= bit(agent);
    if (agent == m->leader)
        m->asked_ns = 0;
    count_votes(m, ops, user);
    count_acks(m, ops, user);
    look_for_leader(m, now, ops, user);
}

void td__ms_tick(td__ms *m, uint64_t now, const td__ms_ops *ops, void *user)
{
    if (m->stopped)
        return;
    if (now >= m->heartbeat_at) {
        m->heartbeat_at = now + m->c.heartbeat_ns;
        say_all(m, TD_MS_HEARTBEAT, (m->accepted.voters | m->accepted.before | m->peers), ops,
                user);
    }
    if (has_leader(m, now))
        m->led_ns = now;
    look_for_leader(m, now, ops, user);
    if (!m->stopped && (m->accepted.voters & bit(m->c.self)) && now > m->led_ns + m->c.give_up_ns)
        stop(m, "it has lost contact with a majority of the hosts, which may continue without it",
             ops, user);
}
