/* walk.c -- see walk.h. Kahn's algorithm over groups of operations that meet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/walk.h"

#include "base/alloc.h"
#include "base/fail.h"

enum { REASONS = 1 + TD__PLAN_AFTER }; /* the lane, and what is named */

static bool is_message(const td__plan_op *o)
{
    return o->kind == TD_PLAN_SEND || o->kind == TD_PLAN_RECV;
}

static char *text_of(const td__walk *w, int i, char buf[TD__PLAN_TEXT])
{
    return td__plan_op_text(w->p, w->role[i], i - w->base[w->role[i]], buf);
}

/* ---- What waits for what --------------------------------------------------------------------- */

/* Operation i waits for `before` (-1: for nothing). */
static td_status wait_for(td__walk *w, int i, int reason, int before)
{
    if (before < 0)
        return TD_OK;
    if (before >= w->n || w->role[before] != w->role[i]) {
        char a[TD__PLAN_TEXT];
        return TD_FAIL(TD_EINVAL, "%s waits for an operation that is not there", text_of(w, i, a));
    }
    int edge = REASONS * i + reason;
    w->next[edge] = w->readers[before];
    w->readers[before] = edge;
    w->waits[i]++;
    return TD_OK;
}

static td_status link_role(td__walk *w, int role)
{
    int last[TD_LANES];
    for (int l = 0; l < TD_LANES; l++)
        last[l] = -1;
    for (int i = w->base[role]; i < w->base[role + 1]; i++) {
        const td__plan_op *o = td__walk_op(w, i);
        w->before[i] = last[o->lane];
        last[o->lane] = i;
        TD_TRY(wait_for(w, i, 0, w->before[i]));
        for (int k = 0; k < TD__PLAN_AFTER; k++)
            if (o->after[k] != TD__PLAN_NONE)
                TD_TRY(wait_for(w, i, 1 + k, w->base[role] + o->after[k]));
    }
    return TD_OK;
}

/* ---- What meets what ------------------------------------------------------------------------- */

static bool belong_together(const td__plan_op *send, const td__plan_op *recv)
{
    return send->chunk == recv->other && send->other == recv->chunk && send->phase == recv->phase &&
           send->micro_batch == recv->micro_batch && send->nbytes == recv->nbytes;
}

/* The next operation from `at` on of a role that is a message of this kind and direction with
 * another role; w->n: none. */
static int next_message(const td__walk *w, int at, int role, td__plan_kind kind, td__plan_lane lane,
                        int peer)
{
    for (; at < w->base[role + 1]; at++) {
        const td__plan_op *o = td__walk_op(w, at);
        if (o->kind == kind && o->lane == lane && role + o->peer == peer)
            return at;
    }
    return w->n;
}

/* An operation that meets none: which role lacks it, and what is the last there of its kind (-1:
 * there is none), so that it can be seen where the two lists part. */
static td_status meets_none(const td__walk *w, int op, int role, const char *verb, int last)
{
    char x[TD__PLAN_TEXT], y[TD__PLAN_TEXT], who[TD__PLAN_ROLE];
    td__plan_role_text(w->p, role, who);
    if (last < 0)
        return TD_FAIL(TD_EDEADLOCK, "%s: %s never %s it, nor anything before it",
                       text_of(w, op, x), who, verb);
    return TD_FAIL(TD_EDEADLOCK, "%s: %s never %s it; the last there is %s", text_of(w, op, x), who,
                   verb, text_of(w, last, y));
}

/* The messages from role a to role b in one direction, in order. */
static td_status match(td__walk *w, int a, int b, td__plan_lane send_lane, td__plan_lane recv_lane)
{
    int sent = -1, received = -1;
    for (int s = w->base[a], r = w->base[b];; s++, r++) {
        char x[TD__PLAN_TEXT], y[TD__PLAN_TEXT];
        s = next_message(w, s, a, TD_PLAN_SEND, send_lane, b);
        r = next_message(w, r, b, TD_PLAN_RECV, recv_lane, a);
        if (s == w->n && r == w->n)
            return TD_OK;
        if (s == w->n)
            return meets_none(w, r, a, "sends", sent);
        if (r == w->n)
            return meets_none(w, s, b, "receives", received);
        if (!belong_together(td__walk_op(w, s), td__walk_op(w, r)))
            return TD_FAIL(TD_EMISMATCH, "%s meets %s", text_of(w, s, x), text_of(w, r, y));
        w->meets[s] = r;
        w->meets[r] = s;
        sent = s;
        received = r;
    }
}

static int next_coll(const td__walk *w, int at, int role)
{
    for (; at < w->base[role + 1]; at++) {
        const td__plan_op *o = td__walk_op(w, at);
        if (o->kind == TD_PLAN_COLL && (o->axis == w->p->axis || o->axis == TD__AXIS_ALL))
            return at;
    }
    return w->n;
}

