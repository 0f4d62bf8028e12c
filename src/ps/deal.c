/* deal.c -- server 0: who of the workers that have nothing to do works on what; see ps.h. Every
 * idle worker that may begin gets the next batch of this epoch, or of its part of it (parts.h); of
 * the next epoch nobody does before all batches of this one are applied.
 *
 * A worker that adds up gradients of several batches (n_push) owes those that it has not pushed:
 * these batches are done, and the sums are in its memory alone. So where a generation of elastic
 * ranks is to end, it goes on until each worker has pushed once more. Where a rank is killed sums
 * are lost: its own; of a server, which ends the generation at once, those of all workers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "coll/comm.h"
#include "ps/order.h"
#include "ps/ps.h"

/* With parts: the next step of this epoch that is worker w's; 0: there is none. */
static uint64_t next_of(td__ps_rule *r, int w)
{
    td__ps_seat *s = &r->seats[w];
    uint64_t epoch = (r->begun - 1) / r->steps_of_epoch, first = epoch * r->steps_of_epoch;
    s->next = s->epoch == epoch ? s->next : 0;
    s->epoch = epoch;
    while (s->next < r->steps_of_epoch && (r->parts[s->next].worker != w || r->done[s->next] > 0))
        s->next++;
    uint64_t step = first + s->next + 1;
    return s->next < r->steps_of_epoch && step <= r->base.x.steps ? step : 0;
}

/* The next step for worker w, which is not taken yet; 0: there is none in this epoch. owner: whose
 * it is; -1: it is one of `again`, or dealt in turn. */
static uint64_t next_for(td__ps_rule *r, int w, int *owner)
{
    uint64_t epoch = (r->begun - 1) / r->steps_of_epoch, step = 0;
    *owner = -1;
    if (r->parts && (step = next_of(r, w)) > 0) {
        *owner = w;
        return step;
    }
    if (r->n_again)
        return r->again[r->n_again - 1];
    for (int v = 0; r->parts && v < r->workers; v++)
        if ((r->seats[v].lost || r->seats[v].overdue) && (step = next_of(r, v)) > 0) {
            *owner = v;
            return step;
        }
    if (r->parts)
        return 0;
    while (r->dealt / r->steps_of_epoch == epoch &&
           r->done[r->dealt % r->steps_of_epoch] > 0) /* before the run was resumed */
        r->dealt++;
    step = r->dealt + 1;
    return step <= r->base.x.steps && (step - 1) / r->steps_of_epoch == epoch ? step : 0;
}

static void take_step(td__ps_rule *r, int owner, uint64_t step)
{
    if (owner >= 0)
        r->seats[owner].next++;
    else if (r->n_again)
        r->n_again--;
    else
        r->dealt = step;
}

uint64_t td__ps_slowest(td__ps_rule *r)
{
    uint64_t slowest = UINT64_MAX;
    int owner;
    for (int w = 0; w < r->workers; w++) {
        const td__ps_seat *s = &r->seats[w];
        bool waits = r->parts && !s->busy && !next_for(r, w, &owner);
        if (!s->lost && !s->overdue && !waits && s->clock < slowest)
            slowest = s->clock;
    }
    return slowest;
}

/* Of the idle workers that have something to do and may begin, the one that has done least; -1:
 * none. */
static int find_idle(td__ps_rule *r)
{
    uint64_t slowest = td__ps_slowest(r);
    int best = -1, owner;
    for (int w = 0; w < r->workers; w++) {
        const td__ps_seat *s = &r->seats[w];
        if (!s->busy && !s->lost && (best < 0 || s->clock < r->seats[best].clock) &&
            (!r->policy->may_begin || r->policy->may_begin(r, s->clock, slowest)) &&
            next_for(r, w, &owner))
            best = w;
    }
    return best;
}

int td__ps_deal_next(td__ps_rule *r, td__ps_order *order)
{
    int owner, w = find_idle(r);
    if (w < 0)
        return w;
    uint64_t next = next_for(r, w, &owner);
    int64_t in_epoch = (int64_t)((next - 1) % r->steps_of_epoch);
    int64_t batch = r->parts ? r->parts[in_epoch].index : in_epoch;
    take_step(r, owner, next);
    *order = (td__ps_order){.step = next,
                            .epoch = (next - 1) / r->steps_of_epoch,
                            .batch = batch * r->base.x.step.accumulate};
    return w;
}

/* ---- What workers owe ------------------------------------------------------------------------ */

/* Of those whose sums can still come. */
static int count_owed(const td__ps_rule *r)
{
    int owed = 0;
    for (int w = 0; w < r->workers; w++)
        owed += r->seats[w].overdue ? 0 : r->seats[w].owed;
    return owed;
}

void td__ps_put_off(td__ps_rule *r, td__step_result *out)
{
    double *change = &out->requests[TD_REQUEST_CHANGE], *stop = &out->requests[TD_REQUEST_STOP];
    if (!r->base.x.elastic || (*change <= 0 && *stop <= 0) || !count_owed(r))
        return;
    if (!r->owed_until)
        r->owed_until = td__deadline_in_ms(td__comm_timeout_ms(r->base.x.comm));
    if (td__deadline_passed(r->owed_until))
        return;
    r->change = r->change || *change > 0;
    *change = *stop = 0;
}

void td__ps_lose_owed(td__ps_rule *r, int worker)
{
    td__ps_seat *s = &r->seats[worker];
    if (s->owed)
        TD_LOG(WARN, TRAIN, "gradients of %d batches that rank %d has not pushed are lost", s->owed,
               r->lanes[worker].rank);
    s->owed = 0;
}

void td__ps_tell_owed(const td__ps_rule *r)
{
    int owed = count_owed(r);
    if (owed)
        TD_LOG(WARN, TRAIN,
               "gradients of %d batches that workers have not pushed yet are dropped "
               "(train.sync.n_push)",
               owed);
}
