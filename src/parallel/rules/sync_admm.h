/* sync_admm.h -- what admm and async-admm share (sync_admm.c): duals, the proximal step, the
 * residuals. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SYNC_ADMM_H
#define TD_PARALLEL_SYNC_ADMM_H

#include "parallel/rules/sync_local.h"

/* The struct of such a rule begins with this; base.centre is z. */
typedef struct td__admm {
    td__sync_local base;
    float *u;            /* (count) scaled duals */
    double primal2;      /* this rank's part of the primal residual, squared */
    double primal, dual; /* NaN before the first exchange */
} td__admm;

#define TD__ADMM_RHO                                                            \
    TD_KEY_ROW("rho", REAL, "Weight of the distance to the centre.", .hi = 1e6, \
               .flags = TD_KEY_ABOVE, .def = "1")

TD_NODISCARD td_status td__admm_create(td__sync *s, const td__local_ops *ops);
void td__admm_destroy(td__sync *s);
size_t td__admm_exchange(const td__sync_sizes *z);
/* Takes the mean as z. */
void td__admm_merge(td__sync_local *l, float *x);
void td__admm_settle(td__sync_local *l, float *x);
/* The proximal step after an update with this rate. */
TD_NODISCARD td_status td__admm_pull(td__sync *s, double lr);
int td__admm_notes(td__sync *s, td__step_note *out);

#endif
