/* plan_moves.c -- operators that move elements (kernels/moves.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/moves.h"
#include "base/fail.h"
#include "base/half.h"

/* Bits of a number in a type. */
static unsigned long long bits_of(td_dtype t, double v)
{
    unsigned long long bits = 0;
    float f = (float)v;
    switch (t) {
    case TD_F32: memcpy(&bits, &f, sizeof f); break;
    case TD_F64: memcpy(&bits, &v, sizeof v); break;
    case TD_BF16: bits = td__bf16_from_f32(f); break;
    case TD_F16: bits = td__f16_from_f32(f); break;
    case TD_BOOL: bits = v != 0; break;
    default: bits = (unsigned long long)(long long)v;
    }
    return bits;
}

static void steps_of(const td_shape *s, long long step[TD__IO_DIMS])
{
    long long run = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        step[i] = run;
        run *= s->dim[i];
    }
}

/* A move over all of `box` with every index inside, from and to nowhere in particular yet. */
static td__move_args move_over(const td_shape *box, td_dtype t)
{
    td__move_args a = {.n = td_shape_count(box), .ndim = box->ndim};
    a.nbytes = (int)td_dtype_size(t);
    for (int i = 0; i < box->ndim; i++) {
        a.dim[i] = a.hi[i] = box->dim[i];
        a.by[i] = 1;
    }
    return a;
}

static td_status add_move(td__cuda *b, td_kernel *k, const td__move_args *a)
{
    return td__cuda_add(b, k, "move", TD_DTYPE_COUNT, td__cuda_grid_for(b, a->n), a, sizeof *a);
}

/* Rows of `wide` bytes, from an array of rows of in_pitch to one of out_pitch, each beginning at
 * its offset. TD_ENOTSUP: these are no multiples of 16. */
static td_status add_rows(td__cuda *b, td_kernel *k, td__cuda_at from, td__cuda_at to, int64_t rows,
                          int64_t wide, int64_t in_pitch, int64_t out_pitch)
{
    td__move_rows_args a = {
        .rows = rows, .lots = wide / 16, .in_pitch = in_pitch / 16, .out_pitch = out_pitch / 16};
    if ((wide | in_pitch | out_pitch | (int64_t)from.offset | (int64_t)to.offset) % 16 != 0)
        return TD_ENOTSUP;
    return td__cuda_add_bound(b, k, "move_rows", TD_DTYPE_COUNT,
                              td__cuda_grid_for(b, rows * a.lots), &a, sizeof a,
                              &(td__cuda_bind){.in = {from}, .out = {to}});
}

td_status td__cuda_plan_permute(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const int *axes = ((const td_attr_permute *)n->attr)->axes;
    td__move_args a = move_over(&n->out[0].shape, n->out[0].dtype);
    long long own[TD__IO_DIMS];
    (void)is_param;
    steps_of(&td__in_desc_of(n, 0)->shape, own);
    steps_of(&n->out[0].shape, a.out_step);
    for (int i = 0; i < a.ndim; i++)
        a.in_step[i] = own[axes[i]];
    return add_move(b, k, &a);
}

td_status td__cuda_plan_expand(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    td__move_args a = move_over(&n->out[0].shape, n->out[0].dtype);
    long long own[TD__IO_DIMS];
    (void)is_param;
    steps_of(x, own);
    steps_of(&n->out[0].shape, a.out_step);
    for (int i = 0; i < x->ndim; i++)
        a.in_step[i + a.ndim - x->ndim] = x->dim[i] == 1 ? 0 : own[i];
    return add_move(b, k, &a);
}

td_status td__cuda_plan_slice(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_slice *s = n->attr;
    td__move_args a = move_over(&n->out[0].shape, n->out[0].dtype);
    (void)is_param;
    steps_of(&td__in_desc_of(n, 0)->shape, a.in_step);
    steps_of(&n->out[0].shape, a.out_step);
    if (n->op == TD_OP_SLICE) { /* index' = start + index step: counted from a negative place on */
        a.lo[s->axis] = 0;
        td__cuda_bind from = {.in = {TD__IN(0)}, .out = {TD__OUT(0)}};
        from.in[0].offset =
            (size_t)(s->start * a.in_step[s->axis]) * td_dtype_size(n->out[0].dtype);
        if (s->step == 1) {
            int64_t lot = a.in_step[s->axis] * (int64_t)td_dtype_size(n->out[0].dtype);
            int64_t wide = n->out[0].shape.dim[s->axis] * lot;
            td_status st = add_rows(b, k, from.in[0], TD__OUT(0),
                                    td__cuda_extent(&n->out[0].shape, 0, s->axis), wide,
                                    td__in_desc_of(n, 0)->shape.dim[s->axis] * lot, wide);
            if (st != TD_ENOTSUP)
                return st;
        }
        a.in_step[s->axis] *= s->step;
        return td__cuda_add_bound(b, k, "move", TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n), &a,
                                  sizeof a, &from);
    }
    int64_t taken = td__in_desc_of(n, 0)->shape.dim[s->axis];
    a.lo[s->axis] = s->start;
    a.by[s->axis] = s->step;
    a.hi[s->axis] = taken ? s->start + (taken - 1) * s->step + 1 : 0;
    return add_move(b, k, &a);
}

