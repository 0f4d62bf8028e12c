/* conn.h -- a connection: a non-blocking socket under a chain of filters (tls, fault).
 *
 * recv and send move what can be moved now: bytes moved; 0 from recv at the end of the stream; -1
 * with errno, EAGAIN when it would block. A filter passes on to the one below it (`next`, or the
 * socket). Not for several threads at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_CONN_H
#define TD_NET_CONN_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/deadline.h"
#include "tandem/status.h"

typedef struct td__filter td__filter;

typedef struct td__filter_ops {
    const char *name;
    ssize_t (*recv)(td__filter *f, const struct iovec *iov, int n);
    ssize_t (*send)(td__filter *f, const struct iovec *iov, int n);
    /* (optional) Bytes to read lie in the filter: the socket will not say so. */
    bool (*pending)(const td__filter *f);
    /* (optional) A message of nbytes begins with the next byte sent. */
    void (*message)(td__filter *f, uint32_t sequence, uint64_t nbytes);
    /* (optional) When to try again after EAGAIN from send, if not when the socket says so; 0:
     * ask the socket. */
    uint64_t (*retry_ns)(const td__filter *f);
    void (*destroy)(td__filter *f); /* itself, not what is below */
} td__filter_ops;

struct td__filter {
    const td__filter_ops *ops;
    td__filter *next; /* below; NULL: the socket */
    int fd;
};

typedef struct td__conn {
    int fd; /* -1: none */
    td__filter *top;
} td__conn;

static inline td__conn td__conn_of(int fd)
{
    return (td__conn){.fd = fd};
}
void td__conn_close(td__conn *c); /* closed already: nothing happens */
/* f is taken, on top of what is there. */
void td__conn_push_take(td__conn *c, td__filter *f);

ssize_t td__conn_recv(const td__conn *c, const struct iovec *iov, int n);
ssize_t td__conn_send(const td__conn *c, const struct iovec *iov, int n);
void td__conn_message(const td__conn *c, uint32_t sequence, uint64_t nbytes);
uint64_t td__conn_retry_ns(const td__conn *c);

/* For filters: the same on what is below. */
ssize_t td__filter_recv_below(td__filter *f, const struct iovec *iov, int n);
ssize_t td__filter_send_below(td__filter *f, const struct iovec *iov, int n);

/* All of it, waiting; TD_EPEER when the stream ends, TD_ETIMEDOUT. `peer` is for the text. */
TD_NODISCARD td_status td__conn_recv_all(const td__conn *c, void *data, size_t nbytes,
                                         td__deadline until, const char *peer);
TD_NODISCARD td_status td__conn_send_all(const td__conn *c, const struct iovec *iov, int n,
                                         td__deadline until, const char *peer);

/* Drop the first nbytes of iov[0..*n). */
void td__iov_advance(struct iovec **iov, int *n, size_t nbytes);

#endif
