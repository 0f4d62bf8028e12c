/* mesh_tcp.c -- moving messages between ranks over TCP.
 *
 * Message n to a peer is a frame on stream 0; a large one is cut in equal parts, one frame on each
 * stream. Frames of a stream go out in the order of message numbers, so that a receiver finds for
 * each frame the message that it belongs to: its nth receive from that peer.
 *
 * Receiving   A stream reads into a small stage until it has a header. Payload that came along is
 *             copied from there; the rest is read straight into the posted buffer, with the stage
 *             as second part of the same call, so that the next header comes with it. If the
 *             receive is not posted yet, the stream stops reading: TCP then holds the sender
 *             back.
 * Sending     Header and payload leave in one vectored call, as much as the socket takes.
 * Waiting     All sockets are in one edge-triggered epoll set, and `readable` / `writable` say what
 *             is known of them. While few transfers are under way, waiting means trying them over
 *             and over: a wake-up through the kernel costs more than the whole transfer. After some
 *             50 us, or sooner with more ranks than cores, it sleeps in epoll_wait. In the
 *             middle of a large message it sleeps until a good piece of it is there: somebody
 *             else is computing on this core, and every packet would wake it up.
 * Ends        A rank that destroys a healthy mesh says BYE; one that fails says FAIL where it can
 *             and shuts all streams down. A stream that ends without BYE is a dead peer, and so is
 *             one whose host has been silent for TD_SOCKET_SILENCE_MS. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "net/mesh_tcp_impl.h"
#include "net/socket.h"

enum {
    LOW_BYTES = 512 << 10, /* of a message, that are worth waking up for; TLS counts otherwise */
    LEAST_LOW = 64 << 10,  /* less than this is not worth telling the kernel */
    FEW = 8, /* streams with something to do: they are tried without asking epoll first */
    SPIN_NS = 60000,
    SPINS_CROWDED = 4,
    YIELDS_CROWDED = 60,
    EVENTS = 64,
    BYE_MS = 5000, /* for peers to make room for a goodbye */
    TEXT = 350,    /* why a rank gave up */
    WAKE = -1,     /* mark of the eventfd in the epoll set */
};

/* ---- failing ---- */

/* In one piece: a filter may take the first part of a vector only. */
static void say_fail(const td__tcp_stream *s, td_status st, const char *text)
{
    uint8_t wire[sizeof(td__frame) + TEXT];
    size_t n = strnlen(text, TEXT);
    td__frame f = {.kind = TD_TCP_FAIL, .tag = (uint32_t) - (int)st, .length = n};
    struct iovec one = {.iov_base = wire, .iov_len = sizeof f + n};

    if (s->out_active) /* in the middle of a frame */
        return;
    td__frame_seal(&f);
    memcpy(wire, &f, sizeof f);
    memcpy(wire + sizeof f, text, n);
    if (td__conn_send(&s->conn, &one, 1) < 0)
        return; /* then the end of the stream must do */
}

/* The first failure: tell the peers, as far as that goes without waiting, and end all streams. */
static void give_up(td__mesh_tcp *m, td_status st, const char *text, bool driver)
{
    if (!td__poison_set(&m->poison, st, text))
        return;
    for (int i = 0; i < m->base.size * m->streams; i++) {
        td__tcp_stream *s = &m->stream[i];
        if (s->conn.fd < 0)
            continue;
        if (driver && s->index == 0)
            say_fail(s, st, text);
        shutdown(s->conn.fd, driver ? SHUT_WR : SHUT_RDWR);
    }
    if (!driver) {
        uint64_t one = 1;
        ssize_t n = write(m->wake, &one, sizeof one);
        TD_ASSERT(n == (ssize_t)sizeof one, "eventfd: %zd", n);
    }
}

td_status td__tcp_fail(td__mesh_tcp *m, td_status st, const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    give_up(m, st, text, true);
    return td__poison_check(&m->poison);
}

static td_status push(td__mesh_tcp *m, td__tcp_ring *r, td__xfer *x)
{
    if (!td__tcp_ring_push(r, x))
        return td__tcp_fail(m, TD_ENOMEM, "tcp: rank %d: %u transfers at once", m->base.rank,
                            r->cap);
    return TD_OK;
}

/* ---- driving ---- */

static bool wants_send(const td__tcp_peer *p, const td__tcp_stream *s)
{
    return s->out_active || s->out_next != p->out.end;
}

static bool wants_recv(const td__tcp_peer *p)
{
    return p->in.begin != p->in.end;
}