td_status td__cuda_plan_pad(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_pad *p = n->attr;
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    td__move_args a = move_over(&n->out[0].shape, n->out[0].dtype);
    (void)is_param;
    steps_of(x, a.in_step);
    steps_of(&n->out[0].shape, a.out_step);
    for (int i = 0; i < x->ndim; i++) {
        a.lo[i] = p->before[i];
        a.hi[i] = p->before[i] + x->dim[i];
    }
    a.fill = bits_of(n->out[0].dtype, p->value);
    return add_move(b, k, &a);
}

td_status td__cuda_plan_concat(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    int axis = ((const td_attr_axis *)n->attr)->axis;
    long long step[TD__IO_DIMS], before = 0;
    (void)is_param;
    steps_of(&n->out[0].shape, step);
    for (int i = 0; i < n->n_in; i++) {
        const td_shape *x = &td__in_desc_of(n, i)->shape;
        td__move_args a = move_over(x, n->out[0].dtype);
        steps_of(x, a.in_step);
        memcpy(a.out_step, step, sizeof step);
        a.out_at = before * step[axis];
        a.in = i;
        int64_t lot = step[axis] * (int64_t)td_dtype_size(n->out[0].dtype);
        td__cuda_at to = TD__OUT(0);
        to.offset = (size_t)(before * lot);
        td_status st =
            add_rows(b, k, TD__IN(i), to, td__cuda_extent(x, 0, axis), x->dim[axis] * lot,
                     x->dim[axis] * lot, n->out[0].shape.dim[axis] * lot);
        before += x->dim[axis];
        if (st == TD_ENOTSUP && a.n)
            st = add_move(b, k, &a);
        if (st && st != TD_ENOTSUP)
            return st;
    }
    return TD_OK;
}

td_status td__cuda_plan_reorder(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td__image from, to;
    td__move_args a = move_over(&n->out[0].shape, n->out[0].dtype);
    (void)is_param;
    if (a.ndim != 4)
        return td__cuda_add_copy(k, TD__OUT(0), TD__IN(0), td__desc_bytes(&n->out[0]));
    td__cuda_image_of(td__in_desc_of(n, 0), &from);
    td__cuda_image_of(&n->out[0], &to);
    for (int i = 0; i < 4; i++) {
        a.in_step[i] = from.step[i];
        a.out_step[i] = to.step[i];
    }
    return add_move(b, k, &a);
}

td_status td__cuda_plan_one_hot(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_one_hot *o = n->attr;
    td__one_hot_args a = {.n = td__desc_count(td__in_desc_of(n, 0)), .depth = o->depth};
    (void)is_param;
    a.ids = (int)td__in_desc_of(n, 0)->dtype;
    a.dtype = (int)o->dtype;
    return td__cuda_add(b, k, "one_hot", TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n * a.depth), &a,
                        sizeof a);
}

td_status td__cuda_plan_gather(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_axis *at = n->attr;
    bool back = n->op == TD_OP_GATHER_BACK;
    const td_desc *ids = td__in_desc_of(n, back ? 0 : 1);
    const td_shape *x = back ? &at->input : &td__in_desc_of(n, 0)->shape;
    td_dtype t = n->out[0].dtype;
    td__gather_args a = {.n = td__desc_count(&n->out[0]), .ndim = x->ndim, .axis = at->axis};
    (void)is_param;
    if (back && !td__cuda_takes(t))
        return TD_ENOTSUP;
    a.nbytes = (int)td_dtype_size(t);
    a.ids = (int)ids->dtype;
    for (int i = 0; i < x->ndim; i++) {
        a.x[i] = x->dim[i];
        a.index[i] = ids->shape.dim[i];
    }
    a.missing = td_dtype_is_float(t) ? bits_of(t, (double)__builtin_nanf("")) : 0;
    return td__cuda_add(b, k, back ? "gather_back" : "gather", back ? t : TD_DTYPE_COUNT,
                        td__cuda_grid_for(b, a.n), &a, sizeof a);
}
