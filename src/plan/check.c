/* check.c -- does a plan come to its end? See plan.h, td__plan_check.
 *
 * A plan in which everything meets its counterpart can still wait for itself: then the walk stops
 * before its end, and what is left contains a circle, which is followed to name two operations of
 * it on different ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "plan/walk.h"

/* Of an operation that was not carried out: one that it waits for. */
static int waits_for(const td__walk *w, int i)
{
    const td__plan_op *o = td__walk_op(w, i);
    if (w->before[i] >= 0 && !w->done[w->before[i]])
        return w->before[i];
    for (int k = 0; k < TD__PLAN_AFTER; k++)
        if (o->after[k] != TD__PLAN_NONE && !w->done[w->base[w->role[i]] + o->after[k]])
            return w->base[w->role[i]] + o->after[k];
    for (int k = w->meets[i]; k != i; k = w->meets[k])
        if (w->waits[k])
            return k;
    TD_ASSERT(0, "operation %d waits for nothing", i);
    return -1;
}

/* Is it one that waits for other ranks? */
static bool meets_others(const td__walk *w, int i)
{
    return w->meets[i] != i;
}

/* An operation of the circle: the first that is reached twice from any that is left. */
static td_status find_circle(const td__walk *w, int *on)
{
    bool *seen = td__calloc((size_t)w->n, sizeof *seen);
    if (!seen)
        return TD_FAIL(TD_ENOMEM, "no memory to look at a plan of %d operations", w->n);
    int i = 0;
    while (w->done[i])
        i++;
    while (!seen[i]) {
        seen[i] = true;
        i = waits_for(w, i);
    }
    td__free(seen);
    *on = i;
    return TD_OK;
}

static td_status name_circle(const td__walk *w)
{
    int on = -1, first = -1, second = -1;
    TD_TRY(find_circle(w, &on));
    /* The two are messages or collectives of different roles, where the circle has such. */
    int i = on;
    do {
        if (first < 0 || (!meets_others(w, first) && meets_others(w, i)))
            first = i;
        i = waits_for(w, i);
    } while (i != on);
    do {
        bool other = w->role[i] != w->role[first];
        if (i != first &&
            (second < 0 || (other && meets_others(w, i) &&
                            (w->role[second] == w->role[first] || w->meets[second] == first))))
            second = i;
        i = waits_for(w, i);
    } while (i != on);
    char a[TD__PLAN_TEXT], b[TD__PLAN_TEXT];
    td__plan_op_text(w->p, w->role[first], first - w->base[w->role[first]], a);
    if (second < 0)
        return TD_FAIL(TD_EDEADLOCK, "the communication plan waits for itself: %s", a);
    td__plan_op_text(w->p, w->role[second], second - w->base[w->role[second]], b);
    return TD_FAIL(TD_EDEADLOCK,
                   "the communication plan waits for itself: %s and %s wait for each "
                   "other",
                   a, b);
}

td_status td__plan_check(const td__plan *p)
{
    td__walk w;
    td_status st = td__walk_init(&w, p);
    while (!st && td__walk_next(&w) >= 0)
        continue;
    if (!st && w.left)
        st = name_circle(&w);
    td__walk_fini(&w);
    return st;
}
