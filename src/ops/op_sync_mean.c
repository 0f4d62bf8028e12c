/* op_sync_mean.c -- the mean of a value over all micro-batches of a batch, each weighted by its
 * share w of the rows:
 *
 *     y = sum_j w_j x_j            u = y M / (M - 1),  M = elements behind y in all micro-batches
 *
 * A program knows one micro-batch. Its kernel gives y = x, as of a batch of one; whoever runs
 * several (step/sync_values.h) puts the mean of all in its place before the next step is run.
 *
 * Gradients of a micro-batch are of its own mean loss, and are weighted by w when they are added
 * up, so the gradient of a weighted mean is the weighted mean of gradients:
 *
 *     w_j dx_j = w_j sum_i w_i dy_i,   dx = the same operator applied to dy
 *
 * u, for running averages, carries no gradient. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status sync_mean_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_sync_mean *at = a->attr;
    TD_TRY(td__need_float(a, 0));
    if (at->count < 0)
        return TD_FAIL(TD_EINVAL, "a mean of %lld elements", (long long)at->count);
    out[0] = out[1] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 2;
    return TD_OK;
}

static void sync_mean_ref(const td_op_args *a)
{
    double m = (double)((const td_attr_sync_mean *)a->attr)->count;
    const double *x = a->in[0];
    double *y = a->out[0], *unbiased = a->out[1], by = m > 1 ? m / (m - 1) : 1;
    int64_t n = td__count(&a->in_desc[0]->shape);
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i];
        unbiased[i] = x[i] * by;
    }
}

static void sync_mean_grad(const td_grad_args *a)
{
    td_attr_sync_mean at;
    memset(&at, 0, sizeof at);
    if (a->need[0] && a->dy[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_SYNC_MEAN, &at, a->dy[0]);
}

static const td_attr_sync_mean PLAIN = {0}, ONE = {.count = 1}, MANY = {.count = 7};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(1)}, .attr = &ONE},
    {.n_in = 1, .in = {TD_SAMPLE_F(13)}, .attr = &PLAIN},
    {.n_in = 1, .in = {TD_SAMPLE_F(13)}, .attr = &MANY},
    {.n_in = 1, .in = {TD_SAMPLE_F(0)}, .attr = &MANY},
    {.n_in = 1, .in = {TD_SAMPLE_F(515)}, .attr = &MANY},
};

const td_op_def td__op_sync_mean = {
    .name = "sync_mean",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_sync_mean),
    .infer = sync_mean_infer,
    .ref = sync_mean_ref,
    .grad = sync_mean_grad,
    .random = true, /* what it gives depends on more than its input */
    .bf16 = TD_BF16_KEEP,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
