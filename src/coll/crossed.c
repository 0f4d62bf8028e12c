/* crossed.c -- see crossed.h.
 *
 * Locks     `all` protects the list of comms; a comm's own lock is taken under it. Nothing that is
 *           called with a comm's lock, or by who brings lines, takes `all`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/crossed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm_impl.h"

enum { MAX_HOPS = 64 };
#define SEVERAL UINTPTR_MAX /* threads have made calls: nobody knows who makes the next one */

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static td_comm *comms;

td_status td__crossed_begin(td_comm *c)
{
    td__crossed *x = &c->crossed;
    x->n_messages = td__calloc((size_t)c->size, 2 * sizeof *x->n_messages);
    if (!x->n_messages)
        return TD_FAIL(TD_ENOMEM, "a communicator of %d ranks", c->size);
    pthread_mutex_lock(&all);
    x->next = comms;
    comms = c;
    pthread_mutex_unlock(&all);
    return TD_OK;
}

void td__crossed_end(td_comm *c)
{
    pthread_mutex_lock(&all);
    for (td_comm **p = &comms; *p; p = &(*p)->crossed.next)
        if (*p == c) {
            *p = c->crossed.next;
            break;
        }
    pthread_mutex_unlock(&all);
    td__free((void *)c->crossed.n_messages);
    c->crossed.n_messages = NULL;
}

void td__crossed_enter(td_comm *c, bool message, int slot, uint64_t sequence)
{
    td__crossed *x = &c->crossed;
    uintptr_t self = (uintptr_t)pthread_self();
    uintptr_t was = atomic_load_explicit(&x->thread, memory_order_relaxed);
    if (was != self)
        atomic_store_explicit(&x->thread, was ? SEVERAL : self, memory_order_relaxed);
    atomic_store_explicit(message ? &x->n_messages[slot] : &x->n_collectives, sequence,
                          memory_order_release);
}

void td__crossed_told(td_comm *c, int from, const char *line)
{
    td__crossed *x = &c->crossed;
    pthread_mutex_lock(&c->lock);
    if (x->n_probes - x->n_taken >= TD_CROSSED_PROBES)
        x->n_taken++;
    unsigned at = x->n_probes++ % TD_CROSSED_PROBES;
    x->probes[at].from = from;
    snprintf(x->probes[at].line, sizeof x->probes[at].line, "%s", line);
    pthread_mutex_unlock(&c->lock);
}

/* ---- one probe ---- */

typedef struct probe {
    int from;
    uint64_t token, sequence;
    unsigned hops;
    char kind; /* 's' the sender sends, 'r' receives, 'c' is in a collective */
    bool to_me;
    char text[TD_CROSSED_LINE];
} probe;

