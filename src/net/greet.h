/* greet.h -- from a raw socket to an authenticated connection, step by step and without blocking:
 * connect, TLS where wanted, handshake. Both ends use it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_GREET_H
#define TD_NET_GREET_H

#include "net/conn.h"
#include "net/handshake.h"
#include "net/tls.h"

typedef enum td__greet_state {
    TD_GREET_CONNECTING,
    TD_GREET_TLS,
    TD_GREET_PROVING,
    TD_GREET_DONE,
} td__greet_state;

typedef struct td__greet {
    td__conn conn;
    td__greet_state state;
    bool write; /* what the socket must become before the next step: writable, else readable */
    const td__tls *tls;
    td__hs_role role;
    td__hs_service service;
    const td__secret *secret; /* borrowed */
    td__handshake hs;
    const char *peer; /* borrowed; for texts */
} td__greet;

/* fd is taken. Clients: a socket that connects; servers: an accepted one. tls may be NULL. */
TD_NODISCARD td_status td__greet_init_take(td__greet *g, int fd, td__hs_role role,
                                           td__hs_service service, const td__secret *secret,
                                           const td__tls *tls, const char *peer);
/* As far as it goes; state DONE when there. The connection is then in g->conn. A failure has a
 * one-line reason: TD_EPEER when the other end went away, TD_EPROTO when it is a stranger. */
TD_NODISCARD td_status td__greet_step(td__greet *g);
void td__greet_fini(td__greet *g); /* closes, unless g->conn.fd is -1 */

/* Connect and greet, waiting. */
TD_NODISCARD td_status td__greet_connect(const char *address, td__hs_service service,
                                         const td__secret *secret, const td__tls *tls,
                                         td__deadline until, td__conn *out);

#endif
