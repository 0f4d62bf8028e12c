/* rpc_client.h -- a gRPC client of the tests, on nghttp2, in the thread of the server's loop: it
 * turns the loop until what it waits for has come. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_RPC_CLIENT_H
#define TD_TESTS_SUPPORT_RPC_CLIENT_H

#include "rpc/grpc.h"

typedef struct rpc_client rpc_client;

/* What came back of one call. */
typedef struct rpc_reply {
    int http;          /* :status; 0: none yet */
    int status;        /* grpc-status; -1: none */
    char message[256]; /* grpc-message, as on the wire */
    uint8_t *body;     /* frames */
    size_t n_body;
    bool closed;    /* the stream is over */
    uint32_t error; /* of a reset stream; 0: none */
} rpc_reply;

/* Connected to the server by a socketpair, or to a listener at an address. */
rpc_client *rpc_client_attach(td__loop *l, td__grpc *g);
rpc_client *rpc_client_connect(td__loop *l, const char *address);
void rpc_client_close(rpc_client *c);
int rpc_client_fd(const rpc_client *c);
bool rpc_client_gone(const rpc_client *c);   /* the server closed the connection */
bool rpc_client_goaway(const rpc_client *c); /* it was told to go */
void rpc_client_stop_reading(rpc_client *c); /* no bytes are taken from the socket any more */

/* A call: headers are pairs "name", "value", ended by NULL, which replace or join the usual ones.
 * `end`: the request is complete. */
int32_t rpc_call(rpc_client *c, const char *path, const char *const *headers, const void *body,
                 size_t n_body, bool end);
void rpc_call_data(rpc_client *c, int32_t call, const void *body, size_t n_body, bool end);
void rpc_call_cancel(rpc_client *c, int32_t call);
const rpc_reply *rpc_reply_of(const rpc_client *c, int32_t call);
/* Turn the loop until the call is over, or has so many bytes of body; fails after ten seconds. */
const rpc_reply *rpc_wait(rpc_client *c, int32_t call);
const rpc_reply *rpc_wait_body(rpc_client *c, int32_t call, size_t nbytes);
/* One turn of the loop and of the client. */
void rpc_turn(rpc_client *c);

/* A unary call with a protobuf message; returns the reply, and unpacks its message if *out is
 * wanted and there is one (free with protobuf_c_message_free_unpacked). */
const rpc_reply *rpc_unary(rpc_client *c, const char *path, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *type, ProtobufCMessage **out);
/* Frame a message into buf; returns the bytes. */
size_t rpc_frame(uint8_t *buf, size_t room, const ProtobufCMessage *m);

#endif
