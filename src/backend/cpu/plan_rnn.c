/* plan_rnn.c -- lstm and gru: step by step, one matrix product and one pass over the gates each.
 *
 *   forward   sums (B, gates H) = h_(t-1) w_hh' + b_hh       then the gates, row by row
 *   backward  the gates' gradients, row by row               then dh_(t-1) = dgates_t w_hh
 *
 * The weight is packed once per change of the params, for forward and backward apart, so that the
 * small products of the steps (m is the batch) find it ready. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/rnn.h"
#include "backend/cpu/sizes.h"
#include "base/alloc.h"
#include "base/fail.h"

typedef struct state {
    int64_t t, b, h, gates; /* gates: 4 (lstm) or 3 (gru) */
    td_dtype dtype, weight_dtype;
    bool backward;
    int weight;       /* index of w_hh among the inputs */
    td__gemm product; /* forward (B, H) x (H, gates H); backward (B, gates H) x (gates H, H) */
    /* Offsets in scratch. */
    size_t sums, carry, row, bias, first, gemm, packed;
    void (*widen)(float *y, const td_bf16 *x, int64_t n);
    void (*narrow)(td_bf16 *y, const float *x, int64_t n);
    void (*lstm)(const td__lstm_cell *a);
    void (*lstm_back)(const td__lstm_cell_back *a);
    void (*gru)(const td__gru_cell *a);
    void (*gru_back)(const td__gru_cell_back *a);
} state;

static float *floats(const td_kernel_call *c, size_t offset)
{
    return (float *)(void *)((char *)c->scratch + offset);
}

/* Element i of a tensor of the activations' type. */
static const void *at(const state *st, const void *x, int64_t i)
{
    return (const char *)x + (size_t)i * td_dtype_size(st->dtype);
}

static void *at_out(const state *st, void *x, int64_t i)
{
    return (char *)x + (size_t)i * td_dtype_size(st->dtype);
}

static void pack(const state *st, void *packed, const void *w)
{
    td__gemm_pack(&st->product, packed, w, st->weight_dtype, st->h, !st->backward);
}

static void prepare(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    pack(st, c->packed, c->in[st->weight]);
}

/* The packed weight: prepared, or made now. */
static const void *packed_weight(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    if (c->kernel->prepare)
        return c->packed;
    void *packed = (char *)c->scratch + st->packed;
    pack(st, packed, c->in[st->weight]);
    return packed;
}

/* n numbers of an input that is f32 or bf16, as f32; `where` in scratch is used for bf16. */
static const float *as_floats(const td_kernel_call *c, int i, int64_t n, size_t where)
{
    const state *st = c->kernel->state;
    if (td__in_desc(c->kernel->node, i)->dtype == TD_F32)
        return c->in[i];
    st->widen(floats(c, where), c->in[i], n);
    return floats(c, where);
}

/* n f32 numbers into output k, f32 or bf16. */
static void put(const td_kernel_call *c, int k, const float *x, int64_t n)
{
    const state *st = c->kernel->state;
    if (c->kernel->node->out[k].dtype == TD_F32)
        memcpy(c->out[k], x, (size_t)n * sizeof *x);
    else
        st->narrow(c->out[k], x, n);
}

/* sums (B, gates H) = h (B, H) w' + bias */
static void step_sums(const td_kernel_call *c, const void *h, const void *weight, const float *bias)
{
    const state *st = c->kernel->state;
    td__gemm_run(&st->product,
                 &(td__gemm_args){.m = st->b,
                                  .a = h,
                                  .lda = st->h,
                                  .a_dtype = st->dtype,
                                  .b = weight,
                                  .c = floats(c, st->sums),
                                  .ldc = st->gates * st->h,
                                  .c_dtype = TD_F32,
                                  .post = {.bias = bias}},
                 (char *)c->scratch + st->gemm);
}

/* dh (B, H) = or += dgates (B, gates H) w */
static void step_back(const td_kernel_call *c, const void *d_gates, const void *weight, float *dh,
                      bool add)
{
    const state *st = c->kernel->state;
    td__gemm_run(&st->product,
                 &(td__gemm_args){.m = st->b,
                                  .a = d_gates,
                                  .lda = st->gates * st->h,
                                  .a_dtype = st->dtype,
                                  .b = weight,
                                  .c = dh,
                                  .ldc = st->h,
                                  .c_dtype = TD_F32,
                                  .accumulate = add},
                 (char *)c->scratch + st->gemm);
}

