/* job_run_seat.c -- an elastic process that is to train on a GPU: which one follows from its place
 * among the ranks of its host. One that waits beside a full world opens none: it takes that of the
 * process that it comes for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/job_run.h"
#include "base/deadline.h"
#include "coll/members.h"
#include "graph/backend_auto.h"

bool td__job_run_late(const td__job_run *r)
{
    const td__session *s = &r->session;
    return r->o.late && s->members->ops->await_seat && td__backend_traits(s->opts.backend).gpus;
}

td_status td__job_run_seat(td__job_run *r, const atomic_int *stop)
{
    enum { AGAIN_MS = 200 };
    td__session *s = &r->session;
    td__members *m = s->members;
    bool leaves = false;
    int seat = 0;
    for (;;) {
        m->ops->heartbeat(m, &(td__heartbeat){.phase = TD_PHASE_COMM, .what = "a generation"});
        td_status st = m->ops->await_seat(m, td__deadline_in_ms(AGAIN_MS), &seat);
        s->opts.seat = 1 + seat;
        if (!st) {
            m->ops->heartbeat(m, &(td__heartbeat){.phase = TD_PHASE_DISK, .what = "a GPU opened"});
            return td__session_trainer(s);
        }
        if (st == TD_EABORTED && leaves)
            r->result.end = TD_TRAIN_INTERRUPTED;
        if (st != TD_ETIMEDOUT)
            return st == TD_EABORTED && leaves ? TD_OK : st;
        if (stop && atomic_load(stop) && !leaves)
            m->ops->drain(m);
        leaves = leaves || (stop && atomic_load(stop));
    }
}
