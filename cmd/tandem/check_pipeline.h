/* check_pipeline.h -- what `tandem check` says of a pipeline. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_CHECK_PIPELINE_H
#define TD_CMD_CHECK_PIPELINE_H

#include "session.h"
#include "train/memory.h"

/* Can the model be cut into the stages of so many ranks? */
TD_NODISCARD td_status td__check_cut(const td__session *s, int ranks, bool elastic);
/* Chunks with their params and memory, the expected bubble; whole: the plan, and as a timeline to
 * `file` unless that is NULL. */
TD_NODISCARD td_status td__check_pipeline(const td__session *s, const td__memory_case *c,
                                          bool whole, const char *file);

#endif