/* Try all streams that have something to do: those that epoll named, or, when there are few, all.
 * *retry: when a fault filter wants to be asked again. */
static td_status try_all(td__mesh_tcp *m, bool *moved, uint64_t *retry)
{
    int busy = 0;

    for (int r = 0; r < m->base.size; r++) {
        td__tcp_peer *p = &m->peer[r];
        int open = 0;
        if (r == m->base.rank)
            continue;
        for (int k = 0; k < m->streams; k++) {
            td__tcp_stream *s = &p->stream[k];
            bool in = k == 0 ? wants_recv(p) : p->in_striped > 0;
            bool few = busy < FEW;
            busy += in;
            if (wants_send(p, s) && (s->writable || m->has_faults)) {
                TD_TRY(td__tcp_send_step(m, p, s, moved));
                uint64_t at = m->has_faults && !s->writable ? td__conn_retry_ns(&s->conn) : 0;
                if (at && (!*retry || at < *retry))
                    *retry = at;
            }
            if (s->readable || (in && (few || td__tcp_staged(s) > 0)))
                TD_TRY(td__tcp_recv_step(m, p, s, moved));
            open += !s->ended;
            if (s->broken)
                return td__tcp_fail(m, TD_EPEER,
                                    p->left
                                        ? "tcp: rank %d wants to send to rank %d, which has left"
                                        : "tcp: rank %d lost rank %d: it no longer receives",
                                    m->base.rank, r);
        }
        if (open == 0 && wants_recv(p))
            return td__tcp_fail(m, TD_EPEER, "tcp: rank %d waits for rank %d, which has left",
                                m->base.rank, r);
    }
    return TD_OK;
}

