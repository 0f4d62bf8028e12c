/* shm_wait.c -- waiting in shared memory: looking, yielding, sleeping, and why a wait ends.
 *
 * When to look, yield and sleep is net/backoff.h's; shm_segment.h has the protocol of sleeping.
 *
 * Deaths are looked for while asleep, through the pidfds, every LOOK_NS; a rank that never sleeps
 * is not waiting for a dead one. A peer that left by td__mesh_destroy is an error only for those
 * who wait for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/check.h"
#include "base/fail.h"
#include "net/shm_segment.h"

#define LOOK_NS UINT64_C(20000000)

static void ring_bell(shm_rank *r)
{
    atomic_fetch_add_explicit(&r->bell, 1, memory_order_release);
    td__futex_wake(&r->bell, true);
}

void td__shm_notify(shm_mesh *m, int to)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&m->head->sleepers, __ATOMIC_RELAXED) == 0)
        return;
    int first = to < 0 ? 0 : to, last = to < 0 ? m->mesh.size - 1 : to;
    for (int r = first; r <= last; r++) {
        shm_rank *peer = &m->ranks[r];
        uint32_t waits = __atomic_load_n(&peer->waits_for, __ATOMIC_RELAXED);
        if (waits != WAITS_ANY && waits != WAITS_RANK + (uint32_t)m->mesh.rank)
            continue;
        /* Of several who come at once one pays for the call. */
        if (__atomic_compare_exchange_n(&peer->waits_for, &waits, WAITS_NONE, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ring_bell(peer);
    }
}

static void wake_all(shm_mesh *m)
{
    for (int r = 0; r < m->mesh.size; r++) {
        __atomic_store_n(&m->ranks[r].waits_for, WAITS_NONE, __ATOMIC_RELAXED);
        ring_bell(&m->ranks[r]);
    }
}

/* ---- failure ---- */

/* Here: `st` and `text`. For the others: `theirs`, and if the cause is this rank, its name. */
static void fail_everywhere(shm_mesh *m, td_status st, td_status theirs, const char *text)
{
    char named[FAIL_TEXT];
    if (st != theirs)
        snprintf(named, sizeof named, "rank %d failed: %s", m->mesh.rank, text);
    td__poison_set(&m->poison, st, text);
    td__poison_set(&m->head->poison, theirs, st != theirs ? named : text);
    wake_all(m);
}

void td__shm_interrupt(td__mesh *mesh, td_status st, const char *text)
{
    /* All sides of a disagreement are told the same; all else is, for the others, a peer that gave
     * up. */
    fail_everywhere(shm_of(mesh), st, st == TD_EMISMATCH ? st : TD_EPEER, text);
}

td_status td__shm_fail(shm_mesh *m, td_status st, const char *fmt, ...)
{
    char text[FAIL_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    TD_TRY(td__shm_health(m)); /* who failed and left tells the cause: the first one counts */
    fail_everywhere(m, st, st, text);
    return td__shm_health(m);
}

td_status td__shm_health(shm_mesh *m)
{
    /* Once a failure of others has been reported here it is this rank's too: its transfers are the
     * caller's again and must not be touched. */
    if (!td__poison_is_set(&m->poison) && td__poison_is_set(&m->head->poison)) {
        td_status st = td__poison_check(&m->head->poison);
        td__poison_set(&m->poison, st, td_last_error());
    }
    return td__poison_check(&m->poison);
}

static bool has_failed(shm_mesh *m)
{
    return td__poison_is_set(&m->head->poison) || td__poison_is_set(&m->poison);
}

/* A peer whose process ended without goodbye; -1 if there is none. */
static int dead_peer(shm_mesh *m)
{
    struct epoll_event ev[16];
    int n = epoll_wait(m->epoll, ev, TD_LEN(ev), 0);
    for (int i = 0; i < n; i++) {
        int r = ev[i].data.fd;
        if (__atomic_load_n(&m->ranks[r].state, __ATOMIC_ACQUIRE) != STATE_LEFT)
            return r;
        epoll_ctl(m->epoll, EPOLL_CTL_DEL, m->pidfd[r], NULL);
    }
    return -1;
}

/* What the kernel says a peer is doing, for texts. */
static const char *doing(const shm_mesh *m, int rank)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", m->ranks[rank].pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return "not visible from here";
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *end = strrchr(text, ')');
    switch (end && end[1] ? end[2] : 0) {
    case 'T':
    case 't': return "stopped";
    case 'R': return "running";
    case 'S':
    case 'D': return "asleep";
    case 'Z': return "dead";
    default: return "in an unknown state";
    }
}

