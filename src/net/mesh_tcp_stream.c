/* mesh_tcp_stream.c -- one stream of a tcp mesh: the next frame out, the next bytes in
 * (mesh_tcp.c has the whole picture). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "net/mesh_tcp_impl.h"

enum {
    STRIPE_BYTES = 1 << 20, /* messages from this size on use all streams */
    PAGE = 4096,
    SEND_BYTES = 1 << 20, /* per call, so that sending and receiving take turns */
    RECV_BYTES = 1 << 20,
};

/* ---- parts ---- */

bool td__tcp_striped(const td__mesh_tcp *m, uint64_t nbytes)
{
    return m->streams > 1 && nbytes >= STRIPE_BYTES;
}

/* The part of a message that goes over stream `index`: [*from, *from + result). */
static uint64_t part(const td__mesh_tcp *m, uint64_t nbytes, int index, uint64_t *from)
{
    *from = 0;
    if (!td__tcp_striped(m, nbytes))
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
        if (s->index > 0 && (!msg->x || !td__tcp_striped(m, msg->nbytes))) {
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

td_status td__tcp_send_step(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s, bool *moved)
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

uint32_t td__tcp_staged(const td__tcp_stream *s)
{
    return s->stage_end - s->stage_begin;
}

static void stage_compact(td__tcp_stream *s)
{
    if (s->stage_begin == 0)
        return;
    memmove(s->stage, s->stage + s->stage_begin, td__tcp_staged(s));
    s->stage_end = td__tcp_staged(s);
    s->stage_begin = 0;
}

static td_status stream_ended(td__mesh_tcp *m, td__tcp_stream *s, int error)
{
    s->ended = true;
    s->readable = false;
    if (m->peer[s->peer].left)
        return TD_OK;
    return td__tcp_fail(m, TD_EPEER, "tcp: rank %d lost rank %d: %s", m->base.rank, s->peer,
                        error ? strerror(error) : "it closed the connection unexpectedly");
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
        return td__tcp_fail(
            m, TD_EMISMATCH,
            "tcp: rank %d sends %llu bytes with tag %u, rank %d receives %llu bytes with "
            "tag %u",
            s->peer, (unsigned long long)f->total, f->tag, m->base.rank,
            (unsigned long long)msg->nbytes, msg->tag);
    if (!msg->x || f->length != part(m, f->total, s->index, &from))
        return td__tcp_fail(m, TD_EPROTO,
                            "tcp: rank %d sent a part of %llu bytes on stream %d twice", s->peer,
                            (unsigned long long)f->length, s->index);
    return TD_OK;
}

/* A failed peer said why. */
static td_status take_fail(td__mesh_tcp *m, td__tcp_stream *s)
{
    char text[300];
    uint32_t n = td__tcp_staged(s) < s->head.length ? td__tcp_staged(s) : (uint32_t)s->head.length;
    bool mismatch = s->head.tag == (uint32_t)-TD_EMISMATCH;

    snprintf(text, sizeof text, "%.*s", (int)n, (const char *)s->stage + s->stage_begin);
    if (mismatch)
        return td__tcp_fail(m, TD_EMISMATCH, "%s", text);
    return td__tcp_fail(m, TD_EPEER, "tcp: rank %d failed: %s", s->peer, text);
}

/* Look at the header in the stage. */
static td_status take_head(td__mesh_tcp *m, td__tcp_stream *s)
{
    if (td__frame_open(s->stage + s->stage_begin, UINT64_MAX / 2, &s->head))
        return td__tcp_fail(m, TD_EPROTO, "tcp: damaged data from rank %d: %s", s->peer,
                            td_last_error());
    s->stage_begin += (uint32_t)sizeof s->head;
    switch (s->head.kind) {
    case TD_TCP_BYE: m->peer[s->peer].left = true; return TD_OK;
    case TD_TCP_FAIL: return take_fail(m, s);
    case TD_TCP_DATA: break;
    default:
        return td__tcp_fail(m, TD_EPROTO, "tcp: rank %d sent a frame of kind %d", s->peer,
                            s->head.kind);
    }
    uint32_t ahead = s->head.sequence - s->in_next;
    if (ahead > UINT32_MAX / 2 || (s->index == 0 && ahead != 0))
        return td__tcp_fail(m, TD_EPROTO,
                            "tcp: rank %d sent message %u instead of %u: messages were lost",
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

    if (td__tcp_staged(s) > 0 && want > 0) {
        uint64_t n = td__tcp_staged(s) < want ? td__tcp_staged(s) : want;
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
        return td__tcp_fail(
            m, TD_EPROTO,
            "tcp: damaged data from rank %d: crc32c of message %u (%llu bytes) differs", s->peer,
            s->head.sequence, (unsigned long long)nbytes);
    td__tcp_ring_moved(&p->in, msg, nbytes);
    if (!msg->x && td__tcp_striped(m, msg->nbytes))
        p->in_striped--;
    return TD_OK;
}

td_status td__tcp_recv_step(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s, bool *moved)
{
    uint64_t budget = RECV_BYTES;

    while (budget > 0) {
        if (!s->in_head && td__tcp_staged(s) >= sizeof s->head) {
            TD_TRY(take_head(m, s));
            *moved = true;
            continue;
        }
        if (s->in_head) {
            if (!td__tcp_ring_has(&p->in, s->head.sequence)) {
                if (p->in.end - s->head.sequence - 1 < UINT32_MAX / 2)
                    return td__tcp_fail(m, TD_EPROTO, "tcp: rank %d repeats message %u", s->peer,
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
