/* store_wire.h -- what clients and servers of the store say to each other.
 *
 * Frames (frame.h): kind is one of TD_STORE_OP_MAP, tag the number that a client gave its request
 * and that the reply carries back. The payload begins with one fixed-size record:
 *
 *     requests, EVENT   {u16 key_nbytes, u16 flags, u32 expect_nbytes, i64 number},
 *                       then key, expect, value (all the rest)
 *     REPLY             {i32 status, u32 flags, i64 number}, then value, or the text of an error
 *
 * number is the delta of ADD, the count of WAIT_ALL, the rank of JOIN, TELL, LEAVE, DEAD and EVENT.
 * A client's connection that ends without BYE is the death of its members. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_STORE_WIRE_H
#define TD_NET_STORE_WIRE_H

#include <assert.h>

#include "net/frame.h"
#include "tandem/status.h"

#define TD_STORE_OP_MAP(X)                                         \
    X(SET)                                                         \
    X(GET)                                                         \
    X(WAIT)                                                        \
    X(WAIT_ALL)                                                    \
    X(ADD)                                                         \
    X(COMPARE_SET)                                                 \
    X(DELETE)                                                      \
    X(CANCEL) /* forget the wait with this tag; no reply */        \
    X(JOIN)                                                        \
    X(TELL)   /* a member says something to its group; no reply */ \
    X(LEAVE)  /* a member below this store left; no reply */       \
    X(DEAD)   /* a member below this store died; no reply */       \
    X(BYE)    /* the connection ends on purpose; no reply */       \
    X(BELOW)  /* who says this is a store below; no reply */       \
    X(FORGET) /* to stores below: this key has changed */          \
    X(REPLY)                                                       \
    X(EVENT)

typedef enum td__store_op {
#define X(id) TD_STORE_##id,
    TD_STORE_OP_MAP(X)
#undef X
        TD_STORE_OP_COUNT
} td__store_op;

enum {
    TD_STORE_KEY_BYTES = 255,
    TD_STORE_PREFIX_BYTES = 240, /* of wait_all: a number follows */
    TD_STORE_VALUE_BYTES = 1 << 20,
    TD_STORE_REQUEST_BYTES = 16 + TD_STORE_KEY_BYTES + 2 * TD_STORE_VALUE_BYTES,
    TD_STORE_REPLY_BYTES = 64 << 20,
    TD_STORE_TEXT_BYTES = 1000, /* of td__store_tell */
    TD_STORE_MOST_RANKS = 1 << 20,
};
enum { TD_STORE_HAS_EXPECT = 1, TD_STORE_HAS_VALUE = 1 };

typedef struct td__store_request {
    uint16_t key_nbytes;
    uint16_t flags;
    uint32_t expect_nbytes;
    int64_t number;
} td__store_request;
static_assert(sizeof(td__store_request) == 16 && offsetof(td__store_request, number) == 8, "wire");

typedef struct td__store_reply {
    int32_t status;
    uint32_t flags;
    int64_t number;
} td__store_reply;
static_assert(sizeof(td__store_reply) == 16 && offsetof(td__store_reply, number) == 8, "wire");

/* A request (or event) taken apart; pointers into the payload, except key. */
typedef struct td__store_parts {
    td__store_op op;
    uint32_t id;
    int64_t number;
    char key[TD_STORE_KEY_BYTES + 1];
    const void *expect; /* NULL: absent is expected */
    size_t expect_nbytes;
    const void *value;
    size_t nbytes;
} td__store_parts;

/* TD_EPROTO for what cannot be. */
TD_NODISCARD td_status td__store_parse(const td__frame *f, const void *payload,
                                       td__store_parts *out);

#endif
