/* grpc.h -- a gRPC server: HTTP/2 by nghttp2, messages by protobuf-c, TLS by OpenSSL, all on the
 * thread of one event loop.
 *
 * Words
 *   service  a list of methods under one name ("training.TrainingService")
 *   call     one request of a client to a method: a stream of HTTP/2
 *   message  one protobuf message of a call, in a frame of five bytes and the message
 *   metadata headers of a call that belong to the application ("authorization")
 *
 * What the server does by itself: framing, deadlines of clients (grpc-timeout), limits of sizes,
 * streams and times, keepalive, percent-encoding of error texts, UNIMPLEMENTED for unknown methods
 * and compressed messages, health (health.h) and reflection (reflection.h).
 *
 * Answers are queued by handlers and leave in the SEND phase of the loop's turn (loop.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_GRPC_H
#define TD_RPC_GRPC_H

#include <protobuf-c/protobuf-c.h>
#include <sys/socket.h>

#include "base/deadline.h"
#include "net/socket.h"
#include "rpc/loop.h"
#include "tandem/status.h"

#define TD_GRPC_CODE_MAP(X)   \
    X(OK, 0)                  \
    X(CANCELLED, 1)           \
    X(UNKNOWN, 2)             \
    X(INVALID_ARGUMENT, 3)    \
    X(DEADLINE_EXCEEDED, 4)   \
    X(NOT_FOUND, 5)           \
    X(ALREADY_EXISTS, 6)      \
    X(PERMISSION_DENIED, 7)   \
    X(RESOURCE_EXHAUSTED, 8)  \
    X(FAILED_PRECONDITION, 9) \
    X(ABORTED, 10)            \
    X(OUT_OF_RANGE, 11)       \
    X(UNIMPLEMENTED, 12)      \
    X(INTERNAL, 13)           \
    X(UNAVAILABLE, 14)        \
    X(DATA_LOSS, 15)          \
    X(UNAUTHENTICATED, 16)

typedef enum td__grpc_code {
#define X(name, value) TD_GRPC_##name = (value),
    TD_GRPC_CODE_MAP(X)
#undef X
} td__grpc_code;

const char *td__grpc_code_name(td__grpc_code code); /* "NOT_FOUND"; never NULL */

typedef struct td__grpc td__grpc; /* a server */
typedef struct td__call td__call;

/* ---- methods ---- */

typedef enum td__grpc_kind {
    TD_GRPC_UNARY,         /* one request, one answer */
    TD_GRPC_SERVER_STREAM, /* one request, any number of answers */
    TD_GRPC_CLIENT_STREAM, /* any number of requests, one answer */
    TD_GRPC_BIDI_STREAM    /* any number of both */
} td__grpc_kind;

typedef struct td__grpc_method {
    const char *name; /* "Train" */
    td__grpc_kind kind;
    const ProtobufCMessageDescriptor *request;
    /* A request came: of unary and server-streaming methods the only one, of others each one.
     * `request` is of the type above and belongs to the server; it is gone after the return. The
     * handler answers and finishes the call now or later, on the loop thread. */
    void (*handle)(td__call *c, void *arg, const void *request);
    /* Where there are several requests: the client will send no more. NULL finishes the call with
     * OK. */
    void (*half_closed)(td__call *c, void *arg);
    unsigned tag; /* for the server's `authorize`: for example what right a method needs */
} td__grpc_method;

typedef struct td__grpc_service {
    const char *name; /* "training.TrainingService" */
    const td__grpc_method *methods;
    int n_methods;
} td__grpc_service;

/* ---- calls ---- */

/* A call that a handler does not finish before it returns ends in one of two ways: the handler
 * finishes it later, or `ended` is called (the client cancelled, its deadline passed, its
 * connection is gone, the server shuts down). After either the call must not be touched again. */
typedef struct td__call_events {
    void (*ended)(void *data, td__call *c);
    /* What was queued has left, so that td__call_room() is positive again. May be NULL. */
    void (*drained)(void *data, td__call *c);
} td__call_events;

/* `e` stays the caller's and must live as long as the call. */
void td__call_follow(td__call *c, const td__call_events *e, void *data);
void *td__call_data(const td__call *c); /* of td__call_follow; NULL before */

/* Queue a message. When it cannot be queued (out of memory; a client that does not read, so that
 * more is queued than the limits allow) the call is marked as failed, and what is queued later for
 * it is dropped; it ends in this turn with RESOURCE_EXHAUSTED, through `ended`. */
