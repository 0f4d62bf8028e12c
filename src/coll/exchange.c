/* exchange.c -- transfers of a call, and waiting for them.
 *
 * The fast path reads no clock: transfers that are done at once cost nothing. Else the time from
 * here to the last arrival is put to the account of the rank that came last (td_comm_blame). After
 * WATCH_MS the peers still missing are published for the stall report, and again after each look
 * that found nothing; after the comm's stall time the side channel asks the others whether they are
 * in the same call: a disagreement in which everybody only waits (two roots of one gather) shows in
 * no message. Circles of ranks that wait for each other are found likewise (crossed.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

#include <stdio.h>

#include "coll/comm_impl.h"

enum { WATCH_MS = 20 };

td_status td__coll_send(td__coll_ctx *x, td__mesh *m, td__xfer *t, int peer, const void *data,
                        size_t nbytes)
{
    if (nbytes)
        return td__mesh_send(m, t, peer, x->tag, data, nbytes);
    *t = (td__xfer){.peer = peer, .is_send = true, .done = true};
    return TD_OK;
}

td_status td__coll_recv(td__coll_ctx *x, td__mesh *m, td__xfer *t, int peer, void *data,
                        size_t nbytes)
{
    if (nbytes)
        return td__mesh_recv(m, t, peer, x->tag, data, nbytes);
    *t = (td__xfer){.peer = peer, .done = true};
    return TD_OK;
}

int td__coll_rank_of(const td__coll_ctx *x, const td__mesh *m, int peer)
{
    if (m == x->mesh || !x->host_of)
        return peer;
    int host = m == x->local ? x->host_of[x->mesh->rank] : peer;
    int k = m == x->local ? peer : 0; /* the kth rank of that host */
    for (int r = 0; r < x->mesh->size; r++)
        if (x->host_of[r] == host && k-- == 0)
            return r;
    return 0;
}

/* The comm fails here and now: what the transfers move may be the stack or a passing block of the
 * algorithm, which is gone when it returns. */
static td_status timed_out(td__coll_ctx *x, td__mesh *m, const td__xfer *t, int n)
{
    td__comm_activity a;
    char call[160], who[160] = "";
    int used = 0, listed = 0;

    td__comm_activity_get(x->comm, &a);
    td__comm_activity_text(&a, call, sizeof call);
    for (int i = 0; i < n; i++) {
        bool known = t[i].done;
        for (int j = 0; j < i && !known; j++)
            known = !t[j].done && t[j].peer == t[i].peer;
        if (!known && listed++ < 8)
            used += snprintf(who + used, sizeof who - (size_t)used, "%s%d", listed > 1 ? ", " : "",
                             td__coll_rank_of(x, m, t[i].peer));
    }
    td_status st = TD_FAIL(
        TD_ETIMEDOUT,
        "rank %d timed out after %.1f s in %s waiting for rank%s %s%s, which is late or gone",
        x->comm->rank, 1e-9 * (double)(td__clock_ns() - a.since_ns), call, listed > 1 ? "s" : "",
        who, listed > 8 ? ", ..." : "");
    return td__comm_failed(x->comm, st);
}

/* The first transfer that is not done, receives before sends; -1 if there is none. */
static int pending(const td__xfer *t, int n)
{
    int send = -1;
    for (int i = 0; i < n; i++) {
        if (t[i].done)
            continue;
        if (!t[i].is_send)
            return i;
        send = send < 0 ? i : send;
    }
    return send;
}

td_status td__coll_wait(td__coll_ctx *x, td__mesh *m, td__xfer *t, int n)
{
    int last = pending(t, n), next;
    if (last < 0)
        return TD_OK;

    uint64_t start = td__clock_ns(), stall_ns = (uint64_t)x->comm->stall_ms * 1000000u;
    td__deadline watch = start + WATCH_MS * 1000000u, ask = start + stall_ns;
    td__crossed_wait crossed = {.since_ns = start};
    bool watched = false, moved = false;
    for (;;) {
        TD_TRY(m->ops->progress(m, watch < x->deadline ? watch : x->deadline));
        next = pending(t, n);
        if (next < 0)
            break;
        last = next;
        uint64_t now = td__clock_ns();
        if (now >= x->deadline)
            return timed_out(x, m, t, n);
        if (now < watch) {
            moved = true;
            continue;
        }
        td__comm_waiting(x->comm, m, t, n);
        if (!moved)
            td__comm_looked(x->comm);
        if (now >= ask) {
            td__comm_ask(x->comm);
            ask = now + stall_ns;
        }
        td__crossed_look(x->comm, &crossed, now);
        watch = now + td__comm_look_ns(x->comm);
        watched = true;
        moved = false;
    }
    if (watched)
        td__comm_waiting(x->comm, m, NULL, 0);
    td__comm_blame(x->comm, td__coll_rank_of(x, m, t[last].peer), td__clock_ns() - start);
    return TD_OK;
}

bool td__algo_always(const td__coll_ctx *x, const td__coll_call *c)
{
    (void)x;
    (void)c;
    return true;
}
