/* check_plan.h -- what `tandem check` says of the communication plan of a step. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_CHECK_PLAN_H
#define TD_CMD_CHECK_PLAN_H

#include "plan/plan.h"
#include "session.h"
#include "train/memory.h"

/* What is expected of links between ranks, of one host's memory or not; in words. */
const td__plan_link *td__check_link(bool shared);
const char *td__check_link_text(bool shared);

/* Every operation of the plan with its time; and to `file`, unless that is NULL, a timeline. */
TD_NODISCARD td_status td__check_print_plan(const td__plan *p, const td__plan_times *times,
                                            const char *file);
/* The plan of ranks with whole models, or with pieces of all layers. */
TD_NODISCARD td_status td__check_plan(const td__session *s, const td__memory_case *c,
                                      const char *file);

#endif
