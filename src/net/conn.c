/* conn.c -- a socket under a chain of filters. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "net/socket.h"

static ssize_t chain_recv(td__filter *f, int fd, const struct iovec *iov, int n)
{
    if (f)
        return f->ops->recv(f, iov, n);
    if (n == 1)
        return recv(fd, iov->iov_base, iov->iov_len, 0);
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
    return recvmsg(fd, &m, 0);
}

static ssize_t chain_send(td__filter *f, int fd, const struct iovec *iov, int n)
{
    if (f)
        return f->ops->send(f, iov, n);
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

ssize_t td__conn_recv(const td__conn *c, const struct iovec *iov, int n)
{
    return chain_recv(c->top, c->fd, iov, n);
}

ssize_t td__conn_send(const td__conn *c, const struct iovec *iov, int n)
{
    return chain_send(c->top, c->fd, iov, n);
}

ssize_t td__filter_recv_below(td__filter *f, const struct iovec *iov, int n)
{
    return chain_recv(f->next, f->fd, iov, n);
}

ssize_t td__filter_send_below(td__filter *f, const struct iovec *iov, int n)
{
    return chain_send(f->next, f->fd, iov, n);
}

void td__conn_message(const td__conn *c, uint32_t sequence, uint64_t nbytes)
{
    for (td__filter *f = c->top; f; f = f->next)
        if (f->ops->message)
            f->ops->message(f, sequence, nbytes);
}

uint64_t td__conn_retry_ns(const td__conn *c)
{
    for (const td__filter *f = c->top; f; f = f->next) {
        uint64_t at = f->ops->retry_ns ? f->ops->retry_ns(f) : 0;
        if (at)
            return at;
    }
    return 0;
}

void td__conn_push_take(td__conn *c, td__filter *f)
{
    f->next = c->top;
    f->fd = c->fd;
    c->top = f;
}

void td__conn_close(td__conn *c)
{
    while (c->top) {
        td__filter *f = c->top;
        c->top = f->next;
        f->ops->destroy(f);
    }
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void td__iov_advance(struct iovec **iov, int *n, size_t nbytes)
{
    while (*n > 0 && nbytes >= (*iov)->iov_len) {
        nbytes -= (*iov)->iov_len;
        ++*iov;
        --*n;
    }
    if (*n > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + nbytes;
        (*iov)->iov_len -= nbytes;
    }
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EINTR;
}

td_status td__conn_recv_all(const td__conn *c, void *data, size_t nbytes, td__deadline until,
                            const char *peer)
{
    struct iovec one = {.iov_base = data, .iov_len = nbytes};

    while (one.iov_len > 0) {
        ssize_t n = td__conn_recv(c, &one, 1);
        if (n == 0)
            return TD_FAIL(TD_EPEER, "%s closed the connection", peer);
        if (n < 0 && !would_block())
            return TD_FAIL(TD_EPEER, "connection to %s: %s", peer, strerror(errno));
        if (n < 0) {
            if (td__deadline_passed(until))
                return TD_FAIL(TD_ETIMEDOUT, "%s does not answer", peer);
            td__socket_poll(c->fd, false, until);
            continue;
        }
        one.iov_base = (char *)one.iov_base + n;
        one.iov_len -= (size_t)n;
    }
    return TD_OK;
}

td_status td__conn_send_all(const td__conn *c, const struct iovec *iov, int n, td__deadline until,
                            const char *peer)
{
    enum { MOST = 8 };
    struct iovec copy[MOST], *at = copy;

    TD_ASSERT(n <= MOST, "%d parts", n);
    memcpy(copy, iov, sizeof *iov * (size_t)n);
    td__iov_advance(&at, &n, 0);
    while (n > 0) {
        ssize_t sent = td__conn_send(c, at, n);
        if (sent < 0 && !would_block())
            return TD_FAIL(TD_EPEER, "connection to %s: %s", peer, strerror(errno));
        if (sent < 0) {
            if (td__deadline_passed(until))
                return TD_FAIL(TD_ETIMEDOUT, "timed out sending to %s: it does not read", peer);
            td__socket_poll(c->fd, true, until);
            continue;
        }
        td__iov_advance(&at, &n, (size_t)sent);
    }
    return TD_OK;
}
