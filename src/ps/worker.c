/* worker.c -- a worker of a parameter server: pull, compute, push, until server 0 says that it is
 * over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/comm.h"
#include "coll/hang.h"
#include "graph/params.h"
#include "ps/order.h"
#include "ps/ps.h"
#include "ps/team.h"

static double seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

/* ---- Pull ------------------------------------------------------------------------------------ */

/* Other servers than 0, which has sent an order, say that they are at it too. */
static td_status hear_others(td__ps_rule *r)
{
    for (int s = 1; s < r->servers; s++) {
        uint64_t begin;
        TD_TRY(td__ps_hear(&r->lanes[s], &begin, sizeof begin, false));
        if (begin != r->map.at[s].begin)
            return TD_FAIL(TD_EPROTO, "rank %d hands out another shard", r->lanes[s].rank);
    }
    return TD_OK;
}

/* The next order, which the first rank of a worker hears. */
static td_status next_order(td__ps_rule *r, td__ps_order *order)
{
    td__comm_says(r->base.x.comm, TD_PHASE_COMM, r->clock + 1, "the next order of server 0");
    td__ps_waits(r, "orders of server 0");
    td_status st = TD_OK;
    if (r->lanes[0].member == 0)
        st = td__ps_hear(&r->lanes[0], order, sizeof *order, true);
    if (!st && r->lanes[0].member == 0 && (order->params || order->acks))
        st = hear_others(r);
    if (!st)
        st = td__ps_team_order(r, order);
    td__ps_waits(r, NULL);
    return st;
}

/* A range of the params, from the lane of a server. */
static td_status keep(td__ps_rule *r, const td__ps_lane *l, td__param_range at)
{
    td__mapping map;
    if (at.begin >= at.end)
        return TD_OK;
    TD_TRY(td__params_map(r->base.x.step.params, at.begin, at.end - at.begin, TD_MAP_WRITE, &map));
    memcpy(map.at, l->pull + at.begin, (at.end - at.begin) * sizeof(float));
    return td__mem_unmap(&map);
}

/* Params of all servers come, of what this rank holds. */
static td_status pull(td__ps_rule *r)
{
    for (int s = 0; s < r->servers; s++) {
        const td__ps_lane *l = &r->lanes[s];
        td__param_range at = r->map.at[s];
        TD_TRY(td__ps_take_range(l, l->pull + at.begin, at));
        if (!l->holds)
            TD_TRY(keep(r, l, at));
        for (int i = 0; i < l->n_holds; i++) {
            td__param_range own = l->holds[i].at;
            TD_TRY(keep(r, l,
                        (td__param_range){own.begin > at.begin ? own.begin : at.begin,
                                          own.end < at.end ? own.end : at.end}));
        }
    }
    td_params_touch(r->base.x.step.params);
    return TD_OK;
}

/* ---- Push ------------------------------------------------------------------------------------ */

/* A part of this rank's partials, to the lanes of the servers that hold it. */
static void publish(void *user, const td__grad_stack *partials, size_t begin, size_t count)
{
    td__ps_rule *r = user;
    td_stream *on = td__grad_stream(td__step_grads(r->base.engine));
    size_t floats = td__step_floats(r->base.engine), end = begin + count;
    unsigned mode = td__cpu_fp_flush(); /* as in the sums of one rank */
    for (int s = 0; s < r->servers; s++) {
        td__ps_held held = td__ps_held_of(r, s);
        for (int i = 0; i < partials->n * held.n; i++) {
            td__param_range at = held.at[i % held.n];
            size_t from = begin > at.begin ? begin : at.begin, to = end < at.end ? end : at.end;
            const td__partial *p = &partials->at[i / held.n];
            float *slot = r->lanes[s].push + (size_t)(i / held.n) * floats;
            if (p->dense && from < to)
                td__stream_publish(on, slot + from, p->dense + from, p->weight, to - from);
        }
    }
    td__stream_drain(on);
    td__cpu_fp_restore(mode);
}

static void add_to_lane(td__ps_rule *r, float *sum, const float *grads, td__param_range part,
                        td__param_range at)
{
    size_t dense = td__params_dense(r->base.x.step.params);
    size_t from = part.begin > at.begin ? part.begin : at.begin;
    size_t to = part.end < at.end ? part.end : at.end;
    if (from < to && !r->accrued)
        memcpy(sum + from, grads + (from - part.begin), (to - from) * sizeof *sum);
    for (size_t i = from; r->accrued && i < to; i++)
        sum[i] = grads[i - part.begin] + (i < dense ? sum[i] : 0); /* the last statistics */
}

