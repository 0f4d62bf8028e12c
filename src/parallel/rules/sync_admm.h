/* sync_admm.h -- what admm and async-admm share: see sync_admm.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SYNC_ADMM_H
#define TD_PARALLEL_SYNC_ADMM_H

#include "parallel/rules/sync_local.h"

#define TD__ADMM_RHO                                                            \
    TD_KEY_ROW("rho", REAL, "Weight of the distance to the centre.", .hi = 1e6, \
               .flags = TD_KEY_ABOVE, .def = "1")

/* The proximal step after an update with this rate: towards the centre less u, the duals. */
TD_NODISCARD td_status td__admm_pull(td__sync_local *l, const float *u, double lr);

#endif
