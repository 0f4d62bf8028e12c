/* op_pieces_cut.c -- a tensor in pieces along an axis, and back (graph/rewrites/rewrite_tensor.c).
 *
 *     pieces_cut    y_w = piece w of x           dx = pieces_join(dy_w ...), zero elsewhere
 *     pieces_join   y has the x_w in its place   dx_w = pieces_cut(dy)
 *
 * With several ranks, `ranks` of them, the runner fills in the pieces that others have; with 1, as
 * of params that are cut, what no piece has is zero. Such params, and their gradients, are packed
 * (op_pieces.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_pieces.h"

#include <string.h>

#include "ops/op_check.h"

td__tensor_piece td__piece_of(const td_attr_pieces *a, const td_shape *whole, int w)
{
    int64_t n = whole->dim[a->axis] / a->groups;
    td__tensor_piece p = {.outer = td__count_range(whole, 0, a->axis),
                          .groups = a->groups,
                          .group = n,
                          .begin = n * w / a->pieces,
                          .inner = td__count_range(whole, a->axis + 1, whole->ndim)};
    p.count = n * (w + 1) / a->pieces - p.begin;
    if (a->packed) {
        int64_t rows = p.outer * p.groups;
        p = (td__tensor_piece){1, 1, rows * n, rows * p.begin, rows * p.count, p.inner};
    }
    return p;
}

int64_t td__pieces_range(const td_attr_pieces *a, const td_shape *whole, int w, int n,
                         int64_t *begin)
{
    td_attr_pieces packed = *a;
    packed.packed = 1;
    td__tensor_piece first = td__piece_of(&packed, whole, w);
    td__tensor_piece last = td__piece_of(&packed, whole, w + n - 1);
    *begin = first.begin * first.inner;
    return (last.begin + last.count - first.begin) * first.inner;
}

static td_shape piece_shape(const td_attr_pieces *a, const td_shape *whole, int w)
{
    td_shape s = *whole;
    int64_t n = whole->dim[a->axis] / a->groups;
    s.dim[a->axis] = (n * (w + 1) / a->pieces - n * w / a->pieces) * a->groups;
    return s;
}

static td_status check(const td_attr_pieces *a, const td_shape *whole)
{
    if (a->axis < 0 || a->axis >= whole->ndim)
        return TD_FAIL(TD_EINVAL, "axis %d of %d", a->axis, whole->ndim);
    if (a->groups < 1 || whole->dim[a->axis] % a->groups)
        return TD_FAIL(TD_EINVAL, "axis %d of size %lld in %d groups", a->axis,
                       (long long)whole->dim[a->axis], a->groups);
    if (a->ranks < 1 || a->n < 1 || a->n > TD_MAX_OUT || a->first < 0 ||
        a->first + a->n > a->pieces)
        return TD_FAIL(TD_EINVAL, "%d pieces from %d of %d, of %d ranks", a->n, a->first, a->pieces,
                       a->ranks);
    return TD_OK;
}

static td_status cut_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_pieces *at = a->attr;
    TD_TRY(check(at, &a->in_desc[0]->shape));
    for (int i = 0; i < at->n; i++)
        out[i] =
            td__desc(a->in_desc[0]->dtype, piece_shape(at, &a->in_desc[0]->shape, at->first + i));
    *n_out = at->n;
    return TD_OK;
}

static td_status join_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_pieces *at = a->attr;
    TD_TRY(td__need_valid_shape(&at->whole));
    TD_TRY(check(at, &at->whole));
    if (a->n_in != at->n)
        return TD_FAIL(TD_EINVAL, "%d tensors for %d pieces", a->n_in, at->n);
    for (int i = 0; i < at->n; i++) {
        td_shape want = piece_shape(at, &at->whole, at->first + i);
        TD_TRY(td__want_same_dtype(a, i, "a piece"));
        TD_TRY(td__want_shape(a, i, "a piece", &want));
    }
    out[0] = td__desc(a->in_desc[0]->dtype, at->whole);
    *n_out = 1;
    return TD_OK;
}

/* Rows of `inner` elements of size e, between a piece and its place in the whole. */
static void move(const td__tensor_piece *p, char *whole, char *piece, size_t e, bool join)
{
    size_t row = (size_t)(p->count * p->inner) * e;
    for (int64_t o = 0; o < p->outer * p->groups && row; o++, piece += row) {
        char *at = whole + (size_t)((o * p->group + p->begin) * p->inner) * e;
        memcpy(join ? at : piece, join ? piece : at, row);
    }
}

static void cut_ref(const td_op_args *a)
{
    const td_attr_pieces *at = a->attr;
    for (int i = 0; i < a->n_out; i++) {
        td__tensor_piece p = td__piece_of(at, &a->in_desc[0]->shape, at->first + i);
        move(&p, (char *)(uintptr_t)a->in[0], a->out[i], td__ref_size(a->out_desc[i].dtype), false);
    }
}

