/* plan_shape.c -- operators that only move elements: permute, slice and its backward, concat, pad,
 * expand (all boxes, copy.h), and gather, one_hot (indices). Any type; row-major only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/cpu/copy.h"
#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "base/half.h"
#include "ops/attr.h"
#include "ops/op_util.h"

static bool all_plain(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (td__in_desc(n, i)->layout != TD_LAYOUT_PLAIN)
            return false;
    return n->out[0].layout == TD_LAYOUT_PLAIN;
}

/* One element with value v, repeated over n. */
static void fill(void *y, td_dtype t, int64_t n, double v)
{
    union {
        float f32;
        double f64;
        uint16_t h;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
    } e = {.i64 = 0};
    size_t size = td_dtype_size(t);
    static const char ZERO[8];

    switch (t) {
    case TD_F32: e.f32 = (float)v; break;
    case TD_F64: e.f64 = v; break;
    case TD_BF16: e.h = td__bf16_from_f32((float)v); break;
    case TD_F16: e.h = td__f16_from_f32((float)v); break;
    case TD_I32: e.i32 = (int32_t)v; break;
    case TD_I64: e.i64 = (int64_t)v; break;
    case TD_U8: e.u8 = (uint8_t)v; break;
    case TD_BOOL: e.u8 = v != 0; break;
    case TD_DTYPE_COUNT: break;
    }
    if (memcmp(&e, ZERO, size) == 0) {
        memset(y, 0, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)y + (size_t)i * size, &e, size);
}

/* ---- Boxes. ---- */

typedef struct box_state {
    bool fills; /* the output has elements that no copy writes */
    double fill;
    int64_t count; /* elements of the output */
    td_dtype dtype;
    int n;
    td__copy copy[]; /* one per input */
} box_state;

static void run_boxes(const td_kernel_call *c)
{
    const box_state *s = c->kernel->state;

    if (s->fills)
        fill(c->out[0], s->dtype, s->count, s->fill);
    for (int i = 0; i < s->n; i++)
        td__copy_run(&s->copy[i], c->out[0], c->in[i]);
}

/* State with, for each input, a copy of all of it to the start of the output. */
static td_status new_boxes(const td_node *n, td_kernel *k, box_state **out)
{
    box_state *s = td__calloc(1, sizeof *s + (size_t)n->n_in * sizeof s->copy[0]);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    s->n = n->n_in;
    s->dtype = n->out[0].dtype;
    s->count = td__desc_count(&n->out[0]);
    for (int i = 0; i < n->n_in; i++) {
        const td_shape *x = &td__in_desc(n, i)->shape;
        td__copy *c = &s->copy[i];

        c->size = td_dtype_size(s->dtype);
        c->ndim = x->ndim;
        for (int a = 0; a < x->ndim; a++)
            c->dim[a] = x->dim[a];
        td__strides(x, c->from);
        td__strides(&n->out[0].shape, c->to);
    }
    k->run = run_boxes;
    k->impl = "copy";
    k->state = s;
    k->fini = td__free;
    *out = s;
    return TD_OK;
}

static void simplify(box_state *s)
{
    for (int i = 0; i < s->n; i++)
        td__copy_simplify(&s->copy[i]);
}

td_status td__cpu_plan_permute(const td__cpu *cpu, const td_node *n, const bool *is_param,
                               td_kernel *k)
{
    const int *axes = ((const td_attr_permute *)n->attr)->axes;
    const td_shape *y = &n->out[0].shape;
    int64_t own[TD_MAX_DIMS];
    box_state *s;

    (void)cpu, (void)is_param;
    if (!all_plain(n))
        return TD_ENOTSUP;
    TD_TRY(new_boxes(n, k, &s));
    td__strides(&td__in_desc(n, 0)->shape, own);
    for (int i = 0; i < y->ndim; i++) {
        s->copy[0].dim[i] = y->dim[i];
        s->copy[0].from[i] = own[axes[i]];
    }
    simplify(s);
    return TD_OK;
}

td_status td__cpu_plan_slice(const td__cpu *cpu, const td_node *n, const bool *is_param,
                             td_kernel *k)
{
    const td_attr_slice *a = n->attr;
    box_state *s;

    (void)cpu, (void)is_param;
    if (!all_plain(n))
        return TD_ENOTSUP;
    TD_TRY(new_boxes(n, k, &s));
    td__copy *c = &s->copy[0];
    if (n->op == TD_OP_SLICE) {
        c->dim[a->axis] = n->out[0].shape.dim[a->axis];
        c->from_first = a->start * c->from[a->axis];
        c->from[a->axis] *= a->step;
    } else {
        c->to_first = a->start * c->to[a->axis];
        c->to[a->axis] *= a->step;
        s->fills = true;
    }
    simplify(s);
    return TD_OK;
}

td_status td__cpu_plan_concat(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    int axis = ((const td_attr_axis *)n->attr)->axis;
    int64_t first = 0;
    box_state *s;

    (void)cpu, (void)is_param;
    if (!all_plain(n))
        return TD_ENOTSUP;
    TD_TRY(new_boxes(n, k, &s));
    for (int i = 0; i < n->n_in; i++) {
        s->copy[i].to_first = first * s->copy[i].to[axis];
        first += td__in_desc(n, i)->shape.dim[axis];
    }
    simplify(s);
    return TD_OK;
}

/* Can `fill` make it? Other integers saturate, which is the reference's work. */
static bool can_fill(td_dtype t, double v)
{
    if (td_dtype_is_float(t))
        return true;
    return t == TD_I32 || t == TD_I64 ? v >= INT32_MIN && v <= INT32_MAX : v >= 0 && v <= 255;
}

