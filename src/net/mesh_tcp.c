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
 * Ends        Who destroys a healthy mesh says BYE; who fails says FAIL where it can and shuts all
 *             streams down. A stream that ends without BYE is a dead peer, and so is
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
#include "base/crc32c.h"
#include "base/fail.h"
#include "net/mesh_tcp_impl.h"
#include "net/socket.h"

enum {
    STRIPE_BYTES = 1 << 20, /* messages from this size on use all streams */
    PAGE = 4096,
    SEND_BYTES = 1 << 20, /* per call, so that sending and receiving take turns */
    RECV_BYTES = 1 << 20,
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

static td_status fail(td__mesh_tcp *m, td_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static td_status fail(td__mesh_tcp *m, td_status st, const char *fmt, ...)
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
        return fail(m, TD_ENOMEM, "tcp: rank %d: %u transfers at once", m->base.rank, r->cap);
    return TD_OK;
}

/* ---- parts ---- */

static bool striped(const td__mesh_tcp *m, uint64_t nbytes)
{
    return m->streams > 1 && nbytes >= STRIPE_BYTES;
}

/* The part of a message that goes over stream `index`: [*from, *from + result). */
static uint64_t part(const td__mesh_tcp *m, uint64_t nbytes, int index, uint64_t *from)
{
    *from = 0;
    if (!striped(m, nbytes))
        return index == 0 ? nbytes : 0;
    uint64_t each = td__align_up((size_t)(nbytes / (uint64_t)m->streams), PAGE);
    *from = each * (uint64_t)index;
    return index == m->streams - 1 ? nbytes - *from : each;
}

/* ---- sending ---- */

/* The next message with a part on this stream; false if there is none yet. */
static bool begin_frame(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s)
{
    if (p->out.begin - s->out_next < UINT32_MAX / 2) /* those are done without this stream */
        s->out_next = p->out.begin;
    while (td__tcp_ring_has(&p->out, s->out_next)) {
        const td__tcp_msg *msg = td__tcp_ring_at(&p->out, s->out_next);
        uint64_t from;
        if (s->index > 0 && (!msg->x || !striped(m, msg->nbytes))) {
            s->out_next++;
            continue;
        }
        uint64_t nbytes = part(m, msg->nbytes, s->index, &from);
        s->out_head = (td__frame){.kind = TD_TCP_DATA,
                                  .length = nbytes,
                                  .total = msg->nbytes,
                                  .tag = msg->tag,
                                  .sequence = s->out_next};
        if (m->checksum) {
            s->out_head.flags = TD_FRAME_HAS_CRC;
            s->out_head.payload_crc = td__crc32c(0, msg->data + from, (size_t)nbytes);
        }
        td__frame_seal(&s->out_head);
        s->out_sent = 0;
        s->out_active = true;
        td__conn_message(&s->conn, s->out_next, sizeof s->out_head + nbytes);
        return true;
    }
    return false;
}

static int frame_iov(const td__mesh_tcp *m, const td__tcp_stream *s, const td__tcp_msg *msg,
                     struct iovec iov[2])
{
    uint64_t from, nbytes = part(m, msg->nbytes, s->index, &from);
    uint64_t head = sizeof s->out_head, at = s->out_sent > head ? s->out_sent - head : 0;
    uint64_t most = nbytes - at < SEND_BYTES ? nbytes - at : SEND_BYTES;
    int n = 0;

    if (s->out_sent < head)
        iov[n++] = (struct iovec){.iov_base = (uint8_t *)(uintptr_t)&s->out_head + s->out_sent,
                                  .iov_len = (size_t)(head - s->out_sent)};
    if (most > 0)
        iov[n++] = (struct iovec){.iov_base = msg->data + from + at, .iov_len = (size_t)most};
    return n;
}

static td_status send_step(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s, bool *moved)
{
    for (;;) {
        struct iovec iov[2];
        if (!s->out_active && !begin_frame(m, p, s))
            return TD_OK;
        td__tcp_msg *msg = td__tcp_ring_at(&p->out, s->out_next);
        ssize_t n = td__conn_send(&s->conn, iov, frame_iov(m, s, msg, iov));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            s->writable = false;
            return TD_OK;
        }
        if (n < 0) {
            s->broken = s->readable = true; /* the peer's last words may explain it */
            s->writable = false;
            return TD_OK;
        }
        *moved = true;
        s->out_sent += (uint64_t)n;
        if (s->out_sent == sizeof s->out_head + s->out_head.length) {
            s->out_active = false;
            s->out_next++;
            td__tcp_ring_moved(&p->out, msg, s->out_head.length);
        } else if (n >= SEND_BYTES / 2) {
            return TD_OK; /* a good piece: now the other direction */
        }
    }
}