static void run_lstm(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    const int64_t h = st->h, size = st->b * h;
    const void *weight = packed_weight(c), *h_prev = c->in[1];
    const float *bias = as_floats(c, 4, 4 * h, st->bias);
    const float *c_prev = as_floats(c, 2, size, st->first);
    float *cells = c->out[1];
    for (int64_t t = 0; t < st->t; t++) {
        step_sums(c, h_prev, weight, bias);
        for (int64_t b = 0; b < st->b; b++)
            st->lstm(&(td__lstm_cell){.h = h,
                                      .dtype = st->dtype,
                                      .sums = floats(c, st->sums) + b * 4 * h,
                                      .gx = at(st, c->in[0], (t * st->b + b) * 4 * h),
                                      .c_prev = c_prev + b * h,
                                      .gates = at_out(st, c->out[2], (t * st->b + b) * 4 * h),
                                      .c = cells + t * size + b * h,
                                      .y = at_out(st, c->out[0], t * size + b * h),
                                      .scratch = floats(c, st->row)});
        h_prev = at(st, c->out[0], t * size);
        c_prev = cells + t * size;
    }
    memcpy(c->out[3], c_prev, (size_t)size * sizeof(float));
}

static void run_lstm_back(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    const int64_t h = st->h, size = st->b * h;
    const void *weight = packed_weight(c);
    const float *c0 = as_floats(c, 4, size, st->first), *cells = c->in[3];
    float *dh = floats(c, st->sums), *dc = floats(c, st->carry);
    memset(dh, 0, (size_t)size * sizeof *dh);
    const float *dc_last = as_floats(c, 1, size, st->carry);
    if (dc_last != dc)
        memcpy(dc, dc_last, (size_t)size * sizeof *dc);
    for (int64_t t = st->t - 1; t >= 0; t--) {
        const float *c_prev = t > 0 ? cells + (t - 1) * size : c0;
        for (int64_t b = 0; b < st->b; b++) {
            int64_t row = t * st->b + b;
            st->lstm_back(&(td__lstm_cell_back){.h = h,
                                                .dtype = st->dtype,
                                                .dy = at(st, c->in[0], row * h),
                                                .gates = at(st, c->in[2], row * 4 * h),
                                                .c = cells + row * h,
                                                .c_prev = c_prev + b * h,
                                                .dh = dh + b * h,
                                                .dc = dc + b * h,
                                                .dgx = at_out(st, c->out[0], row * 4 * h),
                                                .scratch = floats(c, st->row)});
        }
        step_back(c, at(st, c->out[0], t * st->b * 4 * h), weight, dh, false);
    }
    put(c, 1, dh, size);
    put(c, 2, dc, size);
}

static void run_gru(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    const int64_t h = st->h, size = st->b * h;
    const void *weight = packed_weight(c), *h_prev = c->in[1];
    const float *bias = as_floats(c, 3, 3 * h, st->bias);
    for (int64_t t = 0; t < st->t; t++) {
        step_sums(c, h_prev, weight, bias);
        for (int64_t b = 0; b < st->b; b++) {
            int64_t row = t * st->b + b;
            st->gru(&(td__gru_cell){.h = h,
                                    .dtype = st->dtype,
                                    .sums = floats(c, st->sums) + b * 3 * h,
                                    .gx = at(st, c->in[0], row * 3 * h),
                                    .h_prev = at(st, h_prev, b * h),
                                    .gates = at_out(st, c->out[1], row * 4 * h),
                                    .y = at_out(st, c->out[0], row * h),
                                    .scratch = floats(c, st->row)});
        }
        h_prev = at(st, c->out[0], t * size);
    }
}