td_status td__cpu_plan_pad(const td__cpu *cpu, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_pad *a = n->attr;
    box_state *s;

    (void)cpu, (void)is_param;
    if (!all_plain(n) || !can_fill(n->out[0].dtype, a->value))
        return TD_ENOTSUP;
    TD_TRY(new_boxes(n, k, &s));
    for (int i = 0; i < s->copy[0].ndim; i++)
        s->copy[0].to_first += a->before[i] * s->copy[0].to[i];
    s->fills = true;
    s->fill = a->value;
    simplify(s);
    return TD_OK;
}

td_status td__cpu_plan_expand(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    const td_shape *x = &td__in_desc(n, 0)->shape, *y = &n->out[0].shape;
    int64_t own[TD_MAX_DIMS];
    box_state *s;

    (void)cpu, (void)is_param;
    if (!all_plain(n))
        return TD_ENOTSUP;
    TD_TRY(new_boxes(n, k, &s));
    td__copy *c = &s->copy[0];
    td__strides(x, own);
    c->ndim = y->ndim;
    for (int i = 0; i < y->ndim; i++) {
        int from = i - (y->ndim - x->ndim);

        c->dim[i] = y->dim[i];
        c->from[i] = from < 0 || x->dim[from] == 1 ? 0 : own[from];
    }
    simplify(s);
    return TD_OK;
}

/* ---- Indices. ---- */

static int64_t index_at(td_dtype t, const void *p, int64_t i)
{
    return t == TD_I32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

static void run_one_hot(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_attr_one_hot *a = n->attr;
    const td_desc *ids = td__in_desc(n, 0);
    size_t size = td_dtype_size(a->dtype);
    int64_t count = td__desc_count(ids);

    memset(c->out[0], 0, (size_t)(count * a->depth) * size);
    for (int64_t i = 0; i < count; i++) {
        int64_t id = index_at(ids->dtype, c->in[0], i);

        if (id >= 0 && id < a->depth)
            fill((char *)c->out[0] + (size_t)(i * a->depth + id) * size, a->dtype, 1, 1);
    }
}

td_status td__cpu_plan_one_hot(const td__cpu *cpu, const td_node *n, const bool *is_param,
                               td_kernel *k)
{
    (void)cpu, (void)is_param;
    if (!all_plain(n))
        return TD_ENOTSUP;
    k->run = run_one_hot;
    k->impl = "copy";
    return TD_OK;
}

/* A walk over the index tensor (outer axes, then the last) that knows where in x each element's row
 * of candidates begins. */
typedef struct gather_walk {
    int ndim, axis;
    td_shape index;
    int64_t step[TD_MAX_DIMS]; /* of x */
    int64_t size;              /* of x along axis */
    int64_t at[TD_MAX_DIMS];
    int64_t base; /* element of x at `at`, with 0 along axis */
} gather_walk;

static gather_walk gather_begin(const td_shape *x, const td_shape *index, int axis)
{
    gather_walk w = {.ndim = x->ndim, .axis = axis, .index = *index, .size = x->dim[axis]};

    td__strides(x, w.step);
    w.step[axis] = 0; /* the index moves along it, not the walk */
    return w;
}

static void gather_next(gather_walk *w)
{
    for (int a = w->ndim - 1; a >= 0; a--) {
        w->base += w->step[a];
        if (++w->at[a] < w->index.dim[a])
            return;
        w->base -= w->step[a] * w->index.dim[a];
        w->at[a] = 0;
    }
}

/* Elements between neighbours along the axis. */
static int64_t axis_step(const td_shape *x, int axis)
{
    int64_t step[TD_MAX_DIMS];

    td__strides(x, step);
    return step[axis];
}

static void run_gather(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_desc *x = td__in_desc(n, 0), *ix = td__in_desc(n, 1);
    int axis = ((const td_attr_axis *)n->attr)->axis;
    int64_t count = td__desc_count(ix), along = axis_step(&x->shape, axis);
    size_t size = td_dtype_size(x->dtype);
    double bad = td_dtype_is_float(x->dtype) ? (double)NAN : 0;
    gather_walk w = gather_begin(&x->shape, &ix->shape, axis);

    for (int64_t i = 0; i < count; i++, gather_next(&w)) {
        int64_t id = index_at(ix->dtype, c->in[1], i);
        char *y = (char *)c->out[0] + (size_t)i * size;

        if (id < 0 || id >= w.size)
            fill(y, x->dtype, 1, bad);
        else
            memcpy(y, (const char *)c->in[0] + (size_t)(w.base + id * along) * size, size);
    }
}

static void run_gather_back(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_attr_axis *a = n->attr;
    const td_desc *ix = td__in_desc(n, 0);
    const float *dy = c->in[1];
    float *dx = c->out[0];
    int64_t count = td__desc_count(ix), along = axis_step(&a->input, a->axis);
    gather_walk w = gather_begin(&a->input, &ix->shape, a->axis);

    memset(dx, 0, td__desc_bytes(&n->out[0]));
    for (int64_t i = 0; i < count; i++, gather_next(&w)) {
        int64_t id = index_at(ix->dtype, c->in[0], i);

        if (id >= 0 && id < w.size)
            dx[w.base + id * along] += dy[i];
    }
}

td_status td__cpu_plan_gather(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    bool back = n->op == TD_OP_GATHER_BACK;

    (void)cpu, (void)is_param;
    /* Sums of narrower types would have to be kept in f32 aside. */
    if (!all_plain(n) || (back && n->out[0].dtype != TD_F32))
        return TD_ENOTSUP;
    k->run = back ? run_gather_back : run_gather;
    k->impl = "gather";
    return TD_OK;
}
