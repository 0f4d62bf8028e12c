/* sweeps.h -- the sweeps of a service: starts their trials as jobs, reads their metrics, stops
 * those that asha gives up, and goes on after a restart.
 *
 * Thread   Loop thread, as all of service.h. Destroy it before the service. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_SWEEP_SWEEPS_H
#define TD_SERVICE_SWEEP_SWEEPS_H

#include "service/service.h"

typedef struct td__sweeps td__sweeps;

TD_NODISCARD td_status td__sweeps_create(td__service *s, td__sweeps **out);
void td__sweeps_destroy(td__sweeps *w); /* NULL is allowed; trials go on */

/* The text is YAML or JSON; keys in sweep.def. */
TD_NODISCARD td__answer td__sweeps_submit(td__sweeps *w, const td__caller *who, const char *text,
                                          size_t nbytes, int64_t *sweep);
/* Starts no more trials, and cancels those under way. */
TD_NODISCARD td__answer td__sweeps_cancel(td__sweeps *w, const td__caller *who, int64_t sweep);
/* One sweep: its plan, its trials with parameters, state and value, the best one. */
TD_NODISCARD td__answer td__sweeps_json(td__sweeps *w, int64_t sweep, td__text *out);
void td__sweeps_list_json(td__sweeps *w, td__text *out);

#endif
