/* plan_pieces.c -- tensors in pieces (kernels/pieces.cu; whole rows by kernels/moves.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/moves.h"
#include "backend/cuda/kernels/pieces.h"
#include "base/check.h"
#include "base/fail.h"
#include "ops/op_pieces.h"

td_status td__cuda_plan_pieces_fan(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    (void)b, (void)is_param;
    for (int i = 0; i < n->n_out; i++)
        TD_TRY(td__cuda_add_copy(k, TD__OUT(i), TD__IN(0), td__desc_bytes(&n->out[i])));
    return TD_OK;
}

/* Rows of a piece and their place in the whole. */
static td_status add_rows(td__cuda *b, td_kernel *k, const td__tensor_piece *p, td_dtype t,
                          td__cuda_at whole, td__cuda_at piece, bool join)
{
    int64_t rows = p->outer * p->groups, wide = p->count * p->inner;
    td__move_args a = {.n = rows * wide, .ndim = 2};
    a.nbytes = (int)td_dtype_size(t);
    a.dim[0] = a.hi[0] = rows;
    a.dim[1] = a.hi[1] = wide;
    a.by[0] = a.by[1] = 1;
    a.in_step[0] = join ? wide : p->group * p->inner;
    a.out_step[0] = join ? p->group * p->inner : wide;
    a.in_step[1] = a.out_step[1] = 1;
    whole.offset += (size_t)(p->begin * p->inner) * td_dtype_size(t);
    return td__cuda_add_bound(
        b, k, "move", TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n), &a, sizeof a,
        &(td__cuda_bind){.in = {join ? piece : whole}, .out = {join ? whole : piece}});
}

td_status td__cuda_plan_pieces_cut(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    const td_attr_pieces *at = n->attr;
    bool join = n->op == TD_OP_PIECES_JOIN;
    const td_shape *whole = join ? &at->whole : &td__in_desc_of(n, 0)->shape;
    (void)is_param;
    if (join && at->n < at->pieces)
        TD_TRY(td__cuda_add_zero(k, TD__OUT(0), td__desc_bytes(&n->out[0])));
    for (int i = 0; i < at->n; i++) {
        td__tensor_piece p = td__piece_of(at, whole, at->first + i);
        TD_TRY(add_rows(b, k, &p, n->out[0].dtype, join ? TD__OUT(0) : TD__IN(0),
                        join ? TD__IN(i) : TD__OUT(i), join));
    }
    return TD_OK;
}

td_status td__cuda_plan_pieces_sum(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    td__pieces_args a = {.n = td__desc_count(&n->out[0]), .n_in = n->n_in};
    (void)is_param;
    if (!td__cuda_takes(t) || n->out[0].dtype != TD_F32)
        return TD_ENOTSUP;
    for (int i = 1; i < n->n_in; i++)
        if (td__in_desc_of(n, i)->dtype != t)
            return TD_ENOTSUP;
    return td__cuda_add(b, k, "pieces_sum", t, td__cuda_grid_for(b, a.n), &a, sizeof a);
}

td_status td__cuda_plan_sync_mean(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    double m = (double)((const td_attr_sync_mean *)n->attr)->count;
    td__pieces_args a = {.n = td__desc_count(&n->out[0]), .by = (float)(m > 1 ? m / (m - 1) : 1)};
    (void)is_param;
    if (!td__cuda_takes(n->out[0].dtype))
        return TD_ENOTSUP;
    return td__cuda_add(b, k, "sync_mean", n->out[0].dtype, td__cuda_grid_for(b, a.n), &a,
                        sizeof a);
}

td_status td__cuda_plan_piece_ids(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_piece_ids *at = n->attr;
    td__pieces_args a = {.n = td__desc_count(&n->out[0]),
                         .first = at->first,
                         .rows = at->rows,
                         .last = at->last,
                         .ids = (int)n->out[0].dtype};
    (void)is_param;
    if (n->out[0].dtype != TD_I32 && n->out[0].dtype != TD_I64)
        return TD_ENOTSUP;
    return td__cuda_add(b, k, "piece_ids", TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n), &a, sizeof a);
}

/* ---- Cross entropy --------------------------------------------------------------------------- */

static td__xent_piece_args args_of(const td_node *n, int64_t rows, int64_t classes)
{
    const td_attr_xent_piece *at = n->attr;
    td__xent_piece_args a = {.x = {.rows = rows,
                                   .classes = classes,
                                   .ignore = at->loss.ignore_index,
                                   .use_ignore = at->loss.use_ignore,
                                   .smoothing = (float)at->loss.smoothing},
                             .first = at->first,
                             .all = at->classes};
    a.x.ids = (int)td__in_desc_of(n, 1)->dtype;
    return a;
}

/* Inputs behind the target are f32. */
static bool takes(const td_node *n)
{
    for (int i = 2; i < n->n_in; i++)
        if (td__in_desc_of(n, i)->dtype != TD_F32)
            return false;
    return td__cuda_takes(td__in_desc_of(n, 0)->dtype);
}

td_status td__cuda_plan_xent_piece(td__cuda *b, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    td__xent_piece_args a = args_of(n, td__cuda_extent(x, 0, x->ndim - 1), x->dim[x->ndim - 1]);
    (void)is_param;
    if (!takes(n))
        return TD_ENOTSUP;
    return td__cuda_add(b, k, td__op(n->op)->name, td__in_desc_of(n, 0)->dtype,
                        td__cuda_grid_each(a.x.rows), &a, sizeof a);
}

td_status td__cuda_plan_xent_join(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_desc *stats = td__in_desc_of(n, 0);
    td__xent_piece_args a = args_of(n, stats->shape.dim[1], 0);
    td__cuda_grid one = td__cuda_grid_each(1), each = td__cuda_grid_for(b, a.x.rows);
    (void)is_param;
    if (!takes(n))
        return TD_ENOTSUP;
    a.pieces = stats->shape.dim[0] / 3;
    td__cuda_want_scratch(k, (size_t)(a.x.rows + 1) * sizeof(float));
    if (n->op == TD_OP_XENT_JOIN_BACK) {
        td__cuda_bind count = {.in = {{0}, TD__IN(1)}, .out = {{0}, TD__SCRATCH(0)}};
        TD_TRY(
            td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, one, &a.x, sizeof a.x, &count));
        return td__cuda_add(b, k, "xent_join_back", stats->dtype, each, &a, sizeof a);
    }
    td__cuda_bind rows = {.in = {TD__IN(0), TD__IN(1)}, .out = {TD__SCRATCH(0), TD__OUT(1)}};
    td__cuda_bind sum = {.in = {TD__SCRATCH(0), TD__IN(1)}, .out = {TD__OUT(0)}};
    TD_TRY(td__cuda_add_bound(b, k, "xent_join", stats->dtype, each, &a, sizeof a, &rows));
    return td__cuda_add_bound(b, k, "xent_finish", TD_DTYPE_COUNT, one, &a.x, sizeof a.x, &sum);
}
