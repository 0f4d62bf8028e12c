/* sync_average.c -- a small sync rule, for tests and as an example of one (CONTRIBUTING.md): local
 * updates with model averaging and block momentum (BMUF: Chen and Huo, 2016). Each rank updates its
 * own params with the mean gradient of its own rows. Every `every` steps, and whenever ranks meet,
 * with the mean m of their params:
 *
 *     delta = momentum delta + (m - centre);   centre = params = centre + delta
 *
 * The optimizer's state stays each rank's own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/sync.h"

typedef struct average {
    td__sync base;
    uint64_t step, averaged; /* under way; the last one with an average */
    size_t count;
    float *centre, *delta, *sum; /* (count) */
} average;

static const td__key OPTIONS[] = {
    TD_KEY_ROW("every", INT, "Steps between two averages.", .lo = 1, .hi = 1e6, .def = "4"),
    TD_KEY_ROW("momentum", REAL, "Of the averages.", .hi = 1, .flags = TD_KEY_BELOW, .def = "0"),
    TD_KEYS_END};

static td_status create(td__sync *s)
{
    average *a = (average *)s;
    a->count = td__params_total(s->x.step.params);
    a->centre = td__calloc(a->count, sizeof *a->centre);
    a->delta = td__calloc(a->count, sizeof *a->delta);
    a->sum = td__calloc(a->count, sizeof *a->sum);
    return a->centre && a->delta && a->sum ? TD_OK
                                           : TD_FAIL(TD_ENOMEM, "no memory for averages of params");
}

static void destroy(td__sync *s)
{
    td__free(((average *)s)->centre);
    td__free(((average *)s)->delta);
    td__free(((average *)s)->sum);
}

static td_status find_sum(average *a, const float *params)
{
    td_comm *comm = a->base.x.comm;
    if (comm)
        return td_allreduce(comm, params, a->sum, a->count, TD_F32, TD_REDUCE_SUM, NULL);
    memcpy(a->sum, params, a->count * sizeof *params);
    return TD_OK;
}

static void merge(average *a, float *params)
{
    float ranks = a->base.x.comm ? (float)td_comm_size(a->base.x.comm) : 1;
    float momentum = (float)td__sync_value(&a->base, "momentum");
    for (size_t i = 0; i < a->count; i++) {
        float mean = a->sum[i] / ranks;
        a->delta[i] = momentum * a->delta[i] + (mean - a->centre[i]);
        params[i] = a->centre[i] = momentum > 0 ? a->centre[i] + a->delta[i] : mean;
    }
    a->averaged = a->step;
}

/* Nothing changes before all of the sum is there. Params may lie in memory of a device. */
static td_status average_params(average *a)
{
    td_params *params = a->base.x.step.params;
    td__mapping map;
    TD_TRY(td__params_map(params, 0, a->count, TD_MAP_BOTH, &map));
    td_status st = find_sum(a, map.at);
    if (st) {
        td__mem_map_drop(&map);
        return st;
    }
    merge(a, map.at);
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(params);
    return TD_OK;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->own_params = true;
}

static td_status begin(td__sync *s, const td__sync_place *at)
{
    ((average *)s)->step = at->step;
    return TD_OK;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    int64_t rows = td__step_own_rows(s->engine);
    td__grad_share own;

    TD_TRY(td__step_own_share(s->engine, &own));
    TD_TRY(td__sync_sum_numbers(s));
    if (rows)
        TD_TRY(td__step_apply(s->engine, NULL, 0, lr, out));
    td__step_done(s->engine, out);
    return TD_OK;
}

/* The step is done, whatever becomes of the average. */
static td_status gather(td__sync *s)
{
    average *a = (average *)s;
    return a->step % (uint64_t)td__sync_value(s, "every") == 0 ? average_params(a) : TD_OK;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    average *a = (average *)s;
    td_params *params = s->x.step.params;
    if (why == TD_MEET_BEGIN)
        TD_TRY(td__mem_read(td__params_device(params), a->centre, td_params_block(params, NULL),
                            a->count * sizeof *a->centre));
    return a->averaged == a->step ? TD_OK : average_params(a);
}

static int states(td__sync *s, td__sync_block *out)
{
    average *a = (average *)s;
    out[0] = (td__sync_block){.name = "centre", .data = a->centre, .count = a->count};
    out[1] = (td__sync_block){.name = "delta", .data = a->delta, .count = a->count};
    return 2;
}

const td__sync_ops td__sync_average = {
    .name = "average",
    .help = "local updates, params averaged every few steps",
    .promise = "a function of the number of ranks",
    .options = OPTIONS,
    .size = sizeof(average),
    .traits = traits,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .step = step,
    .gather = gather,
    .meet = meet,
    .states = states,
};