/* Gradients of a part of the block, added to those that are not pushed yet. */
static void add_to_lanes(td__ps_rule *r, const float *grads, td__param_range part)
{
    for (int s = 0; s < r->servers; s++) {
        td__ps_held held = td__ps_held_of(r, s);
        for (int i = 0; i < held.n; i++)
            add_to_lane(r, r->lanes[s].push, grads, part, held.at[i]);
    }
}

td_status td__ps_accrue(td__ps_rule *r, const float *grads, double lr, td__param_range part)
{
    td_params *params = r->base.x.step.params;
    size_t dense = td__params_dense(params), end = part.end < dense ? part.end : dense;
    const td__ps_lane *l = &r->lanes[0];
    td__mapping map;
    if (!l->n_holds || l->holds[0].pushes)
        add_to_lanes(r, grads, part);
    if (!r->policy->push_every || part.begin >= end)
        return TD_OK;
    TD_TRY(td__params_map(params, part.begin, end - part.begin, TD_MAP_BOTH, &map));
    float *own = map.at;
    for (size_t i = 0; i < end - part.begin; i++)
        own[i] -= (float)lr * grads[i];
    return td__mem_unmap(&map);
}

typedef struct accrual {
    td__ps_rule *r;
    const float *grads;
    double lr;
    _Atomic int failed; /* a td_status */
} accrual;

static void accrue(void *user, size_t begin, size_t count)
{
    accrual *a = user;
    td_status st =
        td__ps_accrue(a->r, a->grads + begin, a->lr, (td__param_range){begin, begin + count});
    if (st)
        atomic_store(&a->failed, (int)st);
}

/* The whole gradients of a worker that is one rank. */
static td_status accrue_all(td__ps_rule *r, const td__grad_share *share, double lr)
{
    td_params *params = r->base.x.step.params;
    size_t floats = td__step_floats(r->base.engine);
    accrual a = {.r = r, .lr = lr};
    td__mapping grads;
    TD_TRY(td__mem_map(td__params_device(params), share->grads, floats * sizeof(float), TD_MAP_READ,
                       &grads));
    a.grads = grads.at;
    td_status st = td__step_in_ranges(r->base.engine, floats, accrue, &a);
    td__mem_map_drop(&grads);
    TD_TRY(st);
    return a.failed ? TD_FAIL((td_status)a.failed, "gradients cannot be added to the params")
                    : TD_OK;
}

static td_status tell_servers(td__ps_rule *r, const td__ps_push *p, const double *numbers)
{
    size_t floats = td__step_floats(r->base.engine);
    TD_TRY(td__ps_team_ready(r));
    for (int s = 0; s < r->servers; s++) {
        td__ps_lane *l = &r->lanes[s];
        td__ps_held held = td__ps_held_of(r, s);
        if (s && !p->grads)
            continue;
        if (l->member == 0)
            TD_TRY(td__ps_tell(l, p, sizeof *p));
        if (s == 0 && p->n_numbers)
            TD_TRY(td__ps_tell(l, numbers, (size_t)p->n_numbers * sizeof *numbers));
        for (int i = 0; i < p->slots * held.n; i++) {
            td__param_range at = held.at[i % held.n];
            TD_TRY(td__ps_hand_range(l, l->push + (size_t)(i / held.n) * floats + at.begin, at));
        }
    }
    return TD_OK;
}

/* What this rank has of the step, in the lanes. */
static td_status fill_lanes(td__ps_rule *r, const td__ps_order *order, td__ps_push *p)
{
    td__step_engine *e = r->base.engine;
    const td__sync_host *h = &r->base.x.host;
    td__grad_share share;
    p->rows = td__step_own_rows(e);
    p->stop = h->stopping(h->user);
    if (r->policy->together) {
        size_t n;
        TD_TRY(td__step_join(e, publish, r));
        td__step_numbers(e, &n);
        p->slots = td__step_partials(e)->n;
        p->n_numbers = (int32_t)n;
        p->grads = 1;
        return TD_OK;
    }
    int every = r->policy->push_every ? r->policy->push_every(r) : 1;
    if (r->team) {
        TD_TRY(td__ps_team_step(r, order, p));
    } else {
        TD_TRY(td__step_own_share(e, &share));
        p->loss = share.loss;
        TD_TRY(accrue_all(r, &share, order->lr));
    }
    if (r->policy->push_every)
        td_params_touch(r->base.x.step.params);
    p->grads = order->pushes || r->clock % (uint64_t)every == 0;
    p->slots = p->grads;
    r->accrued = !p->grads;
    return TD_OK;
}

