/* phase.h -- the phases of a run: forward, backward, weight gradients. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_PHASE_H
#define TD_OPS_PHASE_H

/* When a node is needed. Autodiff tells gradients of activations, which the nodes before wait for,
 * from those of params, which nobody waits for but the optimizer. */
typedef enum td_run_phase {
    TD_RUN_FORWARD,
    TD_RUN_BACKWARD, /* gradients of activations and inputs */
    TD_RUN_WEIGHT,   /* what only gradients of params need */
    TD_RUN_PHASE_COUNT
} td_run_phase;

#endif
