/* grpc_impl.h -- the structs of the gRPC server and what its files need of each other:
 *
 *   grpc_server.c  services, listeners, limits, shutdown
 *   grpc_conn.c    one connection: bytes in and out, keepalive, stalls
 *   grpc_session.c HTTP/2: nghttp2's callbacks, from frames to calls
 *   grpc_call.c    one call: its request, its answers, its end
 *   grpc_tls.c     TLS as a filter of bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_GRPC_IMPL_H
#define TD_RPC_GRPC_IMPL_H

#include <nghttp2/nghttp2.h>

#include "base/text.h"
#include "rpc/grpc.h"
#include "rpc/grpc_tls.h"
#include "rpc/guard.h"

typedef struct td__grpc_conn td__grpc_conn;

/* ---- calls ---- */

/* A call passes through these states in order and may skip some. */
typedef enum call_state {
    CALL_HEADERS, /* headers are being received */
    CALL_OPEN,    /* a method was found; messages may come */
    CALL_FINISHED /* its end is queued: nothing more is accepted from client or handler */
} call_state;

struct td__call {
    td__grpc_conn *conn;
    int32_t stream;
    call_state state;
    const struct grpc_entry *entry; /* its service */
    const td__grpc_method *method;
    const td__call_events *events;
    void *data;
    const char *user;
    td__call *next, **link; /* of the connection */
    uint64_t began;
    td__deadline deadline;
    td__timer timer;       /* the client's deadline, or the end of its time for the request */
    bool posted, has_type; /* :method POST and a gRPC content type were seen */
    bool bad_timeout;      /* grpc-timeout is malformed */
    bool half_closed;      /* the client will send no more */
    bool response_begun;   /* HEADERS were queued */
    bool deferred;         /* nghttp2 waits for more data */
    bool wants_drained;    /* room was 0 */
    bool failed;           /* ends at the end of this turn, through `ended` */
    unsigned rights;       /* of the user */
    td__grpc_code code;    /* the end */
    char *why;             /* percent-encoded text of the end; NULL: none */
    uint64_t timeout_ns;   /* 0: none */
    uint8_t *in;           /* frames that are not complete yet */
    size_t n_in, in_room;
    uint64_t received; /* bytes */
    uint8_t *out;      /* frames [out_at, n_out) wait to be sent */
    size_t out_at, n_out, out_room;
};

td__call *td__call_create(td__grpc_conn *conn, int32_t stream);
/* The stream is closed, or the connection is going: release everything; `ended` is called if the
 * handler still waits. */
void td__call_destroy(td__call *c);
/* All headers are there: find the method, check, begin. */
void td__call_begin(td__call *c);
/* Bytes of the request body. */
void td__call_receive(td__call *c, const uint8_t *data, size_t nbytes);
void td__call_half_close(td__call *c);
/* End a call by the server's own decision: the handler is told through `ended`. */
void td__call_end(td__call *c, td__grpc_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Queued bytes for nghttp2: its data source. */
ssize_t td__call_read(nghttp2_session *s, int32_t stream, uint8_t *buf, size_t nbytes,
                      uint32_t *flags, nghttp2_data_source *source, void *user);

/* ---- connections ---- */

struct td__grpc_conn {
    td__grpc *server;
    td__watch watch;
    nghttp2_session *session;
    td__grpc_tls *tls; /* NULL: plain */
    td__call *calls;
    td__call *beginning;     /* whose headers are being received: HTTP/2 has one such at a time */
    td__text path, metadata; /* of it; metadata: name 0 value 0 name 0 ... */
    unsigned n_calls;
    size_t pending;              /* bytes in calls' `in` */
    td__grpc_conn *next, **link; /* of the server */
    td__grpc_conn *next_dirty;   /* has something to send in this turn */
    bool dirty;
    bool greeted; /* its settings came */
    bool pinged;  /* it was asked for a sign of life */
    bool closing; /* GOAWAY was sent: close when no call is left */
    bool broken;  /* what came is no HTTP/2 or TLS: close after a last write */
    bool failing; /* some of its calls are marked as failed */
    uint8_t *out; /* bytes [out_at, n_out) that the socket did not take */
    size_t out_at, n_out, out_room;
    td__timer timer;       /* handshake, keepalive or stall, whichever is next */
    td__deadline stall_at; /* while the socket takes nothing; else TD_DEADLINE_NEVER */
    uint64_t idle_since;   /* when it had no call any more */
    uint64_t heard;        /* when a frame came last */
    char peer[TD_ADDRESS_BYTES];
    struct sockaddr_storage address; /* counted by the server's clients */
};

/* fd becomes the connection's, also on failure. */
TD_NODISCARD td_status td__grpc_conn_create(td__grpc *g, int fd, const td__grpc_tls_context *tls);
void td__grpc_conn_destroy(td__grpc_conn *conn);
/* Something is to be sent: in the SEND phase of this turn. */
void td__grpc_conn_touch(td__grpc_conn *conn);
/* Write as much as the socket takes. The connection may be gone afterwards. */
void td__grpc_conn_flush(td__grpc_conn *conn);
/* Its last call has ended. */
void td__grpc_conn_idle(td__grpc_conn *conn);
/* Tell the client to go (GOAWAY); close when no call is left. */
void td__grpc_conn_goodbye(td__grpc_conn *conn);

/* HTTP/2 on a connection. */
TD_NODISCARD td_status td__grpc_session_create(td__grpc_conn *conn);

/* ---- the server ---- */

typedef struct grpc_entry {
    const td__grpc_service *service;
    void *arg;
    struct grpc_entry *next;
} grpc_entry;

typedef struct grpc_listener {
    td__grpc *server;
    td__watch watch;
    td__grpc_tls_context *tls;
    td__timer retry; /* out of descriptors: accept again later */
    struct grpc_listener *next;
} grpc_listener;

enum { TD_GRPC_READ_BYTES = 65536 };

struct td__grpc {
    td__loop *loop;
    td__grpc_opts opts; /* limits with defaults filled in */
    grpc_entry *services, **last_service;
    grpc_listener *listeners;
    td__grpc_conn *conns, *dirty;
    td__clients *clients; /* their connections */
    td__turn_hook send;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    td__grpc_stats stats;
    bool leaving; /* shutting down */
    td__timer leave;
    void (*done)(void *arg);
    void *done_arg;
    uint8_t
        *out; /* bytes on their way to a socket; used by one connection at a time, as is `read` */
    size_t out_room;
    uint8_t read[TD_GRPC_READ_BYTES];
};

/* The service and method of "/package.Service/Method"; NULL if there is none. */
const td__grpc_method *td__grpc_find(const td__grpc *g, const char *path, const grpc_entry **entry);
/* A connection is gone: shutting down may be over. */
void td__grpc_conn_gone(td__grpc *g);
/* The callbacks of all sessions, and how strict sessions are. */
TD_NODISCARD td_status td__grpc_session_setup(td__grpc *g);

#endif
