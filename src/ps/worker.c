/* worker.c -- a worker of a parameter server: pull, compute, push, until server 0 says that it is
 * over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/memory.h"
#include "graph/params.h"
#include "ps/order.h"
#include "ps/ps.h"

static double seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

/* ---- Pull ------------------------------------------------------------------------------------ */

/* fresh: params come; else the word that the last push is applied. */
static td_status pull(td__ps_rule *r, bool fresh)
{
    td_params *params = r->base.x.step.params;
    for (int s = 0; s < r->servers; s++) {
        td__ps_lane *l = &r->lanes[s];
        td__param_range at = r->map.at[s];
        size_t count = at.end - at.begin;
        uint64_t begin = at.begin;
        td__mapping map;
        if (s) /* server 0 has sent an order */
            TD_TRY(td__ps_hear(l, &begin, sizeof begin, false));
        if (begin != at.begin)
            return TD_FAIL(TD_EPROTO, "rank %d hands out another shard", l->rank);
        if (!fresh)
            continue;
        TD_TRY(td__ps_take(l, l->pull + at.begin, count));
        TD_TRY(td__params_map(params, at.begin, count, TD_MAP_WRITE, &map));
        memcpy(map.at, l->pull + at.begin, count * sizeof(float));
        TD_TRY(td__mem_unmap(&map));
    }
    if (fresh)
        td_params_touch(params);
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
        td__param_range at = td__ps_held(r, s);
        size_t from = begin > at.begin ? begin : at.begin, to = end < at.end ? end : at.end;
        for (int i = 0; from < to && i < partials->n; i++) {
            const td__partial *p = &partials->at[i];
            float *slot = r->lanes[s].push + (size_t)i * floats;
            if (p->dense)
                td__stream_publish(on, slot + from, p->dense + from, p->weight, to - from);
        }
    }
    td__stream_drain(on);
    td__cpu_fp_restore(mode);
}

typedef struct accrual {
    td__ps_rule *r;
    const float *grads;
    float *params; /* to be updated too; NULL: not */
    size_t dense;  /* of them are params, not states */
    float lr;
} accrual;

/* Gradients of a part of the block: added to those that are not pushed yet. */
static void accrue(void *user, size_t begin, size_t count)
{
    const accrual *a = user;
    const td__ps_rule *r = a->r;
    size_t end = begin + count;
    for (int s = 0; s < r->servers; s++) {
        td__param_range at = td__ps_held(r, s);
        size_t from = begin > at.begin ? begin : at.begin, to = end < at.end ? end : at.end;
        float *sum = r->lanes[s].push;
        if (from < to && !r->accrued)
            memcpy(sum + from, a->grads + from, (to - from) * sizeof *sum);
        for (size_t i = from; r->accrued && i < to; i++)
            sum[i] = i < a->dense ? sum[i] + a->grads[i] : a->grads[i]; /* the last statistics */
    }
    for (size_t i = begin; a->params && i < end && i < a->dense; i++)
        a->params[i] -= a->lr * a->grads[i];
}

/* Whole gradients; a worker that has to wait for fresh params goes on from its own. */
static td_status accrue_all(td__ps_rule *r, const td__grad_share *share, double lr, bool update)
{
    td_params *params = r->base.x.step.params;
    size_t floats = td__step_floats(r->base.engine);
    accrual a = {.r = r, .dense = td__params_dense(params), .lr = (float)lr};
    td__mapping grads, own = {0};
    TD_TRY(td__mem_map(td__params_device(params), share->grads, floats * sizeof(float), TD_MAP_READ,
                       &grads));
    td_status st =
        update ? td__params_map(params, 0, td__params_total(params), TD_MAP_BOTH, &own) : TD_OK;
    a.grads = grads.at;
    a.params = update && !st ? own.at : NULL;
    if (!st)
        st = td__step_in_ranges(r->base.engine, floats, accrue, &a);
    td__mem_map_drop(&grads);
    if (st || !update) {
        td__mem_map_drop(&own);
        return st;
    }
    TD_TRY(td__mem_unmap(&own));
    td_params_touch(params);
    return TD_OK;
}

static td_status tell_servers(td__ps_rule *r, const td__ps_push *p, const double *numbers)
{
    size_t floats = td__step_floats(r->base.engine);
    for (int s = 0; s < r->servers; s++) {
        td__ps_lane *l = &r->lanes[s];
        td__param_range at = td__ps_held(r, s);
        if (s && !p->grads)
            continue;
        TD_TRY(td__ps_tell(l, p, sizeof *p));
        if (s == 0 && p->n_numbers)
            TD_TRY(td__ps_tell(l, numbers, (size_t)p->n_numbers * sizeof *numbers));
        for (int i = 0; i < p->slots; i++)
            TD_TRY(td__ps_hand(l, l->push + (size_t)i * floats + at.begin, at.end - at.begin));
    }
    return TD_OK;
}

/* What this rank has of the step, in the lanes. */
static td_status fill_lanes(td__ps_rule *r, const td__ps_order *order, td__ps_push *p)
{
    td__step_engine *e = r->base.engine;
    td__grad_share share;
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
    TD_TRY(td__step_own_share(e, &share));
    p->loss = share.loss;
    p->grads = r->clock % (uint64_t)every == 0;
    p->slots = p->grads;
    TD_TRY(accrue_all(r, &share, order->lr, r->policy->push_every != NULL));
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
    TD_TRY(x->host.work(x->host.user, &at, &batches, &data_wait));
    r->clock++;
    TD_TRY(fill_lanes(r, order, &p));
    TD_TRY(td__ps_tables_push(r->tables, e, order->lr, order->step));
    td__step_span(e, TD_SPAN_STEP, begin_ns, td__clock_ns(), 0, 0);
    p.rows = td__step_own_rows(e);
    p.stop = x->host.stopping(x->host.user);
    if (x->config->before_share)
        x->config->before_share(x->config->before_share_user, r->rank, order->step);
    r->total.compute += td__step_compute(e);
    r->total.data += data_wait;
    for (int s = 0; s < r->servers; s++) {
        td__param_range held = td__ps_held(r, s);
        r->total.nbytes += (double)((size_t)p.slots * (held.end - held.begin) * sizeof(float));
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

td_status td__ps_work(td__ps_rule *r)
{
    r->began_ns = td__clock_ns();
    for (;;) {
        td__ps_order order;
        uint64_t begin_ns = td__clock_ns();
        TD_TRY(td__ps_hear(&r->lanes[0], &order, sizeof order, true));
        r->base.alone = order.end == TD__PS_ALONE;
        r->base.resized = order.end == TD__PS_RESIZED;
        if (order.end)
            return order.end == TD__PS_ENDS ? td__ps_end_all(r) : TD_OK;
        if (order.params || order.acks)
            TD_TRY(pull(r, order.params));
        r->total.wait += seconds_since(begin_ns);
        td__step_span(r->base.engine, TD_SPAN_WAIT, begin_ns, td__clock_ns(), 0, 0);
        td_status st = work(r, &order);
        td__step_abandon(r->base.engine); /* what it has made is in the lanes */
        TD_TRY(st);
    }
}
