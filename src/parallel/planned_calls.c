/* planned_calls.c -- see planned_calls.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/planned_calls.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/human.h"

td_status td__planned_calls_init(td__planned_calls *c, const td__plan *plan, int role,
                                 bool (*of)(const td__plan_op *o))
{
    const td__plan_list *l = &plan->roles[role];
    *c = (td__planned_calls){.plan = plan, .role = role};
    c->at = td__calloc((size_t)l->n + 1, sizeof *c->at);
    if (!c->at)
        return TD_FAIL(TD_ENOMEM, "no memory for a communication plan of %d operations", l->n);
    for (int i = 0; i < l->n; i++)
        if (of(&l->ops[i]))
            c->at[c->n++] = i;
    return TD_OK;
}

void td__planned_calls_fini(td__planned_calls *c)
{
    td__planned_calls_leave(c);
    td__free(c->at);
    *c = (td__planned_calls){.plan = NULL};
}

/* The operation that a call is: kinds as in the plan, bytes of all ranks' parts together. */
static bool as_planned(const td__planned_calls *c, const td__plan_op *o, const td__coll_call *call)
{
    static const td__coll COLLS[TD_PLAN_COLLS] = {[TD_PLAN_ALLREDUCE] = TD_COLL_ALLREDUCE,
                                                  [TD_PLAN_REDUCE_SCATTER] = TD_COLL_REDUCE_SCATTER,
                                                  [TD_PLAN_ALL_GATHER] = TD_COLL_ALL_GATHER,
                                                  [TD_PLAN_BROADCAST] = TD_COLL_BROADCAST,
                                                  [TD_PLAN_ALL_TO_ALL] = TD_COLL_ALL_TO_ALL,
                                                  [TD_PLAN_BARRIER] = TD_COLL_BARRIER};
    uint64_t nbytes = call->count * td_dtype_size(call->dtype), planned = o->nbytes;
    if (call->kind == TD_COLL_ALL_GATHER || call->kind == TD_COLL_ALL_TO_ALL ||
        call->kind == TD_COLL_REDUCE_SCATTER)
        nbytes *= (uint64_t)td_comm_size(c->comm);
    if (o->phase == TD__PLAN_NUMBERS && c->numbers)
        planned = c->numbers;
    if (o->phase == TD__PLAN_TURN)
        planned = 1;
    if (planned != nbytes && planned != TD__PLAN_ANY)
        return false;
    if (o->kind == TD_PLAN_COLL)
        return COLLS[o->coll] == call->kind;
    return (o->kind == TD_PLAN_SEND ? TD_COLL_SEND : TD_COLL_RECV) == call->kind &&
           td_comm_rank(c->comm) + o->peer == call->root;
}

static char *call_text(const td__coll_call *call, char buf[96])
{
    char size[TD__HUMAN];
    bool message = call->kind == TD_COLL_SEND || call->kind == TD_COLL_RECV;
    int n = snprintf(buf, 96, "%s of %s", td__coll_name(call->kind),
                     td__human_bytes((double)(call->count * td_dtype_size(call->dtype)), size));
    if (message)
        snprintf(buf + n, 96 - (size_t)n, " %s rank %d", call->kind == TD_COLL_SEND ? "to" : "from",
                 call->root);
    return buf;
}

static td_status out_of_plan(const td__planned_calls *c, const td__coll_call *call)
{
    char text[96], planned[TD__PLAN_TEXT] = "";
    if (c->made < c->end)
        td__plan_op_text(c->plan, c->role, c->at[c->made], planned);
    return TD_FAIL(TD_EMISMATCH,
                   "rank %d makes a call in step %llu that is not in the communication plan: %s, "
                   "where the plan has %s",
                   c->rank, (unsigned long long)c->step, call_text(call, text),
                   *planned ? planned : "no further call");
}

/* A td__comm_guard's. */
static td_status look_at(td__comm_guard *g, const td__coll_call *call)
{
    td__planned_calls *c = (td__planned_calls *)g;
    if (c->made == c->end || !as_planned(c, &c->plan->roles[c->role].ops[c->at[c->made]], call))
        return out_of_plan(c, call);
    c->made++;
    return TD_OK;
}

void td__planned_calls_begin(td__planned_calls *c, td_comm *comm, int rank, uint64_t step)
{
    c->guard.call = look_at;
    c->comm = comm;
    c->rank = rank;
    c->step = step;
    c->made = 0;
    c->end = c->n;
    if (comm)
        td__comm_set_guard(comm, &c->guard);
}

void td__planned_calls_part(td__planned_calls *c, uint32_t micro_batch)
{
    const td__plan_op *ops = c->plan->roles[c->role].ops;
    for (c->made = 0; c->made < c->n && ops[c->at[c->made]].micro_batch < micro_batch;)
        c->made++;
    for (c->end = c->made; c->end < c->n && ops[c->at[c->end]].micro_batch == micro_batch;)
        c->end++;
}

td_status td__planned_calls_end(td__planned_calls *c)
{
    char text[TD__PLAN_TEXT];
    bool begun = c->comm != NULL;
    td__planned_calls_leave(c);
    if (!begun || c->made == c->end)
        return TD_OK;
    td__plan_op_text(c->plan, c->role, c->at[c->made], text);
    return TD_FAIL(TD_EMISMATCH,
                   "step %llu has ended without a call that is in the communication plan: %s",
                   (unsigned long long)c->step, text);
}

void td__planned_calls_leave(td__planned_calls *c)
{
    if (c->comm)
        td__comm_set_guard(c->comm, NULL);
    c->comm = NULL;
}
