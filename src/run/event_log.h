/* event_log.h -- the last events of a run, kept by every rank: rank 0 alone writes them down, and
 * when it dies, the next rank 0 writes what is missing. A rank writes the line of a step before
 * it takes part in the next one, so at most one line is ever missing on a file system that keeps
 * what was written; a few more are kept for those that do not. Plain data: it travels with the
 * state. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_EVENT_LOG_H
#define TD_RUN_EVENT_LOG_H

#include "run/observer.h"
#include "run/result.h"

enum { TD__EVENT_LOG_STEPS = 16 };

typedef struct td__event_log {
    uint64_t n; /* steps noted so far; the last TD__PAST_STEPS of them are kept */
    td__step_event step[TD__EVENT_LOG_STEPS];
    int32_t counted[TD__EVENT_LOG_STEPS]; /* the one rank whose work is in the step; -1: of all */
    struct {
        uint64_t step, epoch; /* step 0: none yet */
        double value[TD__MAX_METRICS + 1];
        double seconds;
        int n;
        bool best;
    } eval; /* the last validation */
} td__event_log;

void td__event_log_step(td__event_log *p, const td__step_event *e);
void td__event_log_eval(td__event_log *p, const td__eval_event *e);
/* Tell o what came after step `step` and after the validation of step `valid`. The names of the
 * metrics and of the part are the caller's. */
TD_NODISCARD td_status td__event_log_tell(const td__event_log *p, uint64_t step, uint64_t valid,
                                          const char *const *names, const char *part,
                                          td__observer *o);

#endif
