/* plan_rnn.c -- lstm and gru: for each step a product with w_hh and the rest (kernels/rnn.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/rnn.h"
#include "backend/cuda/product.h"
#include "base/check.h"
#include "base/fail.h"

typedef struct recurrence {
    td__cuda *b;
    td_kernel *k;
    td_dtype t;
    int64_t steps, batch, hidden, gates; /* gates: in w_hh */
    td__cuda_at w;                       /* as the product takes it */
    size_t scratch;                      /* bytes taken */
    td__rnn_args args;
} recurrence;

/* Step t of an array (T, B, width) of a type. */
static td__cuda_at step_at(const recurrence *r, td__cuda_at base, int64_t t, int64_t width,
                           td_dtype type)
{
    base.offset += (size_t)(t * r->batch * width) * td_dtype_size(type);
    return base;
}

static td__cuda_at take(recurrence *r, int64_t elements)
{
    td__cuda_at at = TD__SCRATCH(r->scratch);
    r->scratch += td__align_up((size_t)elements * sizeof(float), 256);
    td__cuda_want_scratch(r->k, r->scratch);
    return at;
}

static int alignment(const recurrence *r)
{
    size_t row = (size_t)(r->batch * r->hidden) * td_dtype_size(r->t);
    size_t align = row & (~row + 1);
    return align < 64 ? (int)align : 64;
}

/* s (B, gates H) f32 = h (B, H) w' */
static td_status add_forward(recurrence *r, td__cuda_at h, td__cuda_at s)
{
    td__cuda_product p = {.m = r->batch,
                          .n = r->gates * r->hidden,
                          .k = r->hidden,
                          .a = h,
                          .b = r->w,
                          .c = s,
                          .a_row = r->hidden,
                          .a_col = 1,
                          .b_row = 1,
                          .b_col = r->hidden,
                          .in = r->t,
                          .out = TD_F32,
                          .align = alignment(r)};
    return td__cuda_add_product(r->b, r->k, &p, r->scratch);
}

/* dh (B, H) = d (B, gates H) w */
static td_status add_backward(recurrence *r, td__cuda_at d, td__cuda_at dh, td_dtype out)
{
    td__cuda_product p = {.m = r->batch,
                          .n = r->hidden,
                          .k = r->gates * r->hidden,
                          .a = d,
                          .b = r->w,
                          .c = dh,
                          .a_row = r->gates * r->hidden,
                          .a_col = 1,
                          .b_row = r->hidden,
                          .b_col = 1,
                          .in = r->t,
                          .out = out,
                          .align = alignment(r)};
    return td__cuda_add_product(r->b, r->k, &p, r->scratch);
}

static td_status add_step(recurrence *r, const char *name, const td__cuda_bind *bind)
{
    return td__cuda_add_bound(r->b, r->k, name, r->t, td__cuda_grid_for(r->b, r->batch * r->hidden),
                              &r->args, sizeof r->args, bind);
}

static td_status add_lstm(recurrence *r)
{
    td__cuda_at s = take(r, r->batch * 4 * r->hidden);
    int64_t h = r->hidden;
    for (int64_t t = 0; t < r->steps; t++) {
        td__cuda_at before = t ? step_at(r, TD__OUT(0), t - 1, h, r->t) : TD__IN(1);
        td__cuda_at c = t ? step_at(r, TD__OUT(1), t - 1, h, TD_F32) : TD__IN(2);
        td__cuda_bind bind = {.in = {step_at(r, TD__IN(0), t, 4 * h, r->t), s, TD__IN(4), c},
                              .out = {step_at(r, TD__OUT(2), t, 4 * h, r->t),
                                      step_at(r, TD__OUT(1), t, h, TD_F32),
                                      step_at(r, TD__OUT(0), t, h, r->t)}};
        TD_TRY(add_forward(r, before, s));
        TD_TRY(add_step(r, "lstm_step", &bind));
    }
    return td__cuda_add_copy(r->k, TD__OUT(3), step_at(r, TD__OUT(1), r->steps - 1, h, TD_F32),
                             (size_t)(r->batch * h) * sizeof(float));
}

