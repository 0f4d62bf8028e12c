/* sync_diloco.c -- DiLoCo (Douillard and others, 2023): what ranks have made in tau steps is the
 * gradient of an outer optimizer, SGD with Nesterov momentum.
 *
 *     g = c - mean;   v <- mu v + g;   c <- c - rate (g + mu v);   x_i <- c
 *
 * With fragments (Streaming DiLoCo: Douillard and others, 2025) params are cut in ranges of whole
 * tensors, which are exchanged in turn, each every tau steps: as many bytes, in smaller portions.
 * Fragment k of F is due in steps s with s = k tau / F modulo tau. At a meeting those are exchanged
 * that were not in this step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/sync_local.h"

enum { MOST_FRAGMENTS = 64 };

typedef struct diloco {
    td__sync_local base;
    uint64_t merged[MOST_FRAGMENTS]; /* steps; */
} diloco;

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("50"),
    TD_KEY_ROW("rate", REAL, "Outer learning rate.", .hi = 10, .flags = TD_KEY_ABOVE, .def = "0.7"),
    TD_KEY_ROW("momentum", REAL, "mu: outer Nesterov momentum.", .hi = 1, .flags = TD_KEY_BELOW,
               .def = "0.9"),
    TD_KEY_ROW("fragments", INT, "Ranges of params that are exchanged in turn; at most tau.",
               .lo = 1, .hi = MOST_FRAGMENTS, .def = "1"),
    TD_KEYS_END};

static void merge(td__sync_local *l, float *x)
{
    float rate = (float)td__sync_value(&l->base, "rate");
    float mu = (float)td__sync_value(&l->base, "momentum");
    for (size_t i = l->from; i < l->to; i++) {
        float g = l->centre[i] - l->mean[i];
        l->momentum[i] = mu * l->momentum[i] + g;
        l->centre[i] -= rate * (g + mu * l->momentum[i]);
        x[i] = l->centre[i];
    }
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.blocks = 2, .merge = merge};
    return td__sync_local_create(s, &OPS);
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    double tau = td__sync_setting_of(c, &OPTIONS[0]), n = td__sync_setting_of(c, &OPTIONS[3]);
    TD_TRY(td__sync_local_check(c, j, w));
    return n <= tau ? TD_OK
                    : TD_FAIL(TD_EINVAL, "train.sync.fragments: %g fragments in %g steps", n, tau);
}

/* Tensors of fragment k, in the order of the block. */
static td__param_range fragment(const td_params *params, int k, int fragments)
{
    int n = td_params_count(params), first = n * k / fragments, end = n * (k + 1) / fragments;
    if (first == end)
        return (td__param_range){0, 0};
    return (td__param_range){first == 0 ? 0 : td_params_info(params, first).offset,
                             end == n ? td__params_total(params)
                                      : td_params_info(params, end).offset};
}

static td_status exchange(diloco *d, int k, int fragments)
{
    td__sync_local *l = &d->base;
    td__param_range r = fragment(l->base.x.step.params, k, fragments);
    if (d->merged[k] == l->step)
        return TD_OK;
    d->merged[k] = l->step;
    if (r.begin == r.end)
        return TD_OK;
    l->from = r.begin;
    l->to = r.end;
    return td__local_merge(l);
}

/* One more than the fragment that is exchanged after the step; there are no more of them than steps
 * between two exchanges. */
static int kind(const td__sync_config *c, uint64_t step, uint64_t steps)
{
    uint64_t tau = (uint64_t)td__sync_option(c, "tau");
    int fragments = (int)td__sync_option(c, "fragments");
    (void)steps;
    for (int k = 0; k < fragments; k++)
        if (step % tau == (uint64_t)k * tau / (uint64_t)fragments)
            return 1 + k;
    return 0;
}

static void plan(td__planner *w)
{
    int due = td__planner_kind(w), fragments = (int)td__sync_option(w->at->config, "fragments");
    td__param_range r = fragment(w->at->params, due ? due - 1 : 0, fragments);
    td__local_plan_step(w);
    if (due && r.begin < r.end)
        td__local_plan_mean(w, r.end - r.begin);
}

static td_status gather(td__sync *s)
{
    int due = td__sync_kind(s);
    return due ? exchange((diloco *)s, due - 1, (int)td__sync_value(s, "fragments")) : TD_OK;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    diloco *d = (diloco *)s;
    int fragments = (int)td__sync_value(s, "fragments");
    for (int k = 0; k < fragments; k++) {
        if (why == TD_MEET_BEGIN)
            d->merged[k] = d->base.step;
        else
            TD_TRY(exchange(d, k, fragments));
    }
    d->base.merged = d->base.step;
    return td__sync_local_meet(s, why);
}

const td__sync_ops td__sync_diloco = {
    .name = "diloco",
    .help = "DiLoCo: local updates, which are the gradient of an outer optimizer with momentum",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(diloco),
    .check = check,
    .traits = td__sync_local_traits,
    .exchange = td__sync_local_exchange,
    .create = create,
    .destroy = td__sync_local_destroy,
    .begin = td__sync_local_begin,
    .step = td__sync_local_step,
    .gather = gather,
    .plan = plan,
    .kind = kind,
    .meet = meet,
    .states = td__sync_local_states,
};