/* Ask epoll, waiting for up to `ms`. */
static td_status harvest(td__mesh_tcp *m, int ms)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(m->epoll, e, EVENTS, ms);

    for (int i = 0; i < n; i++) {
        if (e[i].data.u64 == (uint64_t)WAKE)
            continue;
        td__tcp_stream *s = &m->stream[e[i].data.u64];
        if (e[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            s->readable = !s->ended;
        if (e[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
            s->writable = true;
    }
    return td__poison_check(&m->poison);
}

/* Before sleeping: never more than what is still to come of a message, nor than half of what the
 * socket holds, which is the kernel's own limit. */
static void set_low_water(td__mesh_tcp *m)
{
    for (int i = 0; !m->tls && i < m->base.size * m->streams; i++) {
        td__tcp_stream *s = &m->stream[i];
        uint64_t left = s->in_head ? s->head.length - s->in_got : 1;
        int low = left < LEAST_LOW ? 1 : left < LOW_BYTES ? (int)left : LOW_BYTES;
        if (s->conn.fd < 0 || s->ended || low == s->in_low)
            continue;
        s->in_low = low;
        setsockopt(s->conn.fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    }
}

/* A host that is cut off says nothing: whoever sleeps here looks at the links now and then. */
static td_status check_links(td__mesh_tcp *m, uint64_t now)
{
    if (now - m->looked_ns < TD_SOCKET_LOOK_MS * 1000000ull)
        return TD_OK;
    m->looked_ns = now;
    for (int i = 0; i < m->base.size * m->streams; i++) {
        const td__tcp_stream *s = &m->stream[i];
        unsigned ms = s->conn.fd >= 0 && !s->ended ? td__socket_silence_ms(s->conn.fd) : 0;
        if (ms >= TD_SOCKET_SILENCE_MS)
            return td__tcp_fail(m, TD_EPEER,
                                "tcp: rank %d lost rank %d: its host has not answered for %.1f s",
                                m->base.rank, s->peer, 1e-3 * ms);
    }
    return TD_OK;
}

static td_status tcp_progress(td__mesh *mesh, td__deadline until)
{
    td__mesh_tcp *m = (td__mesh_tcp *)mesh;
    uint64_t start = 0;

    for (uint32_t round = 0;; round++) {
        bool moved = false;
        uint64_t retry = 0;
        if (td__poison_is_set(&m->poison))
            return td__poison_check(&m->poison);
        TD_TRY(try_all(m, &moved, &retry));
        if (moved)
            return TD_OK;
        uint64_t now = td__clock_ns();
        start = start ? start : now;
        if (until != TD_DEADLINE_NEVER && now >= until)
            return harvest(m, 0);
        bool spin = m->crowded ? round < SPINS_CROWDED + YIELDS_CROWDED : now - start < SPIN_NS;
        if (atomic_load_explicit(&mesh->patient, memory_order_relaxed))
            spin = false;
        if (!spin) {
            td__deadline end = retry && retry < until ? retry : until;
            TD_TRY(check_links(m, now));
            set_low_water(m);
            TD_TRY(harvest(m, td__deadline_left_ms(end, 1000)));
        } else {
            if (m->crowded && round >= SPINS_CROWDED)
                sched_yield();
            if (round % 8 == 7) {
                sched_yield(); /* the one that is waited for may sit on this very core */
                TD_TRY(harvest(m, 0));
            }
        }
    }
}

static td_status tcp_send(td__mesh *mesh, td__xfer *x)
{
    td__mesh_tcp *m = (td__mesh_tcp *)mesh;
    td__tcp_peer *p = &m->peer[x->peer];
    bool moved = false;

    TD_TRY(td__poison_check(&m->poison));
    TD_TRY(push(m, &p->out, x));
    if (p->left)
        return td__tcp_fail(m, TD_EPEER, "tcp: rank %d has left", x->peer);
    for (int k = 0; k < m->streams; k++)
        if (p->stream[k].writable && wants_send(p, &p->stream[k]))
            TD_TRY(td__tcp_send_step(m, p, &p->stream[k], &moved));
    return TD_OK;
}

static td_status tcp_recv(td__mesh *mesh, td__xfer *x)
{
    td__mesh_tcp *m = (td__mesh_tcp *)mesh;

    td__tcp_peer *p = &m->peer[x->peer];

    TD_TRY(td__poison_check(&m->poison));
    p->in_striped += td__tcp_striped(m, x->nbytes);
    return push(m, &p->in, x);
}

static void tcp_interrupt(td__mesh *mesh, td_status st, const char *text)
{
    give_up((td__mesh_tcp *)mesh, st, text, false);
}

/* A peer that is gone needs no goodbye. One that has not read yet what was sent to it before is
 * waited for until there is room for this too: without it, that peer would be told of a lost one.
 * A slow link (fault.h) is given a moment. */
static void say_bye(td__tcp_stream *s, td__deadline until)
{
    enum { SLOW_MS = 50, LOOK_MS = 10 };
    td__frame f = {.kind = TD_TCP_BYE};
    struct iovec one = {.iov_base = &f, .iov_len = sizeof f}, *at = &one;
    td__deadline slow = td__deadline_in_ms(SLOW_MS);
    int n = 1;

    td__frame_seal(&f);
    while (!s->out_active && n > 0) {
        /* Looked at before trying: whoever lost its core for long has one try more. */
        bool too_slow = td__deadline_passed(slow), late = td__deadline_passed(until);
        ssize_t sent = td__conn_send(&s->conn, at, n);
        bool waits = sent < 0 && errno == EAGAIN && td__conn_retry_ns(&s->conn);
        struct pollfd room = {.fd = waits ? -1 : s->conn.fd, .events = POLLOUT};
        if (sent >= 0)
            td__iov_advance(&at, &n, (size_t)sent);
        else if ((errno != EAGAIN && errno != EINTR) || (waits ? too_slow : late))
            return;
        else
            poll(&room, 1, waits ? 1 : LOOK_MS);
    }
}

static void tcp_destroy(td__mesh *mesh)
{
    td__mesh_tcp *m = (td__mesh_tcp *)mesh;
    bool healthy = !td__poison_is_set(&m->poison);
    td__deadline until = td__deadline_in_ms(BYE_MS);

    for (int i = 0; m->stream && i < mesh->size * m->streams; i++) {
        td__tcp_stream *s = &m->stream[i];
        if (s->conn.fd >= 0 && healthy)
            say_bye(s, until);
        td__conn_close(&s->conn);
    }
    for (int r = 0; m->peer && r < mesh->size; r++) {
        td__free(m->peer[r].in.msg);
        td__free(m->peer[r].out.msg);
    }
    if (m->epoll >= 0)
        close(m->epoll);
    if (m->wake >= 0)
        close(m->wake);
    td__tls_destroy(m->tls);
    td__free(m->stage);
    td__free(m->stream);
    td__free(m->peer);
    td__free(m);
}

const td__mesh_ops td__mesh_tcp_ops = {
    .name = "tcp",
    .destroy = tcp_destroy,
    .send = tcp_send,
    .recv = tcp_recv,
    .progress = tcp_progress,
    .interrupt = tcp_interrupt,
};