static td_status work(td__ps_rule *r, const td__ps_order *order)
{
    const td__sync_ctx *x = &r->base.x;
    td__step_engine *e = r->base.engine;
    td__sync_place at = {
        .step = order->step, .epoch = order->epoch, .batch = order->batch, .lr = order->lr};
    td__ps_push p = {.step = order->step};
    double data_wait = 0;
    size_t n;
    int batches;

    uint64_t begin_ns = td__clock_ns();
    r->accrued = r->accrued && !order->afresh;
    TD_TRY(x->host.work(x->host.user, &at, &batches, &data_wait));
    r->clock++;
    TD_TRY(fill_lanes(r, order, &p));
    TD_TRY(td__ps_tables_push(r->tables, e, order->lr, order->step));
    td__step_span(e, TD_SPAN_STEP, begin_ns, td__clock_ns(), 0, 0);
    if (x->config->before_share)
        x->config->before_share(x->config->before_share_user, r->rank, order->step);
    r->total.compute += td__step_compute(e);
    r->total.data += data_wait;
    for (int s = 0; s < r->servers; s++) {
        td__ps_held held = td__ps_held_of(r, s);
        for (int i = 0; i < held.n; i++)
            r->total.nbytes +=
                (double)p.slots * (double)((held.at[i].end - held.at[i].begin) * sizeof(float));
    }
    r->total.plain = r->total.nbytes;
    r->total.memory = (double)td__memory_read().peak;
    r->total.seconds = seconds_since(r->began_ns);
    p.times = r->total;
    begin_ns = td__clock_ns();
    TD_TRY(tell_servers(r, &p, td__step_numbers(e, &n)));
    r->total.comm += seconds_since(begin_ns);
    return TD_OK;
}

static td_status work_on(td__ps_rule *r)
{
    r->began_ns = td__clock_ns();
    for (;;) {
        td__ps_order order;
        uint64_t begin_ns = td__clock_ns();
        TD_TRY(next_order(r, &order));
        r->base.alone = order.end == TD__PS_ALONE;
        r->base.resized = order.end == TD__PS_RESIZED;
        if (order.end)
            return order.end == TD__PS_ENDS ? td__ps_end_all(r) : TD_OK;
        if (order.params)
            TD_TRY(pull(r));
        td__comm_says(r->base.x.comm, TD_PHASE_COMPUTE, order.step, "a batch");
        r->total.wait += seconds_since(begin_ns);
        td__step_span(r->base.engine, TD_SPAN_WAIT, begin_ns, td__clock_ns(), 0, 0);
        td_status st = work(r, &order);
        td__step_abandon(r->base.engine); /* what it has made is in the lanes */
        TD_TRY(st);
    }
}

/* The server that does not answer, which ends the run; -1: there is none. */
static int find_silent(const td__ps_rule *r)
{
    int s = td__ps_tables_unanswered(r->tables);
    for (int i = 0; s < 0 && i < r->servers; i++)
        if (td__comm_unanswered(r->lanes[i].link))
            s = i;
    return s;
}

td_status td__ps_work(td__ps_rule *r)
{
    char why[512];
    td_status st = work_on(r);
    int silent = st == TD_ETIMEDOUT ? find_silent(r) : -1;
    if (silent >= 0)
        return td__ps_silent(r, silent);
    bool out = st == TD_EPEER || st == TD_ETIMEDOUT; /* a server's, which has waited too long */
    if (!out || r->policy->together || r->base.x.elastic)
        return st;
    /* Servers have left this worker out, which was late or has lost a rank, and go on, or have
     * ended; of a server that is lost the others tell. */
    snprintf(why, sizeof why, "%s", td_last_error());
    TD_LOG(WARN, TRAIN, "%s: rank %d ends, as it is left out", why, r->rank);
    td__ps_abandon(&r->base, why);
    r->base.alone = true;
    return TD_OK;
}
