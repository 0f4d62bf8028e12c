/* op_reshape.c -- the same elements, in the same order, under another shape: a view.
 *
 *    dx = dy under x's shape */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

static td_status reshape_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_shape *from = &a->in_desc[0]->shape, *to = &((const td_attr_shape *)a->attr)->shape;
    TD_TRY(td__need_valid_shape(to));
    if (td__count(from) != td__count(to)) {
        char text[128];
        return TD_FAIL(TD_EINVAL, "%lld elements do not fill shape %s of %lld",
                       (long long)td__count(from), td_shape_text(to, text, sizeof text),
                       (long long)td__count(to));
    }
    out[0] = td__desc(a->in_desc[0]->dtype, *to);
    *n_out = 1;
    return TD_OK;
}

static void reshape_grad(const td_grad_args *a)
{
    if (a->need[0])
        a->dx[0] = td_reshape(a->g, a->dy[0], a->y->in[0]->out[0].shape);
}

static const td_attr_shape SCALAR = {.shape = {.ndim = 0}};
static const td_attr_shape FLAT = {.shape = TD__DIMS(91)};
static const td_attr_shape EMPTY = {.shape = TD__DIMS(0, 9)};
static const td_attr_shape CUBE = {.shape = TD__DIMS(5, 3, 1, 4)};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(1, 1)}, .attr = &SCALAR},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &FLAT},
    {.n_in = 1, .in = {TD_SAMPLE_F(4, 0, 5)}, .attr = &EMPTY},
    {.n_in = 1, .in = {TD_SAMPLE_F(6, 10)}, .attr = &CUBE},
};

const td_op_def td__op_reshape = {
    .name = "reshape",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_shape),
    .infer = reshape_infer,
    .grad = reshape_grad,
    .is_view = true,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

/* Replace the one -1 in *s by what makes n elements. */
static bool fill_unknown(td_shape *s, int64_t n)
{
    int at = -1;
    int64_t known = 1;
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] == -1 && at < 0)
            at = i;
        else if (s->dim[i] < 0 || !td__i64_mul(known, s->dim[i], &known))
            return false;
    }
    if (at < 0)
        return true;
    if (known == 0 || n % known != 0)
        return false;
    s->dim[at] = n / known;
    return true;
}

td_node *td_reshape(td_graph *g, td_node *x, td_shape shape)
{
    td_attr_shape attr;
    memset(&attr, 0, sizeof attr);
    if (x && shape.ndim >= 0 && shape.ndim <= TD_MAX_DIMS) {
        attr.shape.ndim = shape.ndim;
        for (int i = 0; i < shape.ndim; i++)
            attr.shape.dim[i] = shape.dim[i];
        if (!fill_unknown(&attr.shape, td__count(&x->out[0].shape))) {
            char from[128], to[128];
            return td__graph_fail(g, TD_EINVAL, "td_reshape", "%s of shape %s cannot become %s",
                                  x->name, td_shape_text(&x->out[0].shape, from, sizeof from),
                                  td_shape_text(&shape, to, sizeof to));
        }
    } else {
        attr.shape.ndim = shape.ndim;
    }
    return TD__NODE(g, TD_OP_RESHAPE, &attr, x);
}
