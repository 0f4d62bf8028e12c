/* op_dropout.c -- zero with probability p, the rest scaled so that the mean stays.
 *
 *    y_i = x_i / (1 - p)  where u32(seed, stream, step, micro-batch, i) >= p 2^32,  else 0
 *    dx  = the same applied to dy
 *
 * The mask is a function of the run's key, the node's stream and the element's number, so nothing
 * is stored: the gradient is the same operator with the same attributes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/rng.h"
#include "ops/op_util.h"

static td_status dropout_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    double p = ((const td_attr_dropout *)a->attr)->p;
    TD_TRY(td__need_float(a, 0));
    if (!(p >= 0 && p < 1))
        return TD_FAIL(TD_EINVAL, "probability %g is not in [0, 1)", p);
    out[0] = td__desc(a->in_desc[0]->dtype, a->in_desc[0]->shape);
    *n_out = 1;
    return TD_OK;
}

static void dropout_ref(const td_op_args *a)
{
    const td_attr_dropout *d = a->attr;
    const double *x = a->in[0];
    double *y = a->out[0], threshold = d->p * 4294967296.0, scale = 1 / (1 - d->p);
    td__rng_key key = {a->ctx->seed, d->stream, a->ctx->step, a->ctx->micro_batch};
    int64_t n = td__count(&a->in_desc[0]->shape);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)td__rng_u32(&key, (uint64_t)i) >= threshold ? x[i] * scale : 0;
}

static void dropout_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = TD__NODE(a->g, TD_OP_DROPOUT, a->y->attr, a->dy[0]);
}

static const td_attr_dropout TENTH = {.p = 0.1, .stream = 3}, HALF = {.p = 0.5, .stream = 7};
static const td_attr_dropout NONE = {.p = 0}, MOST = {.p = 0.99, .stream = 1};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F0}, .attr = &TENTH},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &NONE},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &HALF},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &HALF},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &TENTH},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &MOST},
};

const td_op_def td__op_dropout = {
    .name = "dropout",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_dropout),
    .infer = dropout_infer,
    .ref = dropout_ref,
    .grad = dropout_grad,
    .inplace = 1u,
    .random = true,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

td_node *td_dropout(td_graph *g, td_node *x, double p)
{
    td_attr_dropout attr;
    memset(&attr, 0, sizeof attr);
    attr.p = p;
    attr.stream = td__graph_next_stream(g);
    return TD__NODE(g, TD_OP_DROPOUT, &attr, x);
}
