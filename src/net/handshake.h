/* handshake.h -- both ends of a connection prove that they know the job's secret.
 *
 *     client -> server   hello_c  {magic 8, version 2, role 2, service 4, nonce 32}   48 bytes
 *     server -> client   hello_s, proof_s                                             48 + 32
 *     client -> server   proof_c                                                      32
 *
 *     proof_x = HMAC-SHA256(secret, label_x || hello_c || hello_s || binding)
 *
 * label_x names the prover's role, both hellos are under both proofs, and each side draws a fresh
 * nonce: a proof can be neither reflected nor replayed. `binding` is the TLS exporter value (zeros
 * without TLS), so that a proof belongs to one TLS channel. `service` keeps a connection meant for
 * one listener from being handed to another.
 *
 * This is the state machine alone, without a socket: bytes in, bytes out. Everything has a fixed
 * size; nothing is allocated. Proofs are compared in constant time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_HANDSHAKE_H
#define TD_NET_HANDSHAKE_H

#include "net/store.h"

enum { TD_HELLO_BYTES = 48, TD_PROOF_BYTES = 32, TD_NONCE_BYTES = 32, TD_BINDING_BYTES = 32 };

typedef enum td__hs_role { TD_HS_CLIENT = 1, TD_HS_SERVER = 2 } td__hs_role;
typedef enum td__hs_service {
    TD_HS_STORE = 1,
    TD_HS_MESH = 2,
    TD_HS_AGENT = 3,
    TD_HS_OUTPUTS = 4
} td__hs_service;

typedef struct td__handshake {
    td__hs_role role;
    td__hs_service service;
    td__secret secret;
    uint8_t binding[TD_BINDING_BYTES];
    uint8_t hello[2][TD_HELLO_BYTES]; /* client's, server's */
    uint8_t in[TD_HELLO_BYTES + TD_PROOF_BYTES], out[TD_HELLO_BYTES + TD_PROOF_BYTES];
    size_t in_used, in_want; /* in_want - in_used bytes are to be read next, never more */
    size_t out_used, out_sent;
    bool done;     /* nothing more to read: the peer is proven */
    bool answered; /* the peer's hello was read */
} td__handshake;

/* binding NULL: no TLS. */
TD_NODISCARD td_status td__handshake_init(td__handshake *h, const td__secret *secret,
                                          td__hs_role role, td__hs_service service,
                                          const uint8_t *binding);
/* After in[in_used..in_want) has been filled: check it and go on. TD_EPROTO for a stranger. When
 * done is set and all of out[0..out_used) has been sent, the connection is authenticated. */
TD_NODISCARD td_status td__handshake_advance(td__handshake *h);

#endif
