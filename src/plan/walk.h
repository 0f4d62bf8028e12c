/* walk.h -- one walk over a plan in the order in which it can run, for the check and for the
 * virtual clock: operations that meet (a send and its receive, a collective of all roles) are
 * carried out together, when all of them can. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_WALK_H
#define TD_PLAN_WALK_H

#include "plan/plan.h"

/* Operations are numbered through all roles. */
typedef struct td__walk {
    const td__plan *p;
    int n;          /* operations in all */
    int *base;      /* (roles + 1) the first one of each role */
    int *role;      /* of each operation */
    int *before;    /* the one before it in its lane; -1: none */
    int *waits;     /* that it still has to wait for, in its own role */
    int *meets;     /* the next of those that it meets, a ring; itself: none */
    int *readers;   /* lists of those that wait for an operation: first, next */
    int *next;      /* ((1 + TD__PLAN_AFTER) n), by waiting operation and reason */
    bool *done;     /* carried out */
    int *queue;     /* those that can be carried out */
    int head, tail; /* of the queue */
    int left;       /* operations that were not carried out */
} td__walk;

/* TD_EDEADLOCK, TD_EMISMATCH as td__plan_check, for what does not meet. */
TD_NODISCARD td_status td__walk_init(td__walk *w, const td__plan *p);
void td__walk_fini(td__walk *w);
/* The next operation that can be carried out, with all that it meets, which are then done; -1: none
 * is left that can. */
int td__walk_next(td__walk *w);
static inline const td__plan_op *td__walk_op(const td__walk *w, int i)
{
    return &w->p->roles[w->role[i]].ops[i - w->base[w->role[i]]];
}

#endif
