/* plan_follow.c -- see plan_follow.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/plan_follow.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "parallel/planned_calls.h"

enum { KEPT = 8 }; /* plans: full steps and last ones of an epoch, by kind */

typedef struct kept {
    int kind, batches;
    int64_t rows, last_rows;
    td__plan *plan; /* NULL: none */
    td__planned_calls calls;
} kept;

struct td__plan_follower {
    const td__sync_ops *rule;
    td_comm *comm;
    int rank;
    kept at[KEPT];
    int next;  /* the one that gives way */
    kept *now; /* of the step under way; NULL: there is none */
};

/* ---- Plans ----------------------------------------------------------------------------------- */

static void drop(kept *k)
{
    td__planned_calls_fini(&k->calls);
    td__plan_destroy(k->plan);
    *k = (kept){0};
}

static bool is_call(const td__plan_op *o)
{
    return o->kind == TD_PLAN_COLL || o->kind == TD_PLAN_SEND || o->kind == TD_PLAN_RECV;
}

static td_status make(const td__plan_follower *f, const td__plan_case *at, kept *k)
{
    drop(k);
    td_status st = td__step_plan(f->rule, at, &k->plan);
    if (!st)
        st = td__plan_check(k->plan);
    if (!st)
        st = td__planned_calls_init(&k->calls, k->plan, f->rank, is_call);
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

static td_status find(td__plan_follower *f, const td__plan_case *at, kept **out)
{
    int kind = td__step_kind(f->rule, at);
    for (int i = 0; i < KEPT; i++) {
        kept *k = &f->at[i];
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

/* ---- Following ------------------------------------------------------------------------------- */

td_status td__plan_follower_create(const td__sync_ops *rule, td_comm *comm,
                                   const td__plan_case *usual, td__plan_follower **out)
{
    td__plan_follower *f = *out = td__calloc(1, sizeof *f);
    kept *k;
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory to follow a communication plan");
    *f = (td__plan_follower){.rule = rule, .comm = comm, .rank = td_comm_rank(comm)};
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
    kept *k;
    TD_TRY(find(f, at, &k));
    f->now = k;
    td__planned_calls_begin(&k->calls, f->comm, f->rank, at->step);
    return TD_OK;
}

td_status td__plan_followed(td__plan_follower *f)
{
    kept *k = f->now;
    f->now = NULL;
    return k ? td__planned_calls_end(&k->calls) : TD_OK;
}

void td__plan_leave(td__plan_follower *f)
{
    if (f->now)
        td__planned_calls_leave(&f->now->calls);
    f->now = NULL;
}