void td__call_send(td__call *c, const ProtobufCMessage *m);
/* Bytes that a stream should queue at most now: 0 while a slow client has enough to read. */
size_t td__call_room(td__call *c);
/* The end. A call that failed before ends with its first error. */
void td__call_finish(td__call *c, td__grpc_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Queue the one answer of a unary call and finish with OK. */
void td__call_reply(td__call *c, const ProtobufCMessage *m);

/* Metadata by lower-case name; NULL if the client sent none. Of several values the first. Only
 * while the call is authorized: it is not kept, since streams are many and live long. */
const char *td__call_metadata(const td__call *c, const char *name);
const td__grpc_method *td__call_method(const td__call *c); /* never NULL inside handlers */
/* Where its client is; false: not known. */
bool td__call_address(const td__call *c, struct sockaddr_storage *out);
/* Who its client is and what it may do: set by `authorize`, asked by handlers. `user` is borrowed
 * for the life of the call; "" and 0 until it is set. */
void td__call_set_user(td__call *c, const char *user, unsigned rights);
const char *td__call_user(const td__call *c);
unsigned td__call_rights(const td__call *c);

/* ---- the server ---- */

/* Zero means default. */
typedef struct td__grpc_limits {
    size_t max_message;       /* bytes of a request's message; 4 MiB */
    size_t max_metadata;      /* bytes of a call's headers; 16 KiB */
    size_t max_pending;       /* bytes of unfinished messages per connection; 4 x max_message */
    size_t max_queued;        /* bytes queued per call for a client that does not read; 8 MiB */
    unsigned max_streams;     /* open calls per connection; 1024 */
    unsigned max_connections; /* 4096 */
    unsigned per_address;     /* of them of one address; 256 */
    unsigned request_ms;      /* from a call's headers to its whole request; 60 s. Of a client's
                                 stream and for each 16 KiB/s that came: a slower one is ended */
    unsigned handshake_ms;    /* from accept to the client's first settings; 10 s */
    unsigned stall_ms;        /* without any progress in writing to a client; 30 s */
    unsigned keepalive_ms;    /* silence after which the client is asked for a sign of life; 60 s */
    unsigned keepalive_answer_ms; /* for that sign; 20 s */
    unsigned idle_ms; /* without a call, until a connection is closed; 300 s. Signs of life are no
                         calls, streams under way are. */
} td__grpc_limits;

typedef struct td__grpc_opts {
    td__grpc_limits limits;
    /* Called before a handler, when the headers of a call are known; NULL lets all in. Anything but
     * TD_GRPC_OK refuses the call with that code and the text in `why`. Health and reflection ask
     * too. */
    td__grpc_code (*authorize)(void *arg, td__call *c, char *why, size_t why_bytes);
    /* A call is over: for counters and logs. `ns` is the time since its headers. May be NULL. */
    void (*observe)(void *arg, const td__call *c, td__grpc_code code, uint64_t ns);
    void *arg;
} td__grpc_opts;

/* `opts` may be NULL. The loop must outlive the server. */
TD_NODISCARD td_status td__grpc_create(td__loop *l, const td__grpc_opts *opts, td__grpc **out);
/* Ends all calls at once. NULL is allowed. */
void td__grpc_destroy(td__grpc *g);

/* `s`, its methods and `arg` stay the caller's. Before the first turn of the loop. */
TD_NODISCARD td_status td__grpc_add(td__grpc *g, const td__grpc_service *s, void *arg);

/* One more address to accept clients at: "127.0.0.1:6003", "[::1]:0", "unix:@name". With
 * cert_file and key_file (PEM) clients must speak TLS, with ALPN h2. */
typedef struct td__grpc_listener {
    const char *address;
    const char *cert_file, *key_file; /* both or none */
} td__grpc_listener;

/* `actual` has the port that was picked for port 0; NULL is allowed. */
TD_NODISCARD td_status td__grpc_listen(td__grpc *g, const td__grpc_listener *at,
                                       char actual[TD_ADDRESS_BYTES]);

/* Serve a connection that somebody else accepted or made (tests: one end of a socketpair). The
 * descriptor becomes the server's, also on failure. */
TD_NODISCARD td_status td__grpc_attach(td__grpc *g, int fd);

/* Accept nobody and tell clients to go (GOAWAY); open calls may finish until the deadline, then
 * they are ended. `done` is called once, on the loop thread, when no connection is left; it may
 * destroy the server. */
void td__grpc_shutdown(td__grpc *g, td__deadline until, void (*done)(void *arg), void *arg);

typedef struct td__grpc_stats {
    uint64_t calls, refused_connections;
    unsigned open_connections, open_calls;
} td__grpc_stats;
void td__grpc_stats_get(const td__grpc *g, td__grpc_stats *s);

/* What reflection lists: the services in the order of adding; NULL after the last. */
const td__grpc_service *td__grpc_service_at(const td__grpc *g, int i);

#endif
