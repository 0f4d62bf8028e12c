/* mesh_tcp_impl.h -- the insides of the tcp mesh, shared by mesh_tcp.c (all streams),
 * mesh_tcp_stream.c (moving messages over one) and mesh_tcp_setup.c (finding each other). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_MESH_TCP_IMPL_H
#define TD_NET_MESH_TCP_IMPL_H

#include "net/conn.h"
#include "net/frame.h"
#include "net/mesh_tcp.h"
#include "net/poison.h"
#include "net/tls.h"

/* Kinds of frames. */
enum {
    TD_TCP_HELLO = 1, /* first on a connection: tag is the rank, sequence the stream */
    TD_TCP_DATA = 2,  /* a message, or its part on this stream */
    TD_TCP_BYE = 3,   /* the rank leaves, healthy */
    TD_TCP_FAIL = 4,  /* the rank gave up: tag is its status, the payload says why */
};

enum { TD_TCP_MOST_STREAMS = 16, TD_TCP_STAGE_BYTES = 16384 };

/* A message under way; a peer's messages lie in a ring by number. */
typedef struct td__tcp_msg {
    td__xfer *x; /* NULL: done */
    uint8_t *data;
    uint64_t nbytes, left; /* left: bytes not yet moved on any stream; a message of none counts 1 */
    uint32_t tag;
} td__tcp_msg;

typedef struct td__tcp_ring {
    td__tcp_msg *msg;         /* (cap), a power of two */
    uint32_t cap, begin, end; /* message n is at n % cap; numbers may wrap */
} td__tcp_ring;

typedef struct td__tcp_stream {
    td__conn conn;
    int peer, index;
    bool readable, writable; /* as far as epoll has told; cleared when a call would block */
    bool ended;              /* nothing more can be read */
    bool broken;             /* nothing more can be sent */
    /* receiving */
    uint8_t *stage; /* bytes [stage_begin, stage_end) are read and not yet taken */
    uint32_t stage_begin, stage_end;
    bool in_head; /* the header is read, its payload is not */
    td__frame head;
    uint64_t in_got;
    int in_low;       /* bytes that must be there before epoll tells of them */
    uint32_t in_next; /* lowest message number that may come */
    /* sending */
    bool out_active;
    td__frame out_head;
    uint64_t out_sent; /* of header and part */
    uint32_t out_next; /* next message to look at */
} td__tcp_stream;

typedef struct td__tcp_peer {
    td__tcp_stream *stream; /* (streams) */
    td__tcp_ring out, in;
    uint32_t in_striped; /* receives under way that use all streams */
    bool left;
} td__tcp_peer;

typedef struct td__mesh_tcp {
    td__mesh base;
    int streams;
    bool checksum, crowded;
    td__fault_plan faults;
    bool has_faults;
    td__tls *tls;
    td__tcp_peer *peer;     /* (size) */
    td__tcp_stream *stream; /* (size * streams) */
    uint8_t *stage;         /* (size * streams * TD_TCP_STAGE_BYTES) */
    int epoll, wake;
    uint64_t looked_ns; /* when the links were looked at last */
    td__poison poison;
} td__mesh_tcp;

extern const td__mesh_ops td__mesh_tcp_ops;

static inline td__tcp_msg *td__tcp_ring_at(const td__tcp_ring *r, uint32_t n)
{
    return &r->msg[n & (r->cap - 1)];
}
static inline bool td__tcp_ring_has(const td__tcp_ring *r, uint32_t n)
{
    return n - r->begin < r->end - r->begin;
}
/* mesh_tcp_ring.c: false when out of memory. */
bool td__tcp_ring_push(td__tcp_ring *r, td__xfer *x);
/* nbytes more of a message have moved; a whole one is done, and its owner's again. */
void td__tcp_ring_moved(td__tcp_ring *r, td__tcp_msg *msg, uint64_t nbytes);

/* mesh_tcp.c: the first failure. Tells the peers, ends all streams and returns it. */
TD_NODISCARD td_status td__tcp_fail(td__mesh_tcp *m, td_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* mesh_tcp_stream.c. Does a message of this size use all streams? */
bool td__tcp_striped(const td__mesh_tcp *m, uint64_t nbytes);
/* Bytes that are read and not yet taken. */
uint32_t td__tcp_staged(const td__tcp_stream *s);
/* As much as the socket takes, up to a good piece; *moved is set if anything did. */
TD_NODISCARD td_status td__tcp_send_step(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s,
                                         bool *moved);
/* What is known to be there, up to a good piece. Reads ahead into the stage also without a posted
 * receive: that is how the end of a stream is noticed. */
TD_NODISCARD td_status td__tcp_recv_step(td__mesh_tcp *m, td__tcp_peer *p, td__tcp_stream *s,
                                         bool *moved);

#endif
