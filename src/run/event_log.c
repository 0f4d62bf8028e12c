/* event_log.c -- see event_log.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/event_log.h"

#include <string.h>

#include "base/fail.h"

void td__event_log_step(td__event_log *p, const td__step_event *e)
{
    uint64_t i = p->n++ % TD__EVENT_LOG_STEPS;
    p->step[i] = *e;
    p->counted[i] = e->n_counted == 1 ? e->counted[0] : -1;
    p->step[i].counted = NULL; /* memory of this process, and of this step */
    p->step[i].n_counted = 0;
}

void td__event_log_eval(td__event_log *p, const td__eval_event *e)
{
    p->eval.step = e->step;
    p->eval.epoch = e->epoch;
    p->eval.seconds = e->seconds;
    p->eval.best = e->best;
    p->eval.n = e->n;
    for (int i = 0; i < e->n; i++)
        p->eval.value[i] = e->value[i];
}

static td_status tell_eval(const td__event_log *p, const char *const *names, const char *part,
                           td__observer *o)
{
    td__eval_event e = {.step = p->eval.step,
                        .epoch = p->eval.epoch,
                        .part = part,
                        .n = p->eval.n,
                        .name = names,
                        .value = p->eval.value,
                        .best = p->eval.best,
                        .seconds = p->eval.seconds};
    return o->eval ? o->eval(o, &e) : TD_OK;
}

td_status td__event_log_tell(const td__event_log *p, uint64_t step, uint64_t valid,
                             const char *const *names, const char *part, td__observer *o)
{
    uint64_t first = p->n > TD__EVENT_LOG_STEPS ? p->n - TD__EVENT_LOG_STEPS : 0;
    bool eval = p->eval.step > valid;

    for (uint64_t i = first; i < p->n; i++) {
        const td__step_event *e = &p->step[i % TD__EVENT_LOG_STEPS];
        const int counted = p->counted[i % TD__EVENT_LOG_STEPS];
        td__step_event told = *e;
        if (eval && p->eval.step < e->step) {
            TD_TRY(tell_eval(p, names, part, o));
            eval = false;
        }
        if (counted >= 0) {
            told.counted = &counted;
            told.n_counted = 1;
        }
        if (e->step > step && o->step)
            TD_TRY(o->step(o, &told));
    }
    return eval ? tell_eval(p, names, part, o) : TD_OK;
}
