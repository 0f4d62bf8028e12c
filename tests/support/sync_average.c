/* sync_average.c -- a small sync rule, for tests and as an example of one (CONTRIBUTING.md): local
 * updates with model averaging. Each rank updates its own params with the mean gradient of its own
 * rows; every `every` steps, and whenever ranks meet, all take the mean of their params. The
 * optimizer's state stays each rank's own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "parallel/sync.h"

typedef struct average {
    td__sync base;
    uint64_t step;
} average;

static const td__sync_option OPTIONS[] = {
    {"every", "Steps between two averages.", .initial = 4, .least = 1, .most = 1e6}, {NULL}};

static td_status average_params(td__sync *s)
{
    td_params *ps = s->x.step.params;
    size_t count;
    float *params = td_params_block(ps, &count);
    if (!s->x.comm)
        return TD_OK;
    TD_TRY(td_allreduce(s->x.comm, params, params, count, TD_F32, TD_REDUCE_SUM, NULL));
    for (size_t i = 0; i < count; i++)
        params[i] /= (float)td_comm_size(s->x.comm);
    td_params_touch(ps);
    return TD_OK;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    (void)c;
    (void)w;
    return td__sync_needs_host(j, "the sync rule average");
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
        TD_TRY(td__step_apply(s->engine, rows, NULL, 0, lr, out));
    td__step_done(s->engine, out);
    if (((average *)s)->step % (uint64_t)td__sync_value(s, "every") == 0)
        TD_TRY(average_params(s));
    return TD_OK;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    (void)why;
    return average_params(s);
}

const td__sync_ops td__sync_average = {
    .name = "average",
    .help = "local updates, params averaged every few steps",
    .promise = "a function of the number of ranks",
    .options = OPTIONS,
    .size = sizeof(average),
    .check = check,
    .begin = begin,
    .step = step,
    .meet = meet,
};