/* ---- receiving ---- */

static uint32_t staged(const td__tcp_stream *s)
{
    return s->stage_end - s->stage_begin;
}

static void stage_compact(td__tcp_stream *s)
{
    if (s->stage_begin == 0)
        return;
    memmove(s->stage, s->stage + s->stage_begin, staged(s));
    s->stage_end = staged(s);
    s->stage_begin = 0;
}

static td_status stream_ended(td__mesh_tcp *m, td__tcp_stream *s, int error)
{
    s->ended = true;
    s->readable = false;
    if (m->peer[s->peer].left)
        return TD_OK;
    return fail(m, TD_EPEER, "tcp: rank %d lost rank %d: %s", m->base.rank, s->peer,
                error ? strerror(error) : "it closed the connection without goodbye");
}

/* Read into `iov`; *n is 0 when there is nothing now. */
static td_status read_some(td__mesh_tcp *m, td__tcp_stream *s, const struct iovec *iov, int parts,
                           ssize_t *n)
{
    do
        *n = td__conn_recv(&s->conn, iov, parts);
    while (*n < 0 && errno == EINTR);
    if (*n > 0)
        return TD_OK;
    int error = *n < 0 ? errno : 0;
    *n = 0;
    if (error == EAGAIN) {
        s->readable = false;
        return TD_OK;
    }
    return stream_ended(m, s, error);
}

static td_status check_message(td__mesh_tcp *m, const td__tcp_stream *s, const td__tcp_msg *msg)
{
    const td__frame *f = &s->head;
    uint64_t from;

    if (msg->tag != f->tag || msg->nbytes != f->total)
        return fail(m, TD_EMISMATCH,
                    "tcp: rank %d sends %llu bytes with tag %u, rank %d receives %llu bytes with "
                    "tag %u",
                    s->peer, (unsigned long long)f->total, f->tag, m->base.rank,
                    (unsigned long long)msg->nbytes, msg->tag);
    if (!msg->x || f->length != part(m, f->total, s->index, &from))
        return fail(m, TD_EPROTO, "tcp: rank %d sent a part of %llu bytes on stream %d twice",
                    s->peer, (unsigned long long)f->length, s->index);
    return TD_OK;
}

/* A failed peer said why. */
static td_status take_fail(td__mesh_tcp *m, td__tcp_stream *s)
{
    char text[300];
    uint32_t n = staged(s) < s->head.length ? staged(s) : (uint32_t)s->head.length;
    bool mismatch = s->head.tag == (uint32_t)-TD_EMISMATCH;

    snprintf(text, sizeof text, "%.*s", (int)n, (const char *)s->stage + s->stage_begin);
    if (mismatch)
        return fail(m, TD_EMISMATCH, "%s", text);
    return fail(m, TD_EPEER, "tcp: rank %d gave up: %s", s->peer, text);
}

/* Look at the header in the stage. */
static td_status take_head(td__mesh_tcp *m, td__tcp_stream *s)
{
    if (td__frame_open(s->stage + s->stage_begin, UINT64_MAX / 2, &s->head))
        return fail(m, TD_EPROTO, "tcp: damaged data from rank %d: %s", s->peer, td_last_error());
    s->stage_begin += (uint32_t)sizeof s->head;
    switch (s->head.kind) {
    case TD_TCP_BYE: m->peer[s->peer].left = true; return TD_OK;
    case TD_TCP_FAIL: return take_fail(m, s);
    case TD_TCP_DATA: break;
    default:
        return fail(m, TD_EPROTO, "tcp: rank %d sent a frame of kind %d", s->peer, s->head.kind);
    }
    uint32_t ahead = s->head.sequence - s->in_next;
    if (ahead > UINT32_MAX / 2 || (s->index == 0 && ahead != 0))
        return fail(m, TD_EPROTO, "tcp: rank %d sent message %u where %u was due: some were lost",
                    s->peer, s->head.sequence, s->in_next);
    s->in_next = s->head.sequence + 1;
    s->in_got = 0;
    s->in_head = true;
    return TD_OK;
}

