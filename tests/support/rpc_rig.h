/* rpc_rig.h -- a gRPC server with a service for tests and a raw client, on one loop. What a request
 * makes the server do is in its text: "fail", "hold", a number of messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_RPC_RIG_H
#define TD_TESTS_SUPPORT_RPC_RIG_H

#include "support/rpc_client.h"

typedef struct rpc_rig {
    td__loop *loop;
    td__grpc *server;
    rpc_client *client;
    td__call *held; /* a call that its handler did not finish */
    int handled, ended, drained, observed;
    td__grpc_code last;
    bool done;
} rpc_rig;

void rpc_rig_answer(td__call *c, int number);
void rpc_rig_init(rpc_rig *r, const td__grpc_limits *limits);
void rpc_rig_fini(rpc_rig *r);
size_t rpc_rig_text_frame(uint8_t *buf, size_t room, const char *text);
int32_t rpc_rig_start(rpc_rig *r, const char *path, const char *text, const char *const *headers,
                      bool end);
const rpc_reply *rpc_rig_say(rpc_rig *r, const char *path, const char *text,
                             const char *const *headers);
void rpc_rig_turn_until(rpc_rig *r, const bool *flag);

#endif