/* Collectives along the plan's axis: the calls of role r meet those of role 0. */
static td_status match_colls(td__walk *w, int r)
{
    int last[2] = {-1, -1};
    for (int i = w->base[0], k = w->base[r];; i++, k++) {
        char x[TD__PLAN_TEXT], y[TD__PLAN_TEXT];
        i = next_coll(w, i, 0);
        k = next_coll(w, k, r);
        if (i == w->n && k == w->n)
            return TD_OK;
        if (i == w->n || k == w->n)
            return meets_none(w, i == w->n ? k : i, i == w->n ? 0 : r, "calls", last[k == w->n]);
        const td__plan_op *a = td__walk_op(w, i), *b = td__walk_op(w, k);
        if (a->coll != b->coll || a->axis != b->axis || a->nbytes != b->nbytes)
            return TD_FAIL(TD_EMISMATCH, "%s meets %s", text_of(w, i, x), text_of(w, k, y));
        w->meets[k] = w->meets[i];
        w->meets[i] = k;
        last[0] = i;
        last[1] = k;
    }
}

static td_status match_all(td__walk *w)
{
    int roles = td__plan_roles(w->p);
    bool talk = false;
    for (int i = 0; i < w->n; i++) {
        const td__plan_op *o = td__walk_op(w, i);
        char x[TD__PLAN_TEXT];
        int to = w->role[i] + o->peer;
        talk = talk || is_message(o);
        if (is_message(o) && (o->axis != w->p->axis || !o->peer || to < 0 || to >= roles))
            return TD_FAIL(TD_EDEADLOCK, "%s: there is no such rank", text_of(w, i, x));
    }
    for (int a = 0; talk && a < roles; a++)
        for (int b = 0; b < roles; b++)
            if (a != b) {
                TD_TRY(match(w, a, b, TD_LANE_SEND_UP, TD_LANE_RECV_UP));
                TD_TRY(match(w, a, b, TD_LANE_SEND_DOWN, TD_LANE_RECV_DOWN));
                TD_TRY(match(w, a, b, TD_LANE_SEND_AHEAD, TD_LANE_RECV_AHEAD));
            }
    for (int r = 1; r < roles; r++)
        TD_TRY(match_colls(w, r));
    return TD_OK;
}

/* ---- The walk -------------------------------------------------------------------------------- */

/* If all that meet i have nothing to wait for in their own roles. */
static void enqueue(td__walk *w, int i)
{
    int k = i;
    do {
        if (w->waits[k])
            return;
        k = w->meets[k];
    } while (k != i);
    w->queue[w->tail++] = i;
}

static td_status allocate(td__walk *w)
{
    int roles = td__plan_roles(w->p);
    w->base = td__calloc((size_t)roles + 1, sizeof *w->base);
    for (int r = 0; w->base && r < roles; r++)
        w->base[r + 1] = w->base[r] + w->p->roles[r].n;
    w->left = w->n = w->base ? w->base[roles] : 0;
    size_t n = (size_t)w->n + 1;
    w->role = td__calloc(n, sizeof *w->role);
    w->before = td__calloc(n, sizeof *w->before);
    w->waits = td__calloc(n, sizeof *w->waits);
    w->meets = td__calloc(n, sizeof *w->meets);
    w->readers = td__calloc(n, sizeof *w->readers);
    w->next = td__calloc(n * REASONS, sizeof *w->next);
    w->done = td__calloc(n, sizeof *w->done);
    w->queue = td__calloc(n, sizeof *w->queue);
    if (!w->base || !w->role || !w->before || !w->waits || !w->meets || !w->readers || !w->next ||
        !w->done || !w->queue)
        return TD_FAIL(TD_ENOMEM, "no memory to look at a plan of %d operations", w->n);
    for (int r = 0; r < roles; r++)
        for (int i = w->base[r]; i < w->base[r + 1]; i++) {
            w->role[i] = r;
            w->meets[i] = i;
            w->readers[i] = -1;
        }
    return TD_OK;
}

td_status td__walk_init(td__walk *w, const td__plan *p)
{
    *w = (td__walk){.p = p};
    TD_TRY(allocate(w));
    for (int r = 0; r < td__plan_roles(p); r++)
        TD_TRY(link_role(w, r));
    TD_TRY(match_all(w));
    /* Of a group, the operation with the lowest number stands for all. */
    for (int i = 0; i < w->n; i++) {
        int lowest = i;
        for (int k = w->meets[i]; k != i; k = w->meets[k])
            lowest = k < lowest ? k : lowest;
        if (lowest == i)
            enqueue(w, i);
    }
    return TD_OK;
}

void td__walk_fini(td__walk *w)
{
    td__free(w->base);
    td__free(w->role);
    td__free(w->before);
    td__free(w->waits);
    td__free(w->meets);
    td__free(w->readers);
    td__free(w->next);
    td__free(w->done);
    td__free(w->queue);
}

int td__walk_next(td__walk *w)
{
    if (w->head == w->tail)
        return -1;
    int i = w->queue[w->head++], k = i;
    do {
        w->done[k] = true;
        w->left--;
        k = w->meets[k];
    } while (k != i);
    do {
        for (int e = w->readers[k]; e >= 0; e = w->next[e])
            if (!--w->waits[e / REASONS])
                enqueue(w, e / REASONS);
        k = w->meets[k];
    } while (k != i);
    return i;
}
