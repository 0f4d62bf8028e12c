/* link.c -- see link.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/alloc.h"
#include "net/frame.h"
#include "net/socket.h"

enum { FIRST = 4096, MOST_QUEUED = 8 << 20 };

void td__link_init_take(td__link *l, td__conn conn)
{
    *l = (td__link){.conn = conn};
    td__socket_keep(conn.fd);
}

void td__link_fini(td__link *l)
{
    td__conn_close(&l->conn);
    td__free(l->in);
    td__free(l->out);
    *l = (td__link){.conn = {.fd = -1}};
}

short td__link_events(const td__link *l)
{
    return (short)(l->out_used > l->out_sent ? POLLIN | POLLOUT : POLLIN);
}

static void fail(td__link *l)
{
    if (errno == ECONNRESET || errno == EPIPE)
        l->ended = l->reset = true;
    else
        l->broken = true;
}

void td__link_flush(td__link *l)
{
    while (td__link_up(l) && l->out_sent < l->out_used) {
        struct iovec one = {.iov_base = l->out + l->out_sent, .iov_len = l->out_used - l->out_sent};
        ssize_t n = td__conn_send(&l->conn, &one, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        /* What the other end said before it went can still be read, and then its end. */
        l->out_sent = n < 0 ? l->out_used : l->out_sent + (size_t)n;
    }
    l->out_sent = l->out_used = 0;
}

void td__link_send(td__link *l, uint8_t kind, const void *data, size_t nbytes)
{
    td__frame f = {.kind = kind, .length = nbytes, .total = nbytes};

    if (!td__link_up(l))
        return;
    size_t need = l->out_used + sizeof f + nbytes;
    if (nbytes > TD_LINK_MOST || need > MOST_QUEUED || !td__reserve(&l->out, &l->out_cap, need)) {
        l->broken = true;
        return;
    }
    td__frame_seal(&f);
    memcpy(l->out + l->out_used, &f, sizeof f);
    if (nbytes)
        memcpy(l->out + l->out_used + sizeof f, data, nbytes);
    l->out_used = need;
    td__link_flush(l);
}

void td__link_fill(td__link *l)
{
    if (l->in_start)
        memmove(l->in, l->in + l->in_start, l->in_used - l->in_start);
    l->in_used -= l->in_start;
    l->in_start = 0;
    while (td__link_up(l)) {
        if (!td__reserve(&l->in, &l->in_cap, l->in_used + FIRST)) {
            l->broken = true;
            return;
        }
        struct iovec one = {.iov_base = l->in + l->in_used, .iov_len = l->in_cap - l->in_used};
        ssize_t n = td__conn_recv(&l->conn, &one, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n == 0)
            l->ended = true;
        else if (n < 0)
            fail(l);
        else
            l->in_used += (size_t)n;
        if (l->in_used > 4 * (size_t)TD_LINK_MOST)
            return;
    }
}

bool td__link_next(td__link *l, td__link_msg *m)
{
    td__frame f;
    size_t have = l->in_used - l->in_start;

    if (l->broken || have < sizeof f)
        return false;
    if (td__frame_open(l->in + l->in_start, TD_LINK_MOST, &f)) {
        l->broken = true;
        return false;
    }
    if (have - sizeof f < f.length)
        return false;
    *m = (td__link_msg){f.kind, l->in + l->in_start + sizeof f, (size_t)f.length};
    l->in_start += sizeof f + (size_t)f.length;
    return true;
}
