/* agree.c -- the side channel: one first cause for all ranks, and disagreements with both sides
 * named.
 *
 * All messages of a call carry a digest of the call as their tag, so a transport notices ranks that
 * are in different calls (or finds another size) and fails with TD_EMISMATCH; but it knows numbers
 * only. The rank that got the failure tells its call to all ("differ"); one that made another call
 * of that number, now or lately, knows both sides and poisons everybody with them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coll/comm_impl.h"

static void interrupt(const td_comm *c, td_status st, const char *text)
{
    td__mesh *const meshes[] = {c->ctx.mesh, c->ctx.local, c->ctx.hosts};

    for (int i = 0; i < 3; i++)
        if (meshes[i])
            meshes[i]->ops->interrupt(meshes[i], st, text);
}

static void poison(td_comm *c, td_status st, const char *text, bool tell)
{
    char line[TD_COMM_LINE];

    if (!td__poison_set(&c->poison, st, text))
        return;
    TD_LOG(DEBUG, COLL, "%s: rank %d: %s: %s", c->name, c->rank, td_status_name(st), text);
    /* Told first: an interrupted mesh takes its peers with it, and they should know why. */
    if (tell && c->hooks.tell) {
        snprintf(line, sizeof line, "poison %d %s", (int)st, text);
        c->hooks.tell(c->hooks.user, line);
    }
    interrupt(c, st, text);
    if (c->hooks.interrupt)
        c->hooks.interrupt(c->hooks.user, st, text);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->poisoned);
    pthread_mutex_unlock(&c->lock);
}

void td__comm_let_go(td_comm *c)
{
    td__mesh *const meshes[] = {c->ctx.mesh, c->ctx.local, c->ctx.hosts};
    td_status st = td__poison_check(&c->poison);

    interrupt(c, st, td_last_error());
    for (int i = 0; i < 3; i++)
        if (meshes[i])
            (void)meshes[i]->ops->progress(meshes[i], 0);
}

void td__comm_poison(td_comm *c, td_status st, const char *text)
{
    poison(c, st, text, false);
}

td_status td__comm_cause(td_comm *c)
{
    return td__poison_check(&c->poison);
}

void td__comm_poison_all(td_comm *c, td_status st, const char *text)
{
    poison(c, st, text, true);
}

bool td__comm_await_poison(td_comm *c, unsigned ms)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += (time_t)(ms / 1000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&c->lock);
    while (!td__poison_is_set(&c->poison) && rc == 0)
        rc = pthread_cond_timedwait(&c->poisoned, &c->lock, &until);
    pthread_mutex_unlock(&c->lock);
    return td__poison_is_set(&c->poison);
}

static void tell_call(td_comm *c, const char *verb)
{
    td__comm_activity a;
    char call[160], line[TD_COMM_LINE];

    if (!c->hooks.tell)
        return;
    td__comm_activity_get(c, &a);
    bool p2p = a.kind == TD_COLL_SEND || a.kind == TD_COLL_RECV;
    snprintf(line, sizeof line, "%s %llu %u %d %s", verb, (unsigned long long)a.sequence, a.digest,
             p2p ? a.root : -1, td__comm_activity_text(&a, call, sizeof call));
    c->hooks.tell(c->hooks.user, line);
}

void td__comm_ask(td_comm *c)
{
    tell_call(c, "ask");
}

void td__comm_differ(td_comm *c)
{
    tell_call(c, "differ");
}

static void disagree(td_comm *c, const td__comm_activity *mine, int other, const char *theirs)
{
    char own[160], text[360];
    const char *a = td__comm_activity_text(mine, own, sizeof own), *b = theirs;
    int first = c->rank, second = other;

    if (other < c->rank) {
        first = other, second = c->rank;
        b = a, a = theirs;
    }
    snprintf(text, sizeof text,
             "rank %d calls %s, rank %d calls %s: all ranks must make the same calls in the same "
             "order",
             first, a, second, b);
    td__comm_poison_all(c, TD_EMISMATCH, text);
}

static void told_call(td_comm *c, int from, const char *line, bool differ)
{
    char *end;
    uint64_t sequence = strtoull(line, &end, 10);
    uint32_t digest = (uint32_t)strtoul(end, &end, 10);
    long peer = strtol(end, &end, 10);
    const char *theirs = *end == ' ' ? end + 1 : end;
    td__comm_activity mine;

    if (peer >= 0) { /* a send or receive, of interest to the other end only */
        bool sends = strncmp(theirs, "send ", 5) == 0;
        if (!td__comm_history_p2p(c, sends ? TD_COLL_RECV : TD_COLL_SEND, from, sequence, &mine) ||
            mine.digest == digest)
            td__comm_activity_get(c, &mine);
        if (differ && peer == c->rank && mine.sequence)
            disagree(c, &mine, from, theirs);
        return;
    }
    if (td__comm_history(c, sequence, &mine)) {
        if (mine.digest != digest)
            disagree(c, &mine, from, theirs);
        return;
    }
    td__comm_activity_get(c, &mine);
    if (differ && (mine.kind == TD_COLL_SEND || mine.kind == TD_COLL_RECV) && mine.root == from &&
        mine.in_call) { /* the other may have left its end of the message behind: it knows */
        td__comm_differ(c);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->told_from = from;
    c->told_sequence = sequence;
    c->told_digest = digest;
    snprintf(c->told_text, sizeof c->told_text, "%s", theirs);
    atomic_store(&c->told, true);
    pthread_mutex_unlock(&c->lock);
}

void td__comm_compare_told(td_comm *c)
{
    td__comm_activity mine;
    char theirs[sizeof c->told_text];
    bool other = false;
    int from = 0;

    if (!atomic_load_explicit(&c->told, memory_order_acquire))
        return;
    td__comm_activity_get(c, &mine);
    if (mine.kind == TD_COLL_SEND || mine.kind == TD_COLL_RECV)
        return; /* counted by themselves: what was told is about a later call */
    pthread_mutex_lock(&c->lock);
    if (c->told_sequence <= mine.sequence) {
        other = c->told_sequence == mine.sequence && c->told_digest != mine.digest;
        from = c->told_from;
        memcpy(theirs, c->told_text, sizeof theirs);
        atomic_store(&c->told, false);
    }
    pthread_mutex_unlock(&c->lock);
    if (other)
        disagree(c, &mine, from, theirs);
}

bool td__comm_told(td_comm *c, int from, const char *line)
{
    char *end;

    if (strncmp(line, "poison ", 7) == 0) {
        td_status st = (td_status)strtol(line + 7, &end, 10);
        if (st >= TD_OK || st < TD_EDEADLOCK) /* the last of them */
            st = TD_EPROTO;
        td__comm_poison(c, st == TD_EABORTED ? TD_EPEER : st, *end == ' ' ? end + 1 : end);
        return true;
    }
    if (strncmp(line, "ask ", 4) == 0) {
        told_call(c, from, line + 4, false);
        return true;
    }
    if (strncmp(line, "differ ", 7) == 0) {
        told_call(c, from, line + 7, true);
        return true;
    }
    if (strncmp(line, "probe ", 6) == 0) {
        td__crossed_told(c, from, line + 6);
        return true;
    }
    return false;
}
