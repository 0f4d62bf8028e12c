/* workers_watch.c -- is a process still there, and does it go forward? Leases, those that are
 * stopped, those that send heartbeats but hang, and the grace of those that were asked to end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "launch/workers_impl.h"

/* One that has missed a beat: because it is stopped? */
static void look_at_silent(td__workers *w, td__worker *k, uint64_t now)
{
    uint64_t heartbeat = td__worker_ns(w->s->heartbeat_ms),
             missed = k->heard_ns + heartbeat + heartbeat / 2;
    k->stopped = now >= missed && td__process_state((int)k->child.pid) == 'T';
    td__workers_later(w, now >= missed ? now + heartbeat : missed);
}

/* It beats, but goes no further, and it is not others that it waits for: it computes, waits for
 * samples, or is between two calls, and has not finished a batch for too long; or it has not left a
 * generation that the others have left. Who writes files is left alone: disks have a deadline of
 * their own. */
static bool is_stuck(td__workers *w, const td__worker *k, uint64_t now)
{
    const td__ctl_heartbeat *b = &k->heartbeat;
    uint64_t most = td__worker_ns(w->s->hang_ms),
             idle = (uint64_t)(b->idle * 1e9) + (now - k->heard_ns);
    bool own = b->phase == TD_PHASE_COMPUTE || b->phase == TD_PHASE_DATA ||
               (b->phase == TD_PHASE_COMM && !b->about[0]); /* and in no call */
    if (!w->s->hang_ms || w->s->hang_ms == UINT32_MAX || k->state != TD_PROC_BUSY ||
        !(k->was_in || w->plan) || k->told_end || w->stopping || w->now.over)
        return false;
    if (k->late_ns)
        td__workers_later(w, k->late_ns + most + 1);
    return (own && idle > most) ||
           (k->late_ns && now > k->late_ns + most && b->phase != TD_PHASE_DISK);
}

/* Its connections are closed one after the other, and only then is it a dead child: the others may
 * have told of a call that failed before. */
void td__workers_find_dying(td__workers *w)
{
    bool failed = false;
    for (int i = 0; i < w->max; i++)
        failed |= w->all[i].used && w->all[i].failed;
    for (int i = 0; i < w->max; i++) {
        td__worker *k = &w->all[i];
        if (k->used && !k->done && k->was_in && (failed || k->link.ended) && !k->dying)
            k->dying = td__process_ends((int)k->child.pid);
    }
}

static void put_down(td__worker *k, uint64_t now)
{
    td__worker_kill(k, SIGKILL);
    k->killed_ns = k->killed_ns ? k->killed_ns : now;
}

/* A killed process is not replaced before it has ended: it might still act. If the kernel does not
 * end it, the operator is told what the job waits for. */
static void look_at_killed(td__workers *w, td__worker *k, uint64_t now)
{
    uint64_t at = k->killed_ns + td__worker_ns(w->s->lease_ms);
    if (!k->killed_ns || k->lingers)
        return;
    k->lingers = now > at;
    if (k->lingers)
        td__worker_say_lingers(w, k, now);
    else
        td__workers_later(w, at + 1);
}

/* Leases, and the grace of those that were told to go. */
void td__worker_watch(td__workers *w, td__worker *k, uint64_t now)
{
    uint64_t lease = td__worker_ns(w->s->lease_ms);
    if (k->link.ended && !k->kill_at) /* has said all; a hang at the end is one too */
        k->kill_at = now + td__worker_ns(w->s->grace_ms);
    if (k->link.ended && !k->fenced) { /* a stopped one gets a lease, not the grace time */
        k->fenced = now > k->heard_ns + lease && td__process_state((int)k->child.pid) == 'T';
        k->hang = k->fenced ? TD_HANG_STOPPED : k->hang;
        if (k->fenced)
            put_down(k, now);
        td__workers_later(w, now + lease / 4);
    }
    if (td__link_up(&k->link) && !k->fenced) {
        if (now > k->heard_ns + lease) {
            k->fenced = true;
            k->hang = td__hang_class(td__process_state((int)k->child.pid), k->heartbeat.phase);
            put_down(k, now);
        } else if (is_stuck(w, k, now)) {
            k->fenced = k->stuck = true;
            k->hang = td__hang_class(td__process_state((int)k->child.pid), k->heartbeat.phase);
            put_down(k, now);
        } else {
            look_at_silent(w, k, now);
            td__workers_later(w, k->heard_ns + lease + 1);
        }
    }
    if (k->kill_at && now >= k->kill_at) {
        k->kill_at = 0;
        put_down(k, now);
    } else if (k->kill_at) {
        td__workers_later(w, k->kill_at);
    }
    look_at_killed(w, k, now);
}