static void run_gru_back(const td_kernel_call *c)
{
    const state *st = c->kernel->state;
    const int64_t h = st->h, size = st->b * h;
    const void *weight = packed_weight(c);
    float *dh = floats(c, st->sums);
    memset(dh, 0, (size_t)size * sizeof *dh);
    for (int64_t t = st->t - 1; t >= 0; t--) {
        const void *h_prev = t > 0 ? at(st, c->in[2], (t - 1) * size) : c->in[3];
        for (int64_t b = 0; b < st->b; b++) {
            int64_t row = t * st->b + b;
            st->gru_back(&(td__gru_cell_back){.h = h,
                                              .dtype = st->dtype,
                                              .dy = at(st, c->in[0], row * h),
                                              .gates = at(st, c->in[1], row * 4 * h),
                                              .h_prev = at(st, h_prev, b * h),
                                              .dh = dh + b * h,
                                              .dgx = at_out(st, c->out[0], row * 3 * h),
                                              .dgh = at_out(st, c->out[1], row * 3 * h),
                                              .scratch = floats(c, st->row)});
        }
        step_back(c, at(st, c->out[1], t * st->b * 3 * h), weight, dh, true);
    }
    put(c, 2, dh, size);
}

td_status td__cpu_plan_rnn(const td__cpu *cpu, const td_node *n, const bool *is_param, td_kernel *k)
{
    bool lstm = n->op == TD_OP_LSTM || n->op == TD_OP_LSTM_BACK;
    bool backward = n->op == TD_OP_LSTM_BACK || n->op == TD_OP_GRU_BACK;
    int weight = n->op == TD_OP_LSTM        ? 3
                 : n->op == TD_OP_LSTM_BACK ? 5
                 : n->op == TD_OP_GRU       ? 2
                                            : 4;
    for (int i = 0; i < n->n_in; i++)
        if (!td__is_f32_or_bf16(td__in_desc(n, i)->dtype))
            return TD_ENOTSUP;
    if (lstm && backward && td__in_desc(n, 3)->dtype != TD_F32)
        return TD_ENOTSUP; /* cell states are f32 except in hand-made graphs */
    const td_shape *x = &td__in_desc(n, 0)->shape, *w = &td__in_desc(n, weight)->shape;
    if (td__desc_count(td__in_desc(n, 0)) == 0)
        return TD_ENOTSUP;
    state *st = td__calloc(1, sizeof *st);
    if (!st)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    *st = (state){.t = x->dim[0],
                  .b = x->dim[1],
                  .h = w->dim[1],
                  .gates = lstm ? 4 : 3,
                  .dtype = td__in_desc(n, 0)->dtype,
                  .weight_dtype = td__in_desc(n, weight)->dtype,
                  .backward = backward,
                  .weight = weight,
                  .widen = TD_ISA_PICK(cpu->isa, td__bf16_to_f32_array),
                  .narrow = TD_ISA_PICK(cpu->isa, td__f32_to_bf16_array),
                  .lstm = TD_ISA_PICK(cpu->isa, td__lstm_cell_run),
                  .lstm_back = TD_ISA_PICK(cpu->isa, td__lstm_cell_back_run),
                  .gru = TD_ISA_PICK(cpu->isa, td__gru_cell_run),
                  .gru_back = TD_ISA_PICK(cpu->isa, td__gru_cell_back_run)};
    int64_t wide = st->gates * st->h;
    st->product = backward ? td__gemm_plan(st->b, st->h, wide, 1, st->dtype, cpu->isa)
                           : td__gemm_plan(st->b, wide, st->h, 1, st->dtype, cpu->isa);
    st->sums = td__take(&k->scratch, (size_t)(st->b * wide) * sizeof(float));
    st->carry = td__take(&k->scratch, (size_t)(st->b * st->h) * sizeof(float));
    st->row = td__take(&k->scratch, (size_t)(12 * st->h) * sizeof(float));
    st->bias = td__take(&k->scratch, (size_t)wide * sizeof(float));
    st->first = td__take(&k->scratch, (size_t)(st->b * st->h) * sizeof(float));
    st->gemm = td__take(&k->scratch, td__gemm_scratch_bytes(&st->product));
    if (is_param[weight]) {
        k->prepare = prepare;
        k->packs = 1u << weight;
        k->packed = td__gemm_packed_bytes(&st->product);
    } else {
        st->packed = td__take(&k->scratch, td__gemm_packed_bytes(&st->product));
    }
    k->run = lstm ? (backward ? run_lstm_back : run_lstm) : (backward ? run_gru_back : run_gru);
    k->impl = td__gemm_name(&st->product);
    k->state = st;
    k->fini = td__free;
    return TD_OK;
}
