/* mirror_ring.h -- of elastic stages without replicas: which messages of sums (held_step.h) each
 * sends to the rank that mirrors it, for the plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_MIRROR_RING_H
#define TD_PIPELINE_MIRROR_RING_H

#include "parallel/ownership.h"
#include "plan/pipeline_plan.h"

/* (ranks), of a map of so many; host_of as in td__holdings_of(). To be freed with td__ring_free. */
TD_NODISCARD td_status td__ring_of(const td__ownership *m, const int *host_of, td__plan_ring **out);
void td__ring_free(td__plan_ring *ring, int ranks); /* NULL is allowed */

#endif
