/* op_slice.c -- every step-th element of [start, stop) along one axis; its backward; and split.
 *
 *    y[.., i, ..] = x[.., start + i step, ..]
 *    dx = dy put back at those places, 0 elsewhere     (slice_back) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_util.h"

/* The shape of the slice of `x` that s describes. */
static td_status slice_shape(const td_attr_slice *s, const td_shape *x, td_shape *out)
{
    if (s->axis < 0 || s->axis >= x->ndim)
        return TD_FAIL(TD_EINVAL, "axis %d of %d", s->axis, x->ndim);
    int64_t size = x->dim[s->axis];
    if (s->start < 0 || s->stop > size || s->start > s->stop)
        return TD_FAIL(TD_EINVAL, "[%lld, %lld) is not within axis %d of size %lld",
                       (long long)s->start, (long long)s->stop, s->axis, (long long)size);
    if (s->step < 1)
        return TD_FAIL(TD_EINVAL, "step %lld is not positive", (long long)s->step);
    *out = *x;
    int64_t span = s->stop - s->start;
    out->dim[s->axis] = span / s->step + (span % s->step != 0);
    return TD_OK;
}

static td_status slice_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_shape y;
    TD_TRY(slice_shape(a->attr, &a->in_desc[0]->shape, &y));
    out[0] = td__desc(a->in_desc[0]->dtype, y);
    *n_out = 1;
    return TD_OK;
}

static td_status slice_back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_slice *s = a->attr;
    td_shape dy;
    TD_TRY(td__need_float(a, 0));
    TD_TRY(td__need_valid_shape(&s->input));
    TD_TRY(slice_shape(s, &s->input, &dy));
    TD_TRY(td__need_shape(a, 0, &dy));
    out[0] = td__desc(a->in_desc[0]->dtype, s->input);
    *n_out = 1;
    return TD_OK;
}

static void slice_ref(const td_op_args *a)
{
    const td_attr_slice *s = a->attr;
    const td_shape *x = &a->in_desc[0]->shape, *y = &a->out_desc[0].shape;
    int64_t outer = td__count_range(x, 0, s->axis);
    int64_t inner = td__count_range(x, s->axis + 1, x->ndim);
    size_t row = (size_t)inner * td__ref_size(a->out_desc[0].dtype);
    const char *from = a->in[0];
    char *to = a->out[0];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < y->dim[s->axis]; i++, to += row)
            memcpy(to, from + (size_t)(o * x->dim[s->axis] + s->start + i * s->step) * row, row);
}

static void slice_back_ref(const td_op_args *a)
{
    const td_attr_slice *s = a->attr;
    const td_shape *x = &s->input, *y = &a->in_desc[0]->shape;
    int64_t outer = td__count_range(x, 0, s->axis);
    int64_t inner = td__count_range(x, s->axis + 1, x->ndim);
    size_t row = (size_t)inner * sizeof(double);
    const double *dy = a->in[0];
    double *dx = a->out[0];
    memset(dx, 0, (size_t)td__count(x) * sizeof *dx);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < y->dim[s->axis]; i++, dy += inner)
            memcpy(dx + (o * x->dim[s->axis] + s->start + i * s->step) * inner, dy, row);
}

static void slice_grad(const td_grad_args *a)
{
    if (!a->need[0])
        return;
    td_attr_slice attr;
    memcpy(&attr, a->y->attr, sizeof attr);
    attr.input = a->y->in[0]->out[0].shape;
    a->dx[0] = TD__NODE(a->g, TD_OP_SLICE_BACK, &attr, a->dy[0]);
}

static const td_attr_slice WHOLE = {.axis = 0, .start = 0, .stop = 7, .step = 1};
static const td_attr_slice PART = {.axis = 1, .start = 2, .stop = 11, .step = 1};
static const td_attr_slice STEPS = {.axis = 1, .start = 1, .stop = 13, .step = 3};
static const td_attr_slice NOTHING = {.axis = 0, .start = 4, .stop = 4, .step = 1};
static const td_attr_slice CHANNEL = {.axis = 1, .start = 1, .stop = 3, .step = 1};

static const td_op_sample SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(7)}, .attr = &WHOLE},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &PART},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &STEPS},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 13)}, .attr = &NOTHING},
    {.n_in = 1, .in = {TD_SAMPLE_F(0, 13)}, .attr = &PART},
    {.n_in = 1, .in = {TD_SAMPLE_F(2, 3, 5, 4)}, .attr = &CHANNEL},
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 33, 65)}, .attr = &STEPS},
    {.n_in = 1, .in = {TD_SAMPLE_D(TD_I64, 7, 13)}, .attr = &STEPS, .ilo = 0, .ihi = 99},
};

static const td_attr_slice BACK_PART = {
    .axis = 1, .start = 2, .stop = 11, .step = 1, .input = TD__DIMS(7, 13)};
static const td_attr_slice BACK_STEPS = {
    .axis = 1, .start = 1, .stop = 13, .step = 3, .input = TD__DIMS(3, 13, 5)};
static const td_attr_slice BACK_NOTHING = {
    .axis = 0, .start = 4, .stop = 4, .step = 1, .input = TD__DIMS(7)};

static const td_op_sample BACK_SAMPLES[] = {
    {.n_in = 1, .in = {TD_SAMPLE_F(7, 9)}, .attr = &BACK_PART},
    {.n_in = 1, .in = {TD_SAMPLE_F(3, 4, 5)}, .attr = &BACK_STEPS},
    {.n_in = 1, .in = {TD_SAMPLE_F(0)}, .attr = &BACK_NOTHING},
};

const td_op_def td__op_slice = {
    .name = "slice",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_slice),
    .infer = slice_infer,
    .ref = slice_ref,
    .grad = slice_grad,
    .bf16 = TD_BF16_FOLLOW,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_slice_back = {
    .name = "slice_back",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_slice),
    .infer = slice_back_infer,
    .ref = slice_back_ref,
    .bf16 = TD_BF16_FOLLOW,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

td_node *td_slice(td_graph *g, td_node *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    td_attr_slice attr;
    memset(&attr, 0, sizeof attr);
    if (x) {
        if (!td__norm_axis(g, "td_slice", x, axis, &attr.axis))
            return NULL;
        int64_t size = x->out[0].shape.dim[attr.axis];
        attr.start = start < 0 ? start + size : start;
        attr.stop = stop < 0 ? stop + size : stop == INT64_MAX ? size : stop;
        attr.step = step;
    }
    return TD__NODE(g, TD_OP_SLICE, &attr, x);
}

td_node *td_split(td_graph *g, td_node *x, int axis, int n, td_node **out)
{
    int at = 0;
    if (!out)
        return td__graph_fail(g, TD_EINVAL, "td_split", "there is no place for the parts");
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    if (x && !td__norm_axis(g, "td_split", x, axis, &at))
        return NULL;
    int64_t size = x ? x->out[0].shape.dim[at] : 0;
    if (x && (n < 1 || size % n != 0)) {
        char text[128];
        return td__graph_fail(g, TD_EINVAL, "td_split",
                              "axis %d of %s, shape %s, does not split into %d equal parts", axis,
                              x->name, td_shape_text(&x->out[0].shape, text, sizeof text), n);
    }
    for (int i = 0; i < n; i++)
        out[i] = td_slice(g, x, at, i * (size / n), (i + 1) * (size / n), 1);
    return n > 0 ? out[0] : NULL;
}
