/* peers.h -- the connections between the agents of an elastic launch: authenticated as all others
 * are, with TLS when it is on, one between each two, made by the agent with the higher number.
 *
 * ended      The other kernel closed it: that agent's process is dead. An agent never closes a
 *            connection before it has killed its processes for good.
 * silent     Everything else: nobody can tell. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_PEERS_H
#define TD_LAUNCH_PEERS_H

#include <poll.h>

#include "launch/agent_spec.h"

typedef struct td__peers td__peers;
typedef struct td__peers_ops {
    void (*met)(void *user, int agent); /* a connection is there */
    void (*heard)(void *user, int agent, uint8_t kind, const void *data, size_t nbytes);
    void (*ended)(void *user, int agent, bool reset); /* reset: not by a clean close */
} td__peers_ops;

/* Listens at once. Everything is borrowed. */
TD_NODISCARD td_status td__peers_create(const td__agent_spec *s, const td__peers_ops *ops,
                                        void *user, td__peers **out);
void td__peers_destroy(td__peers *p); /* NULL is allowed */
const char *td__peers_address(const td__peers *p);
/* Begin to connect to an agent with a lower number. */
void td__peers_dial(td__peers *p, int agent, const char *address);
void td__peers_send(td__peers *p, int agent, uint8_t kind, const void *data, size_t nbytes);

int td__peers_most_fds(const td__peers *p);
int td__peers_poll(td__peers *p, struct pollfd *fds);
void td__peers_serve(td__peers *p, const struct pollfd *fds);

#endif
