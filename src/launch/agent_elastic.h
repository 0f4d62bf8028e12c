/* agent_elastic.h -- one host's agent of an elastic launch: it agrees with the other agents on
 * generations (membership.h), leads them when it is its turn (placement.h), and runs the processes
 * of its host (workers.h).
 *
 * Conversation with the launcher: SPEC, PARENT; READY (the address for the other agents); GO
 * ("INDEX HOST:PORT" of each that was started before); then output, generations, the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_AGENT_ELASTIC_H
#define TD_LAUNCH_AGENT_ELASTIC_H

#include "launch/agent_spec.h"

/* Until the job is over. *lost: the launcher is gone. */
TD_NODISCARD td_status td__agent_elastic(td__agent_spec *s, bool *lost);

#endif
