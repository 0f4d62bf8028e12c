/* plan_follow.c -- see plan_follow.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/plan_follow.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/human.h"
#include "base/log.h"
#include "coll/comm.h"

enum { KEPT = 8 }; /* plans: full steps and last ones of an epoch, by kind */

typedef struct kept {
    int kind, batches;
    int64_t rows, last_rows;
    td__plan *plan; /* NULL: none */
    int *calls;     /* (n) operations of this rank that are calls */
    int n;
} kept;

struct td__plan_follower {
    td__comm_guard guard;
    const td__sync_ops *rule;
    td_comm *comm;
    int rank;
    kept at[KEPT];
    int next; /* the one that gives way */
    /* The step under way. */
    const kept *now; /* NULL: there is none */
    uint64_t step;
    int made; /* calls */
};

/* ---- Plans ----------------------------------------------------------------------------------- */

static void drop(kept *k)
{
    td__plan_destroy(k->plan);
    td__free(k->calls);
    *k = (kept){0};
}

static bool is_call(const td__plan_op *o)
{
    return o->kind == TD_PLAN_COLL || o->kind == TD_PLAN_SEND || o->kind == TD_PLAN_RECV;
}

static td_status list_calls(kept *k, int rank)
{
    const td__plan_list *l = &k->plan->roles[rank];
    k->calls = td__calloc((size_t)l->n + 1, sizeof *k->calls);
    if (!k->calls)
        return TD_FAIL(TD_ENOMEM, "no memory for a communication plan of %d operations", l->n);
    for (int i = 0; i < l->n; i++)
        if (is_call(&l->ops[i]))
            k->calls[k->n++] = i;
    return TD_OK;
}

static td_status make(const td__plan_follower *f, const td__plan_case *at, kept *k)
{
    drop(k);
    td_status st = td__step_plan(f->rule, at, &k->plan);
    if (!st)
        st = td__plan_check(k->plan);
    if (!st)
        st = list_calls(k, f->rank);
    if (st) {
        drop(k);
        return st;
    }
    k->kind = td__step_kind(f->rule, at);
    k->batches = at->batches;
    k->rows = at->rows;
    k->last_rows = at->last_rows;
    return TD_OK;
}

static td_status find(td__plan_follower *f, const td__plan_case *at, const kept **out)
{
    int kind = td__step_kind(f->rule, at);
    for (int i = 0; i < KEPT; i++) {
        const kept *k = &f->at[i];
        if (k->plan && k->kind == kind && k->batches == at->batches && k->rows == at->rows &&
            k->last_rows == at->last_rows) {
            *out = k;
            return TD_OK;
        }
    }
    kept *k = &f->at[f->next];
    f->next = (f->next + 1) % KEPT;
    *out = k;
    return make(f, at, k);
}

