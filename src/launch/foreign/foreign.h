/* foreign.h -- what programs of other systems need from their launcher beside variables: a server,
 * in the agent of each host, that speaks the protocol by which they find each other.
 *
 *     mpich     PMI-1, lines of text over a descriptor that the rank inherits
 *     openmpi   PMIx, by libpmix, in a module that is loaded when it is asked for
 *     horovod   a key-value service over HTTP, for its controller gloo
 *
 * One file each and a line in foreign.def. Values go from host to host through the rendezvous store
 * of the agents (exchange.h), which is authenticated: a server talks to the ranks of its host
 * alone, and ends with the generation.
 *
 * Threads   create, rank and destroy are called by the agent's thread; a server has its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FOREIGN_FOREIGN_H
#define TD_LAUNCH_FOREIGN_FOREIGN_H

#include "launch/agent_spec.h"
#include "launch/foreign/http.h"
#include "launch/rank_env.h"

typedef struct td__foreign td__foreign;

/* Is there such a system? Its names, for messages: "mpich, openmpi, horovod". */
bool td__foreign_known(const char *name);
const char *td__foreign_names(char *out, size_t max);
/* TD_OK, or why its server cannot be had here; so that it is known before agents are started. */
TD_NODISCARD td_status td__foreign_check(const char *name, const td__foreign_http *http);

/* The server that s->framework names; *out NULL: it names none. s and plan are borrowed. */
TD_NODISCARD td_status td__foreign_create(const td__agent_spec *s, const td__rank_plan *plan,
                                          td__foreign **out);
void td__foreign_destroy(td__foreign *f); /* NULL is allowed */

/* Before rank `rank` of this host is started: append its variables; *fd: a descriptor that it is to
 * inherit, the caller's, or -1. f NULL: nothing. */
TD_NODISCARD td_status td__foreign_rank(td__foreign *f, int rank, td__texts *env, int *fd);

/* Readable when a rank has asked to be aborted (MPI_Abort), which then waits to be killed. f NULL:
 * -1. */
int td__foreign_fd(const td__foreign *f);
/* Readable no longer. Who calls it then looks at all ranks of the host: one that asks afterwards
 * makes it readable again. */
void td__foreign_hear(td__foreign *f);
/* The exit status that the rank named, -1: it has not asked. f NULL: -1. */
int td__foreign_aborted(const td__foreign *f, int rank);

#endif
