/* attempt_spec.h -- what a supervisor reads first: the file `spec` of an attempt (supervise.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_ATTEMPT_SPEC_H
#define TD_SERVICE_TRACK_ATTEMPT_SPEC_H

#include "service/track/tracker.h"

/* gpus: numbers of those that the group has, members times spec->gpus. */
TD_NODISCARD td_status td__attempt_write(const char *path, const td__group *g, const int *gpus);

#endif
