/* time.c -- the virtual clock: when each operation of a plan begins and ends. See plan.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "plan/walk.h"

/* What an operation takes once all that it meets are there. */
static double seconds_of(const td__plan *p, const td__plan_op *o, const td__plan_link *link)
{
    double bytes = o->nbytes == TD__PLAN_ANY ? 0 : (double)o->nbytes;
    switch ((td__plan_kind)o->kind) {
    case TD_PLAN_SEND:
    case TD_PLAN_RECV: break;
    case TD_PLAN_COLL: {
        /* By direct exchange every rank sends and receives 2 (n - 1) / n of the block, half of it
         * where the ranks only scatter, gather or broadcast. */
        double n = o->axis == TD__AXIS_ALL ? td__rank_mesh_ranks(&p->mesh) : p->mesh.size[o->axis];
        if (n < 2)
            return 0;
        bytes *= (o->coll == TD_PLAN_ALLREDUCE ? 2 : 1) * (n - 1) / n;
        break;
    }
    default: return o->seconds;
    }
    return link->latency + (link->bandwidth > 0 ? bytes / link->bandwidth : 0);
}

static double *begin_of(const td__walk *w, td__plan_times *t, int i)
{
    return &t->begin[w->role[i]][i - w->base[w->role[i]]];
}

static double *end_of(const td__walk *w, td__plan_times *t, int i)
{
    return &t->end[w->role[i]][i - w->base[w->role[i]]];
}

/* When operation i could begin, were it not for those that it meets. */
static double ready_at(const td__walk *w, td__plan_times *t, int i)
{
    const td__plan_op *o = td__walk_op(w, i);
    double at = w->before[i] >= 0 ? *end_of(w, t, w->before[i]) : 0;
    for (int k = 0; k < TD__PLAN_AFTER; k++)
        if (o->after[k] != TD__PLAN_NONE) {
            double end = t->end[w->role[i]][o->after[k]];
            at = end > at ? end : at;
        }
    return at;
}

static void carry_out(const td__walk *w, const td__plan_link *link, td__plan_times *t, int i)
{
    double begin = 0;
    int k = i;
    do {
        double at = ready_at(w, t, k);
        begin = at > begin ? at : begin;
        k = w->meets[k];
    } while (k != i);
    do {
        const td__plan_op *o = td__walk_op(w, k);
        double took = seconds_of(w->p, o, link);
        *begin_of(w, t, k) = begin;
        *end_of(w, t, k) = begin + took;
        if (o->lane == TD_LANE_COMPUTE)
            t->busy[w->role[k]] += took;
        t->total = begin + took > t->total ? begin + took : t->total;
        k = w->meets[k];
    } while (k != i);
}

static td_status allocate(const td__plan *p, td__plan_times *t)
{
    t->roles = td__plan_roles(p);
    size_t roles = (size_t)t->roles;
    t->begin = td__calloc(roles, sizeof *t->begin);
    t->end = td__calloc(roles, sizeof *t->end);
    t->busy = td__calloc(roles, sizeof *t->busy);
    bool ok = t->begin && t->end && t->busy;
    for (int r = 0; ok && r < t->roles; r++) {
        t->begin[r] = td__calloc((size_t)p->roles[r].n + 1, sizeof **t->begin);
        t->end[r] = td__calloc((size_t)p->roles[r].n + 1, sizeof **t->end);
        ok = t->begin[r] && t->end[r];
    }
    return ok ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the times of a plan");
}

td_status td__plan_time(const td__plan *p, const td__plan_link *link, td__plan_times *out)
{
    td__walk w;
    *out = (td__plan_times){0};
    td_status st = td__walk_init(&w, p);
    if (!st)
        st = allocate(p, out);
    for (int i; !st && (i = td__walk_next(&w)) >= 0;)
        carry_out(&w, link, out, i);
    if (!st && w.left)
        st = td__plan_check(p); /* says why */
    td__walk_fini(&w);
    if (st)
        td__plan_times_fini(out);
    return st;
}

void td__plan_times_fini(td__plan_times *t)
{
    for (int r = 0; r < t->roles; r++) {
        if (t->begin)
            td__free(t->begin[r]);
        if (t->end)
            td__free(t->end[r]);
    }
    td__free(t->begin);
    td__free(t->end);
    td__free(t->busy);
    *t = (td__plan_times){0};
}

double td__plan_bubble(const td__plan_times *t)
{
    double busy = 0;
    for (int r = 0; r < t->roles; r++)
        busy += t->busy[r];
    return t->total > 0 && t->roles ? 1 - busy / (t->total * t->roles) : 0;
}