/* Payload of the current frame: from the stage first, then from the socket. */
static td_status take_payload(td__mesh_tcp *m, td__tcp_stream *s, const td__tcp_msg *msg,
                              bool *moved)
{
    uint64_t from, nbytes = part(m, msg->nbytes, s->index, &from), want = nbytes - s->in_got;
    uint8_t *to = msg->data + from + s->in_got;

    if (staged(s) > 0 && want > 0) {
        uint64_t n = staged(s) < want ? staged(s) : want;
        memcpy(to, s->stage + s->stage_begin, (size_t)n);
        s->stage_begin += (uint32_t)n;
        s->in_got += n;
        *moved = true;
    } else if (want > 0) {
        struct iovec iov[2] = {
            {.iov_base = to, .iov_len = (size_t)(want < RECV_BYTES ? want : RECV_BYTES)},
            {.iov_base = s->stage, .iov_len = TD_TCP_STAGE_BYTES}};
        ssize_t n;
        s->stage_begin = s->stage_end = 0;
        TD_TRY(read_some(m, s, iov, want <= RECV_BYTES ? 2 : 1, &n));
        uint64_t direct = (uint64_t)n < want ? (uint64_t)n : want;
        s->in_got += direct;
        s->stage_end = (uint32_t)((uint64_t)n - direct);
        *moved = *moved || n > 0;
    }
    return TD_OK;
}

static td_status finish_frame(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s, td__tcp_msg *msg)
{
    uint64_t from, nbytes = part(m, msg->nbytes, s->index, &from);

    s->in_head = false;
    if ((s->head.flags & TD_FRAME_HAS_CRC) &&
        td__crc32c(0, msg->data + from, (size_t)nbytes) != s->head.payload_crc)
        return fail(m, TD_EPROTO,
                    "tcp: damaged data from rank %d: crc32c of message %u (%llu bytes) differs",
                    s->peer, s->head.sequence, (unsigned long long)nbytes);
    td__tcp_ring_moved(&p->in, msg, nbytes);
    if (!msg->x && striped(m, msg->nbytes))
        p->in_striped--;
    return TD_OK;
}

/* What is known to be there, up to a good piece. Reads ahead into the stage also without a posted
 * receive: that is how the end of a stream is noticed. */
static td_status recv_step(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s, bool *moved)
{
    uint64_t budget = RECV_BYTES;

    while (budget > 0) {
        if (!s->in_head && staged(s) >= sizeof s->head) {
            TD_TRY(take_head(m, s));
            *moved = true;
            continue;
        }
        if (s->in_head) {
            if (!td__tcp_ring_has(&p->in, s->head.sequence)) {
                if (p->in.end - s->head.sequence - 1 < UINT32_MAX / 2)
                    return fail(m, TD_EPROTO, "tcp: rank %d repeats message %u", s->peer,
                                s->head.sequence);
                return TD_OK; /* not posted yet */
            }
            td__tcp_msg *msg = td__tcp_ring_at(&p->in, s->head.sequence);
            if (s->in_got == 0)
                TD_TRY(check_message(m, s, msg));
            uint64_t before = s->in_got;
            TD_TRY(take_payload(m, s, msg, moved));
            if (s->in_got == s->head.length) {
                TD_TRY(finish_frame(m, p, s, msg));
                *moved = true;
            } else if (s->in_got == before) {
                return TD_OK; /* it would block */
            }
            budget -= s->in_got - before < budget ? s->in_got - before : budget;
            continue;
        }
        stage_compact(s);
        struct iovec one = {.iov_base = s->stage + s->stage_end,
                            .iov_len = TD_TCP_STAGE_BYTES - s->stage_end};
        ssize_t n = 0;
        if (s->ended)
            return TD_OK;
        TD_TRY(read_some(m, s, &one, 1, &n));
        if (n == 0)
            return TD_OK;
        s->stage_end += (uint32_t)n;
    }
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
                TD_TRY(send_step(m, p, s, moved));
                uint64_t at = m->has_faults && !s->writable ? td__conn_retry_ns(&s->conn) : 0;
                if (at && (!*retry || at < *retry))
                    *retry = at;
            }
            if (s->readable || (in && (few || staged(s) > 0)))
                TD_TRY(recv_step(m, p, s, moved));
            open += !s->ended;
            if (s->broken)
                return fail(m, TD_EPEER,
                            p->left ? "tcp: rank %d wants to send to rank %d, which has left"
                                    : "tcp: rank %d lost rank %d: it does not receive any more",
                            m->base.rank, r);
        }
        if (open == 0 && wants_recv(p))
            return fail(m, TD_EPEER, "tcp: rank %d waits for rank %d, which has left", m->base.rank,
                        r);
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
            return fail(m, TD_EPEER,
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
        return fail(m, TD_EPEER, "tcp: rank %d has left", x->peer);
    for (int k = 0; k < m->streams; k++)
        if (p->stream[k].writable && wants_send(p, &p->stream[k]))
            TD_TRY(send_step(m, p, &p->stream[k], &moved));
    return TD_OK;
}

static td_status tcp_recv(td__mesh *mesh, td__xfer *x)
{
    td__mesh_tcp *m = (td__mesh_tcp *)mesh;

    td__tcp_peer *p = &m->peer[x->peer];

    TD_TRY(td__poison_check(&m->poison));
    p->in_striped += striped(m, x->nbytes);
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