static td_status agree(const td__plan_follower *f, const td__plan *p)
{
    enum { HEX = 65 };
    char mine[HEX], first[HEX];
    TD_TRY(td__plan_digest(p, mine));
    memcpy(first, mine, HEX);
    if (!f->rank)
        TD_LOG(DEBUG, TRAIN, "communication plan sha256:%s", mine);
    TD_TRY(td_broadcast(f->comm, first, HEX, TD_U8, 0, NULL));
    if (memcmp(first, mine, HEX) != 0)
        return TD_FAIL(TD_EMISMATCH,
                       "rank %d has another communication plan than rank 0: the ranks have "
                       "different job files or versions",
                       f->rank);
    return TD_OK;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* The operation that a call is: kinds as in the plan, bytes of all ranks' parts together. */
static bool as_planned(const td__plan_op *o, int rank, const td__coll_call *call, int ranks)
{
    static const td__coll COLLS[TD_PLAN_COLLS] = {[TD_PLAN_ALLREDUCE] = TD_COLL_ALLREDUCE,
                                                  [TD_PLAN_REDUCE_SCATTER] = TD_COLL_REDUCE_SCATTER,
                                                  [TD_PLAN_ALL_GATHER] = TD_COLL_ALL_GATHER,
                                                  [TD_PLAN_BROADCAST] = TD_COLL_BROADCAST,
                                                  [TD_PLAN_ALL_TO_ALL] = TD_COLL_ALL_TO_ALL,
                                                  [TD_PLAN_BARRIER] = TD_COLL_BARRIER};
    uint64_t nbytes = call->count * td_dtype_size(call->dtype);
    if (call->kind == TD_COLL_ALL_GATHER || call->kind == TD_COLL_ALL_TO_ALL ||
        call->kind == TD_COLL_REDUCE_SCATTER)
        nbytes *= (uint64_t)ranks;
    if (o->nbytes != nbytes && o->nbytes != TD__PLAN_ANY)
        return false;
    if (o->kind == TD_PLAN_COLL)
        return COLLS[o->coll] == call->kind;
    return (o->kind == TD_PLAN_SEND ? TD_COLL_SEND : TD_COLL_RECV) == call->kind &&
           rank + o->peer == call->root;
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

static td_status out_of_plan(const td__plan_follower *f, const td__coll_call *call)
{
    char text[96], planned[TD__PLAN_TEXT] = "";
    const kept *k = f->now;
    if (f->made < k->n)
        td__plan_op_text(k->plan, f->rank, k->calls[f->made], planned);
    return TD_FAIL(TD_EMISMATCH,
                   "rank %d makes a call in step %llu that is not in the communication plan: %s, "
                   "where the plan has %s",
                   f->rank, (unsigned long long)f->step, call_text(call, text),
                   *planned ? planned : "no further call");
}

/* A td__comm_guard's. */
static td_status look_at(td__comm_guard *g, const td__coll_call *call)
{
    td__plan_follower *f = (td__plan_follower *)g;
    const kept *k = f->now;
    const td__plan_op *ops = k->plan->roles[f->rank].ops;
    if (f->made == k->n ||
        !as_planned(&ops[k->calls[f->made]], f->rank, call, td_comm_size(f->comm)))
        return out_of_plan(f, call);
    f->made++;
    return TD_OK;
}

/* ---- Following ------------------------------------------------------------------------------- */

td_status td__plan_follower_create(const td__sync_ops *rule, td_comm *comm,
                                   const td__plan_case *usual, td__plan_follower **out)
{
    td__plan_follower *f = *out = td__calloc(1, sizeof *f);
    const kept *k;
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory to follow a communication plan");
    *f = (td__plan_follower){
        .guard = {.call = look_at}, .rule = rule, .comm = comm, .rank = td_comm_rank(comm)};
    td_status st = find(f, usual, &k);
    if (!st)
        st = agree(f, k->plan);
    if (st) {
        td__plan_follower_destroy(f);
        *out = NULL;
    }
    return st;
}

void td__plan_follower_destroy(td__plan_follower *f)
{
    if (!f)
        return;
    td__plan_leave(f);
    for (int i = 0; i < KEPT; i++)
        drop(&f->at[i]);
    td__free(f);
}

td_status td__plan_follow(td__plan_follower *f, const td__plan_case *at)
{
    const kept *k;
    TD_TRY(find(f, at, &k));
    f->now = k;
    f->step = at->step;
    f->made = 0;
    td__comm_set_guard(f->comm, &f->guard);
    return TD_OK;
}

td_status td__plan_followed(td__plan_follower *f)
{
    const kept *k = f->now;
    char text[TD__PLAN_TEXT];
    td__plan_leave(f);
    if (!k || f->made == k->n)
        return TD_OK;
    td__plan_op_text(k->plan, f->rank, k->calls[f->made], text);
    return TD_FAIL(TD_EMISMATCH,
                   "step %llu has ended without a call that is in the communication plan: %s",
                   (unsigned long long)f->step, text);
}

void td__plan_leave(td__plan_follower *f)
{
    if (f->now)
        td__comm_set_guard(f->comm, NULL);
    f->now = NULL;
}