static td_status add_lstm_back(recurrence *r)
{
    int64_t h = r->hidden;
    td__cuda_at dh = take(r, r->batch * h), dc = take(r, r->batch * h);
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        bool last = t == r->steps - 1;
        td__cuda_at dgx = step_at(r, TD__OUT(0), t, 4 * h, r->t);
        td__cuda_bind bind = {
            .in = {last ? (td__cuda_at){0} : dh, step_at(r, TD__IN(0), t, h, r->t),
                   step_at(r, TD__IN(2), t, 4 * h, r->t), step_at(r, TD__IN(3), t, h, TD_F32),
                   t ? step_at(r, TD__IN(3), t - 1, h, TD_F32) : TD__IN(4), last ? TD__IN(1) : dc},
            .out = {dgx, t ? dc : TD__OUT(2)}};
        TD_TRY(add_step(r, "lstm_back_step", &bind));
        TD_TRY(add_backward(r, dgx, t ? dh : TD__OUT(1), t ? TD_F32 : r->t));
    }
    return TD_OK;
}

static td_status add_gru(recurrence *r)
{
    td__cuda_at s = take(r, r->batch * 3 * r->hidden);
    int64_t h = r->hidden;
    for (int64_t t = 0; t < r->steps; t++) {
        td__cuda_at before = t ? step_at(r, TD__OUT(0), t - 1, h, r->t) : TD__IN(1);
        td__cuda_bind bind = {
            .in = {step_at(r, TD__IN(0), t, 3 * h, r->t), s, TD__IN(3), before},
            .out = {step_at(r, TD__OUT(1), t, 4 * h, r->t), step_at(r, TD__OUT(0), t, h, r->t)}};
        TD_TRY(add_forward(r, before, s));
        TD_TRY(add_step(r, "gru_step", &bind));
    }
    return TD_OK;
}

static td_status add_gru_back(recurrence *r)
{
    int64_t h = r->hidden;
    td__cuda_at product = take(r, r->batch * h), carry = take(r, r->batch * h);
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        bool last = t == r->steps - 1;
        td__cuda_at dgh = step_at(r, TD__OUT(1), t, 3 * h, r->t);
        td__cuda_bind bind = {.in = {last ? (td__cuda_at){0} : product, carry,
                                     step_at(r, TD__IN(0), t, h, r->t),
                                     step_at(r, TD__IN(1), t, 4 * h, r->t),
                                     t ? step_at(r, TD__IN(2), t - 1, h, r->t) : TD__IN(3)},
                              .out = {step_at(r, TD__OUT(0), t, 3 * h, r->t), dgh, carry}};
        TD_TRY(add_step(r, "gru_back_step", &bind));
        TD_TRY(add_backward(r, dgh, product, TD_F32));
    }
    return add_step(r, "gru_back_end",
                    &(td__cuda_bind){.in = {product, carry}, .out = {TD__OUT(2)}});
}

/* Which inputs are f32 beside the others' type: bias and cell states. */
static bool takes(const td_node *n, unsigned f32, int w)
{
    td_dtype t = td__in_desc_of(n, 0)->dtype;
    if (!td__cuda_takes(t))
        return false;
    for (int i = 0; i < n->n_in; i++) {
        td_dtype is = td__in_desc_of(n, i)->dtype;
        if (i != w && is != (f32 >> i & 1u ? TD_F32 : t))
            return false;
    }
    return true;
}

td_status td__cuda_plan_rnn(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    static const struct {
        int gates, w; /* index of w_hh */
        unsigned f32;
        td_status (*add)(recurrence *r);
    } KINDS[] = {[0] = {4, 3, 0x14u, add_lstm},
                 [1] = {4, 5, 0x1au, add_lstm_back},
                 [2] = {3, 2, 0x8u, add_gru},
                 [3] = {3, 4, 0, add_gru_back}};
    int kind = n->op == TD_OP_LSTM ? 0 : n->op == TD_OP_LSTM_BACK ? 1 : n->op == TD_OP_GRU ? 2 : 3;
    const td_shape *x = &td__in_desc_of(n, 0)->shape;
    bool back = kind == 1 || kind == 3;
    recurrence r = {.b = b,
                    .k = k,
                    .t = td__in_desc_of(n, 0)->dtype,
                    .steps = x->dim[0],
                    .batch = x->dim[1],
                    .gates = KINDS[kind].gates};
    r.hidden = back ? x->dim[2] : x->dim[2] / r.gates;
    r.args = (td__rnn_args){.batch = r.batch, .hidden = r.hidden};
    if (!takes(n, KINDS[kind].f32, KINDS[kind].w) || r.steps == 0)
        return TD_ENOTSUP;
    TD_TRY(
        td__cuda_add_weight(b, k, KINDS[kind].w, is_param[KINDS[kind].w], r.t, &r.scratch, &r.w));
    return KINDS[kind].add(&r);
}