/* What a wait is for. */
typedef struct wait_for {
    bool (*ready)(shm_mesh *m, const void *arg);
    const void *arg;
    uint32_t who; /* WAITS_ANY, or WAITS_RANK and the rank */
} wait_for;

static td_status look_around(shm_mesh *m, const wait_for *w)
{
    int dead = dead_peer(m);
    if (dead >= 0)
        return td__shm_fail(m, TD_EPEER, "rank %d (process %d) died", dead, m->ranks[dead].pid);
    if (w->who >= WAITS_RANK) {
        int peer = (int)(w->who - WAITS_RANK);
        /* Looked at in this order: it may have done its part just before it left. */
        if (__atomic_load_n(&m->ranks[peer].state, __ATOMIC_ACQUIRE) == STATE_LEFT &&
            !w->ready(m, w->arg))
            return td__shm_fail(m, TD_EPEER, "rank %d left while rank %d waited for it", peer,
                                m->mesh.rank);
    }
    return TD_OK;
}

static td_status time_is_up(shm_mesh *m, const wait_for *w)
{
    TD_TRY(look_around(m, w));
    if (w->who < WAITS_RANK)
        return TD_FAIL(TD_ETIMEDOUT, "rank %d timed out waiting for its peers", m->mesh.rank);
    int peer = (int)(w->who - WAITS_RANK);
    return TD_FAIL(TD_ETIMEDOUT, "rank %d timed out waiting for rank %d (process %d, %s)",
                   m->mesh.rank, peer, m->ranks[peer].pid, doing(m, peer));
}

/* ---- waiting ---- */

/* Asleep until the bell rings, at most LOOK_NS. */
static void doze(shm_mesh *m, const wait_for *w, td__deadline until)
{
    shm_rank *me = &m->ranks[m->mesh.rank];
    uint32_t bell = atomic_load_explicit(&me->bell, memory_order_acquire);
    td__deadline look = td__clock_ns() + LOOK_NS;
    __atomic_store_n(&me->waits_for, w->who, __ATOMIC_RELAXED);
    __atomic_fetch_add(&m->head->sleepers, 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!w->ready(m, w->arg) && !has_failed(m))
        td__futex_wait(&me->bell, bell, look < until ? look : until, true);
    __atomic_fetch_sub(&m->head->sleepers, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&me->waits_for, WAITS_NONE, __ATOMIC_RELAXED);
}

td_status td__shm_wait(shm_mesh *m, bool (*ready)(shm_mesh *m, const void *arg), const void *arg,
                       uint32_t waits_for, td__deadline until)
{
    const wait_for w = {ready, arg, waits_for};
    for (;;) {
        td__backoff b = td__backoff_start(
            m->crowded || atomic_load_explicit(&m->mesh.patient, memory_order_relaxed));
        do {
            if (ready(m, arg))
                return TD_OK;
            if (has_failed(m))
                return td__shm_health(m);
        } while (td__backoff_pause(&b));
        doze(m, &w, until);
        if (ready(m, arg))
            return TD_OK;
        TD_TRY(td__shm_health(m));
        uint64_t now = td__clock_ns();
        if (now >= until)
            return time_is_up(m, &w);
        if (now - m->last_look >= LOOK_NS) {
            m->last_look = now;
            TD_TRY(look_around(m, &w));
        }
    }
}
