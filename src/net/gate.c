/* gate.c -- accepting unauthenticated peers, one fixed-size slot each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/gate.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "net/greet.h"
#include "net/refusals.h"
#include "net/socket.h"

enum {
    SLOTS = 1024,
    HANDSHAKE_MS = 5000, /* a thousand ranks on two cores take their time */
    GRACE_MS = 500,
    EVENTS = 256,
    LISTENER = SLOTS
};

typedef struct slot {
    bool used;
    td__greet greet;
    td__deadline until;
    char source[TD_ADDRESS_BYTES];
} slot;

struct td__gate {
    int listener, epoll;
    td__hs_service service;
    td__secret secret;
    const td__tls *tls;
    slot *slots; /* (SLOTS) */
    int n_used;
    uint64_t refused;
    td__refusals refusals;
};

td_status td__gate_create_take(int listener, td__hs_service service, const td__secret *secret,
                               const td__tls *tls, td__gate **out)
{
    td__gate *g = td__calloc(1, sizeof *g);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = LISTENER};

    *out = NULL;
    if (g) {
        g->listener = listener;
        g->service = service;
        g->secret = *secret;
        g->tls = tls;
        g->epoll = epoll_create1(EPOLL_CLOEXEC);
        g->slots = td__calloc(SLOTS, sizeof *g->slots);
    }
    if (!g || !g->slots || g->epoll < 0 || epoll_ctl(g->epoll, EPOLL_CTL_ADD, listener, &e)) {
        if (g)
            td__gate_destroy(g);
        else
            close(listener);
        return TD_FAIL(TD_ENOMEM, "a gate for %d half-open connections", SLOTS);
    }
    *out = g;
    return TD_OK;
}

static void slot_free(td__gate *g, slot *s)
{
    td__greet_fini(&s->greet);
    s->used = false;
    g->n_used--;
}

void td__gate_destroy(td__gate *g)
{
    if (!g)
        return;
    for (int i = 0; g->slots && i < SLOTS; i++)
        if (g->slots[i].used)
            slot_free(g, &g->slots[i]);
    close(g->listener);
    if (g->epoll >= 0)
        close(g->epoll);
    td__free(g->slots);
    td__free(g);
}

int td__gate_fd(const td__gate *g)
{
    return g->epoll;
}

static void refuse(td__gate *g, slot *s, const char *why)
{
    g->refused++;
    td__refusals_log(&g->refusals, s->source, why);
    epoll_ctl(g->epoll, EPOLL_CTL_DEL, s->greet.conn.fd, NULL); /* a fork may still have it */
    slot_free(g, s);
}

/* A free slot, or the one that has been half-open for longest; NULL while all are so young that
 * they may be members who came together. */
static slot *take_slot(td__gate *g)
{
    slot *oldest = NULL;

    for (int i = 0; i < SLOTS; i++) {
        slot *s = &g->slots[i];
        if (!s->used)
            return s;
        if (!oldest || s->until < oldest->until)
            oldest = s;
    }
    if (td__deadline_left_ns(oldest->until) > (HANDSHAKE_MS - GRACE_MS) * 1000000ull)
        return NULL;
    refuse(g, oldest, "too many half-open connections");
    return oldest;
}

static bool watch(td__gate *g, slot *s, int op)
{
    struct epoll_event e = {.events = s->greet.write ? EPOLLOUT : EPOLLIN,
                            .data.u32 = (uint32_t)(s - g->slots)};
    return epoll_ctl(g->epoll, op, s->greet.conn.fd, &e) == 0;
}

static void step(td__gate *g, slot *s, void (*enter)(void *user, td__conn conn), void *user)
{
    bool write = s->greet.write;

    if (td__greet_step(&s->greet)) {
        refuse(g, s, td_last_error());
    } else if (s->greet.state == TD_GREET_DONE) {
        td__conn conn = s->greet.conn;
        epoll_ctl(g->epoll, EPOLL_CTL_DEL, conn.fd, NULL);
        s->greet.conn = td__conn_of(-1);
        slot_free(g, s);
        enter(user, conn);
    } else if (s->greet.write != write && !watch(g, s, EPOLL_CTL_MOD)) {
        refuse(g, s, "epoll failed");
    }
}

static void admit_all(td__gate *g)
{
    slot *s;
    int fd;

    while ((s = take_slot(g)) && (fd = td__socket_accept(g->listener)) >= 0) {
        td__socket_source(fd, s->source);
        s->until = td__deadline_in_ms(HANDSHAKE_MS);
        if (td__greet_init_take(&s->greet, fd, TD_HS_SERVER, g->service, &g->secret, g->tls,
                                s->source))
            continue;
        s->used = true;
        g->n_used++;
        if (!watch(g, s, EPOLL_CTL_ADD))
            refuse(g, s, "epoll failed");
    }
}

void td__gate_serve(td__gate *g, void (*enter)(void *user, td__conn conn), void *user)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(g->epoll, e, EVENTS, 0);
    bool knocks = false;

    for (int i = 0; i < n; i++) {
        if (e[i].data.u32 == LISTENER) {
            knocks = true; /* last: a new one must not take a slot that has an event here */
            continue;
        }
        slot *s = &g->slots[e[i].data.u32];
        if (s->used)
            step(g, s, enter, user);
    }
    for (int i = 0; g->n_used > 0 && i < SLOTS; i++)
        if (g->slots[i].used && td__deadline_passed(g->slots[i].until)) {
            step(g, &g->slots[i], enter, user); /* it may be we who are late */
            if (g->slots[i].used)
                refuse(g, &g->slots[i], "no handshake within 5 seconds");
        }
    if (knocks)
        admit_all(g);
}

td__deadline td__gate_deadline(const td__gate *g)
{
    td__deadline first = TD_DEADLINE_NEVER;

    for (int i = 0; g->n_used > 0 && i < SLOTS; i++)
        if (g->slots[i].used && g->slots[i].until < first)
            first = g->slots[i].until;
    return first;
}