static bool take(td_comm *c, char *line, int *from)
{
    td__crossed *x = &c->crossed;
    pthread_mutex_lock(&c->lock);
    bool found = x->n_taken != x->n_probes;
    if (found) {
        unsigned at = x->n_taken++ % TD_CROSSED_PROBES;
        *from = x->probes[at].from;
        memcpy(line, x->probes[at].line, TD_CROSSED_LINE);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

static bool parse(const td_comm *c, const char *line, int from, probe *p)
{
    int used = 0;
    *p = (probe){.from = from};
    if (from < 0 || from >= c->size || from == c->rank ||
        sscanf(line, "%" SCNx64 " %u %c %" SCNu64 " %n", &p->token, &p->hops, &p->kind,
               &p->sequence, &used) != 4 ||
        !used)
        return false;
    char *end = NULL;
    const char *s = line + used;
    for (;; s = end + 1) {
        long rank = strtol(s, &end, 10);
        if (end == s)
            return false;
        p->to_me |= rank == c->rank;
        if (*end != ',')
            break;
    }
    snprintf(p->text, sizeof p->text, "%s", *end == ' ' ? end + 1 : end);
    return true;
}

/* Has this rank not begun its side of what the sender waits for? */
static bool holds_up(const td_comm *c, const probe *p)
{
    const td__crossed *x = &c->crossed;
    const _Atomic uint64_t *begun = p->kind == 'r'   ? &x->n_messages[2 * p->from]
                                    : p->kind == 's' ? &x->n_messages[2 * p->from + 1]
                                                     : &x->n_collectives;
    return atomic_load_explicit(begun, memory_order_acquire) < p->sequence;
}

/* "rank 1 is in recv #1 (4 f32 from rank 0)", with the group's name behind the rank's. */
static char *own_text(const td_comm *c, const td__comm_activity *a, char *buf, size_t nbytes)
{
    char call[160];
    bool world = !strcmp(c->name, "world");
    snprintf(buf, nbytes, "rank %d%s%s is in %s", c->rank, world ? "" : " of ",
             world ? "" : c->name, td__comm_activity_text(a, call, sizeof call));
    return buf;
}

/* Told to those that this rank waits for: the circle so far, and this rank. */
static void pass_on(td_comm *c, uint64_t token, unsigned hops, const char *before)
{
    td__comm_activity a;
    char line[TD_CROSSED_LINE + 8], own[240];
    td__comm_activity_get(c, &a);
    if (!a.in_call || !a.n_waiting || !c->hooks.tell)
        return;
    char kind = a.kind == TD_COLL_SEND ? 's' : a.kind == TD_COLL_RECV ? 'r' : 'c';
    int n = snprintf(line, sizeof line, "probe %" PRIx64 " %u %c %" PRIu64 " ", token, hops, kind,
                     a.sequence);
    for (int i = 0; i < a.n_waiting && i < TD_COMM_WAITING; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", i ? "," : "", a.waiting[i]);
    snprintf(line + n, sizeof line - (size_t)n, " %s%s%s", before, *before ? ", " : "",
             own_text(c, &a, own, sizeof own));
    c->hooks.tell(c->hooks.user, line);
}

/* ---- the thread that waits ---- */

static bool is_new(td__crossed *x, uint64_t token)
{
    for (int i = 0; i < TD_CROSSED_SEEN; i++)
        if (x->seen[i] == token)
            return false;
    x->seen[x->n_seen++ % TD_CROSSED_SEEN] = token;
    return true;
}

/* This rank waits in `c`, and has got a probe in `in`, which may be the same. */
static void answer(td_comm *c, const td__crossed_wait *w, td_comm *in, const probe *p)
{
    char text[TD_CROSSED_LINE];
    if (!p->to_me || !holds_up(in, p))
        return;
    if (w->token && p->token >> 8 == w->token >> 8) {
        if (p->hops < 2) /* a comm of this process whose thread has not come yet */
            return;
        snprintf(text, sizeof text, "ranks wait for each other: %.380s", p->text);
        td__comm_poison_all(c, TD_EDEADLOCK, text);
        if (in != c)
            td__comm_poison_all(in, TD_EDEADLOCK, text);
        return;
    }
    if (p->hops < MAX_HOPS && is_new(&c->crossed, p->token))
        pass_on(c, p->token, p->hops + 1, p->text);
}

static void answer_all(td_comm *c, const td__crossed_wait *w)
{
    uintptr_t self = (uintptr_t)pthread_self();
    char line[TD_CROSSED_LINE];
    probe p;
    int from;
    pthread_mutex_lock(&all);
    for (td_comm *in = comms; in; in = in->crossed.next) {
        if (in != c && atomic_load_explicit(&in->crossed.thread, memory_order_relaxed) != self)
            continue;
        while (take(in, line, &from))
            if (parse(in, line, from, &p))
                answer(c, w, in, &p);
    }
    pthread_mutex_unlock(&all);
}

void td__crossed_look(td_comm *c, td__crossed_wait *w, uint64_t now_ns)
{
    uint64_t stall_ns = (uint64_t)c->stall_ms * 1000000u;
    if (now_ns - w->since_ns < stall_ns)
        return;
    answer_all(c, w);
    if (!w->token) {
        uint64_t h = ((uint64_t)getpid() << 40) ^ (uintptr_t)c;
        w->token = ((h ^ w->since_ns) * 0x9e3779b97f4a7c15u) << 8 | 1;
        w->next_ns = w->since_ns + 2 * stall_ns;
    }
    if (now_ns < w->next_ns)
        return;
    w->next_ns = now_ns + stall_ns;
    w->token = (w->token & ~UINT64_C(0xff)) | ((w->token + 1) & 0xff);
    pass_on(c, w->token, 1, "");
}
