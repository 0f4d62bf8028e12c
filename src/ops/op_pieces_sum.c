/* op_pieces_sum.c -- where products in pieces begin and end (graph/rewrites/rewrite_tensor.c).
 *
 *     pieces_fan   y_0 = y_1 = ... = x           dx = pieces_sum(dy_0, dy_1, ...)
 *     pieces_sum   y = sum of the x_i             dx_i = dy
 *
 * The sum is taken in a tree: halves of the inputs first, the larger power of two before. With
 * several ranks each has some of the inputs, neighbours in the tree, and the runner adds what they
 * have in the tree over ranks: for powers of two that is the one tree over all pieces, whoever has
 * them. With `scatter` this rank needs the rows of its own pieces alone, along `axis` of `whole`,
 * and what it has elsewhere is undefined (rewrite_scatter.c). Sums are f32 (f64 for f64); in a bf16
 * program what is added is bf16. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_check.h"

static td_status check(const td_op_args *a, int n)
{
    const td_attr_pieces *at = a->attr;
    if (at->ranks < 1 || at->n != n)
        return TD_FAIL(TD_EINVAL, "%d pieces of %d ranks, with %d tensors", at->n, at->ranks, n);
    return TD_OK;
}

static td_status fan_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_pieces *at = a->attr;
    TD_TRY(td__want_float(a, 0, "x"));
    if (at->n < 1 || at->n > TD_MAX_OUT)
        return TD_FAIL(TD_EINVAL, "%d pieces: 1 to %d are possible", at->n, TD_MAX_OUT);
    for (int i = 0; i < at->n; i++)
        out[i] = *a->in_desc[0];
    *n_out = at->n;
    return check(a, at->n);
}

static void fan_ref(const td_op_args *a)
{
    size_t nbytes = (size_t)td__count(&a->out_desc[0].shape) * sizeof(double);
    for (int i = 0; i < a->n_out; i++)
        if (nbytes)
            memcpy(a->out[i], a->in[0], nbytes);
}

static void fan_grad(const td_grad_args *ga)
{
    const td_attr_pieces *at = ga->y->attr;
    td_node *dy[TD_MAX_OUT];
    if (!ga->need[0])
        return;
    for (int i = 0; i < at->n; i++)
        dy[i] = ga->dy[i] ? ga->dy[i] : td__zeros_like(ga->g, ga->y);
    td_node *sum = td__node(ga->g, TD_OP_PIECES_SUM, at, dy, at->n);
    ga->dx[0] = td__cast_to(ga->g, sum, ga->y->out[0].dtype);
}

static td_status sum_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    TD_TRY(td__want_float(a, 0, "x"));
    for (int i = 1; i < a->n_in; i++)
        TD_TRY(td__want_activation(a, i, "a partial sum", &a->in_desc[0]->shape));
    out[0] = td__desc(td__acc_dtype(a->in_desc[0]->dtype), a->in_desc[0]->shape);
    *n_out = 1;
    return check(a, a->n_in);
}

/* Element k of inputs [begin, end). */
static double tree(const td_op_args *a, int64_t k, int begin, int end)
{
    int half = 1;
    if (end - begin == 1)
        return ((const double *)a->in[begin])[k];
    while (2 * half < end - begin)
        half *= 2;
    return tree(a, k, begin, begin + half) + tree(a, k, begin + half, end);
}

static void sum_ref(const td_op_args *a)
{
    double *y = a->out[0];
    for (int64_t k = 0; k < td__count(&a->out_desc[0].shape); k++)
        y[k] = tree(a, k, 0, a->n_in);
}

static void sum_grad(const td_grad_args *ga)
{
    for (int i = 0; i < ga->y->n_in; i++)
        if (ga->need[i])
            ga->dx[i] = td__cast_to(ga->g, ga->dy[0], ga->y->in[i]->out[0].dtype);
}

static const td_attr_pieces ONE = {.pieces = 1, .n = 1, .ranks = 1},
                            THREE = {.pieces = 3, .n = 3, .ranks = 1},
                            FOUR = {.pieces = 4, .n = 4, .ranks = 1};

static const td_op_sample FAN_SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(7)}, .attr = &ONE},
    {.n_in = 1, .in = {TD__FLOATS(3, 5)}, .attr = &THREE},
    {.n_in = 1, .in = {TD__FLOATS(0, 5)}, .attr = &FOUR},
    {.n_in = 1, .in = {TD__FLOATS(65, 33)}, .attr = &FOUR},
};

#define SAME_3(...)                                                               \
    {                                                                             \
        TD__FLOATS(__VA_ARGS__), TD__FLOATS(__VA_ARGS__), TD__FLOATS(__VA_ARGS__) \
    }
#define SAME_4(...)                                                                \
    {                                                                              \
        TD__FLOATS(__VA_ARGS__), TD__FLOATS(__VA_ARGS__), TD__FLOATS(__VA_ARGS__), \
            TD__FLOATS(__VA_ARGS__)                                                \
    }
static const td_op_sample SUM_SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(7)}, .attr = &ONE},
    {.n_in = 3, .in = SAME_3(3, 5), .attr = &THREE},
    {.n_in = 4, .in = SAME_4(0, 5), .attr = &FOUR},
    {.n_in = 4, .in = SAME_4(17, 65), .attr = &FOUR},
    {.n_in = 3, .in = SAME_3(1031), .attr = &THREE},
};

const td_op_def td__op_pieces_fan = {
    .name = "pieces_fan",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pieces),
    .infer = fan_infer,
    .ref = fan_ref,
    .grad = fan_grad,
    .grad_out = TD__ALL_INPUTS,
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = FAN_SAMPLES,
    .n_samples = TD_LEN(FAN_SAMPLES),
};

const td_op_def td__op_pieces_sum = {
    .name = "pieces_sum",
    .n_in_min = 1,
    .n_in_max = TD_MAX_IN,
    .attr_size = sizeof(td_attr_pieces),
    .infer = sum_infer,
    .ref = sum_ref,
    .grad = sum_grad,
    .inplace = TD__BIT(0),
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SUM_SAMPLES,
    .n_samples = TD_LEN(SUM_SAMPLES),
};
