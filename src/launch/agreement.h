/* agreement.h -- how the agents of an elastic job agree on its generations: their connections
 * (peers.h), the state machine (membership.h), and what the leader wants next (placement.h).
 *
 * What is decided goes to the workers of this host; the launcher hears of each generation. The
 * leader hosts the store in which the ranks of its generations meet. One thread; nothing here
 * waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_AGREEMENT_H
#define TD_LAUNCH_AGREEMENT_H

#include "launch/agent_spec.h"
#include "launch/workers.h"

typedef struct td__agreement td__agreement;

/* Listens at once. All arguments are borrowed; *lost is set when the launcher is gone. */
TD_NODISCARD td_status td__agreement_create(td__agent_spec *s, td__workers *w, bool *lost,
                                            td__agreement **out);
void td__agreement_destroy(td__agreement *g); /* NULL is allowed */
const char *td__agreement_address(const td__agreement *g);
/* With whom: the body of TD_MSG_GO, "NUMBER ADDRESS" of each agent to connect to. */
TD_NODISCARD td_status td__agreement_begin(td__agreement *g, const td__msg *m);

int td__agreement_most_fds(const td__agreement *g);
int td__agreement_poll(td__agreement *g, struct pollfd *p);
void td__agreement_serve(td__agreement *g, const struct pollfd *p);
/* After everything that has come was heard: an agent that was stopped for a while must not take for
 * silent those that spoke meanwhile. lead: propose states, if this agent leads. */
TD_NODISCARD td_status td__agreement_tick(td__agreement *g, uint64_t now, bool lead);
/* Tell the others of the processes of this host, if that has changed. */
void td__agreement_report(td__agreement *g, uint64_t now);
uint64_t td__agreement_deadline(const td__agreement *g); /* of the next tick */

const td__ms_content *td__agreement_decided(const td__agreement *g);
/* The other agents went on without this one: its processes are killed. */
bool td__agreement_expelled(const td__agreement *g);
bool td__agreement_leads(const td__agreement *g);

#endif