static void join_ref(const td_op_args *a)
{
    const td_attr_pieces *at = a->attr;
    size_t e = td__ref_size(a->out_desc[0].dtype);
    memset(a->out[0], 0, (size_t)td__count(&at->whole) * e);
    for (int i = 0; i < a->n_in; i++) {
        td__tensor_piece p = td__piece_of(at, &at->whole, at->first + i);
        move(&p, a->out[0], (char *)(uintptr_t)a->in[i], e, true);
    }
}

static void cut_grad(const td_grad_args *ga)
{
    td_attr_pieces at;
    td_node *dy[TD_MAX_OUT];
    if (!ga->need[0])
        return;
    memcpy(&at, ga->y->attr, sizeof at);
    at.whole = ga->y->in[0]->out[0].shape;
    for (int i = 0; i < at.n; i++)
        dy[i] = ga->dy[i] ? ga->dy[i] : td__zeros_like(ga->g, td__part(ga->g, ga->y, i));
    ga->dx[0] = td__node(ga->g, TD_OP_PIECES_JOIN, &at, dy, at.n);
}

static void join_grad(const td_grad_args *ga)
{
    const td_attr_pieces *at = ga->y->attr;
    td_node *cut = TD__NODE(ga->g, TD_OP_PIECES_CUT, at, ga->dy[0]);
    for (int i = 0; i < at->n; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(ga->g, cut, i);
}

#define PIECES(a, g, p, f, k, ...)                                           \
    {                                                                        \
        .axis = a, .groups = g, .pieces = p, .first = f, .n = k, .ranks = 1, \
        .whole = TD__DIMS(__VA_ARGS__)                                       \
    }
static const td_attr_pieces ROWS = PIECES(0, 1, 2, 0, 2, 8, 3), LAST = PIECES(1, 1, 4, 2, 1, 3, 8),
                            GROUPS = PIECES(1, 3, 2, 1, 1, 5, 12),
                            UNEVEN = PIECES(0, 1, 4, 0, 4, 10, 2),
                            HEADS = PIECES(2, 1, 2, 0, 1, 2, 3, 4, 5),
                            PACKED = {.axis = 1,
                                      .groups = 3,
                                      .pieces = 2,
                                      .n = 2,
                                      .ranks = 1,
                                      .packed = 1,
                                      .whole = TD__DIMS(5, 12)};

static const td_op_sample CUT_SAMPLES[] = {
    {.n_in = 1, .in = {TD__FLOATS(8, 3)}, .attr = &ROWS},
    {.n_in = 1, .in = {TD__FLOATS(3, 8)}, .attr = &LAST},
    {.n_in = 1, .in = {TD__FLOATS(5, 12)}, .attr = &GROUPS},
    {.n_in = 1, .in = {TD__FLOATS(10, 2)}, .attr = &UNEVEN},
    {.n_in = 1, .in = {TD__FLOATS(2, 3, 4, 5)}, .attr = &HEADS},
    {.n_in = 1, .in = {TD__FLOATS(0, 12)}, .attr = &GROUPS},
    {.n_in = 1, .in = {TD__FLOATS(5, 12)}, .attr = &PACKED},
};
static const td_op_sample JOIN_SAMPLES[] = {
    {.n_in = 2, .in = {TD__FLOATS(4, 3), TD__FLOATS(4, 3)}, .attr = &ROWS},
    {.n_in = 1, .in = {TD__FLOATS(3, 2)}, .attr = &LAST},
    {.n_in = 1, .in = {TD__FLOATS(5, 6)}, .attr = &GROUPS},
    {.n_in = 4,
     .in = {TD__FLOATS(2, 2), TD__FLOATS(3, 2), TD__FLOATS(2, 2), TD__FLOATS(3, 2)},
     .attr = &UNEVEN},
    {.n_in = 1, .in = {TD__FLOATS(2, 3, 2, 5)}, .attr = &HEADS},
    {.n_in = 2, .in = {TD__FLOATS(5, 6), TD__FLOATS(5, 6)}, .attr = &PACKED},
};

const td_op_def td__op_pieces_cut = {
    .name = "pieces_cut",
    .n_in_min = 1,
    .n_in_max = 1,
    .attr_size = sizeof(td_attr_pieces),
    .infer = cut_infer,
    .ref = cut_ref,
    .grad = cut_grad,
    .grad_out = TD__ALL_INPUTS,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = CUT_SAMPLES,
    .n_samples = TD_LEN(CUT_SAMPLES),
};

const td_op_def td__op_pieces_join = {
    .name = "pieces_join",
    .n_in_min = 1,
    .n_in_max = TD_MAX_IN,
    .attr_size = sizeof(td_attr_pieces),
    .infer = join_infer,
    .ref = join_ref,
    .grad = join_grad,
    .bf16 = TD_BF16_FOLLOW,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = JOIN_SAMPLES,
    .n_samples = TD_LEN(JOIN_SAMPLES),
};
