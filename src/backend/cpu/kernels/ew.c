/* ew.c -- runs elementwise programs; see ew.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/ew.h"

#include "backend/cpu/kernels/vmath.h"
#include "backend/cpu/kernels/widen.h"

enum { MAX_OPERANDS = TD_FUSED_MAX_IN + TD_FUSED_MAX_INSTR };

/* ---- Instructions: y[i] = expr(a[i], b[i], c[i]). y may be any of the inputs, element by element;
 * ivdep tells the compiler that it is nothing worse. ---- */

typedef void ew_fn(float *y, const float *a, const float *b, const float *c, const float *num,
                   int64_t n);

static inline float v_silu_slope(float x)
{
    float s = v_sigmoid(x);

    return s * (1.0f + x * (1.0f - s));
}

#define EW(OP, expr)                                                               \
    static void run_##OP(float *y, const float *a, const float *b, const float *c, \
                         const float *num, int64_t n)                              \
    {                                                                              \
        const float P = num[0], Q = num[1];                                        \
        (void)P, (void)Q;                                                          \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                       \
        {                                                                          \
            const float A = a[i], B = b[i], C = c[i];                              \
            (void)A, (void)B, (void)C;                                             \
            y[i] = expr;                                                           \
        }                                                                          \
    }
#include "backend/cpu/kernels/ew_ops.def"
#undef EW

/* v_sin and v_cos hold up to V_TRIG_MAX; blocks with larger numbers, infinities or NaN take the C
 * library's. */
static int is_moderate(const float *a, int64_t n)
{
    int bad = 0;

    for (int64_t i = 0; i < n; i++)
        bad |= !(v_abs(a[i]) <= V_TRIG_MAX);
    return !bad;
}

static void run_any_sin(float *y, const float *a, const float *b, const float *c, const float *num,
                        int64_t n)
{
    if (is_moderate(a, n)) {
        run_SIN(y, a, b, c, num, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = sinf(a[i]);
}

static void run_any_cos(float *y, const float *a, const float *b, const float *c, const float *num,
                        int64_t n)
{
    if (is_moderate(a, n)) {
        run_COS(y, a, b, c, num, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = cosf(a[i]);
}

static ew_fn *instr_fn(td_opcode op)
{
    static ew_fn *const FN[TD_OP_COUNT] = {
#define EW(OP, expr) [TD_OP_##OP] = run_##OP,
#include "backend/cpu/kernels/ew_ops.def"
#undef EW
    };

    return op == TD_OP_SIN ? run_any_sin : op == TD_OP_COS ? run_any_cos : FN[op];
}

/* ---- Blocks from and to tensors. ---- */

static void load_block(float *y, td_dtype t, const void *x, int64_t at, int64_t n)
{
    switch (t) {
    case TD_F32: memcpy(y, (const float *)x + at, (size_t)n * sizeof *y); break;
    case TD_BF16: widen_bf16(y, (const td_bf16 *)x + at, n); break;
    case TD_F16: widen_f16(y, (const td_f16 *)x + at, n); break;
    case TD_I32:
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((const int32_t *)x)[at + i];
        break;
    case TD_I64:
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((const int64_t *)x)[at + i];
        break;
    case TD_U8:
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((const uint8_t *)x)[at + i];
        break;
    case TD_BOOL:
        for (int64_t i = 0; i < n; i++)
            y[i] = ((const uint8_t *)x)[at + i] ? 1.0f : 0.0f;
        break;
    case TD_F64:
    case TD_DTYPE_COUNT: break;
    }
}

static void store_block(void *y, td_dtype t, int64_t at, const float *x, int64_t n)
{
    switch (t) {
    case TD_F32:
        if ((float *)y + at != x)
            memcpy((float *)y + at, x, (size_t)n * sizeof *x);
        break;
    case TD_BF16: narrow_bf16((td_bf16 *)y + at, x, n); break;
    case TD_F16: narrow_f16((td_f16 *)y + at, x, n); break;
    case TD_U8:
        for (int64_t i = 0; i < n; i++) {
            float v = x[i] > 0.0f ? x[i] : 0.0f; /* and NaN to 0 */

            ((uint8_t *)y)[at + i] = (uint8_t)(int32_t)(v < 255.0f ? v : 255.0f);
        }
        break;
    case TD_BOOL:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)y)[at + i] = x[i] != 0.0f;
        break;
    case TD_F64:
    case TD_I32:
    case TD_I64:
    case TD_DTYPE_COUNT: break;
    }
}

/* n elements of input x from element `at` on, or that one element n times. */
static void load_run(float *y, const td__ew_input *d, const void *x, int64_t at, int64_t n)
{
    if (d->inner_step == 1) {
        load_block(y, d->dtype, x, at, n);
        return;
    }
    load_block(y, d->dtype, x, at, 1);
    for (int64_t i = 1; i < n; i++)
        y[i] = y[0];
}

/* First element of a row of an input. */
static int64_t row_start(const td__ew *p, const td__ew_input *d, int64_t row)
{
    int64_t at = 0;

    for (int axis = p->n_outer - 1; axis > 0; axis--) {
        at += row % p->outer[axis] * d->step[axis];
        row /= p->outer[axis];
    }
    return at + row * d->step[0];
}

/* ---- The walk. ---- */

typedef struct ew_walk {
    const td__ew *p;
    const void *const *in;
    void *const *out;
    float *scratch;
    const float *at[MAX_OPERANDS]; /* where each operand's values for the block are */
} ew_walk;

static float *reg_at(const ew_walk *w, int reg)
{
    return w->scratch + (int64_t)reg * w->p->block;
}

static void expand_fixed(ew_walk *w)
{
    for (int k = 0; k < w->p->n_in; k++) {
        const td__ew_input *d = &w->p->in[k];
        int64_t run = d->inner_step ? w->p->inner : w->p->block;

        if (d->kind != TD_EW_FIXED)
            continue;
        float *y = reg_at(w, d->reg);
        load_run(y, d, w->in[k], 0, run);
        for (int64_t r = run; r + run <= w->p->block; r += run)
            memcpy(y + r, y, (size_t)run * sizeof *y);
        w->at[k] = y;
    }
}

static void load_inputs(ew_walk *w, int64_t row, int64_t col, int64_t rows, int64_t n)
{
    const td__ew *p = w->p;

    for (int k = 0; k < p->n_in; k++) {
        const td__ew_input *d = &p->in[k];
        int64_t at = d->kind == TD_EW_CONTIGUOUS ? row * p->inner + col : 0;

        if (d->kind == TD_EW_FIXED)
            continue;
        if (d->kind == TD_EW_ROWS && rows == 1)
            at = row_start(p, d, row) + col * d->inner_step;
        if (d->reg < 0) {
            w->at[k] = (const float *)w->in[k] + at;
            continue;
        }
        float *y = reg_at(w, d->reg);
        w->at[k] = y;
        if (d->kind == TD_EW_CONTIGUOUS) {
            load_block(y, d->dtype, w->in[k], at, n);
        } else if (rows == 1) {
            load_run(y, d, w->in[k], at, n);
        } else {
            for (int64_t r = 0; r < rows; r++)
                load_run(y + r * p->inner, d, w->in[k], row_start(p, d, row + r), p->inner);
        }
    }
}

/* One block: `rows` whole rows from `row` on, or n elements of one row from `col` on. */
static void run_block(ew_walk *w, int64_t row, int64_t col, int64_t rows, int64_t n)
{
    const td__ew *p = w->p;
    int64_t at = row * p->inner + col;

    load_inputs(w, row, col, rows, n);
    for (int j = 0; j < p->n_instr; j++) {
        const td__ew_instr *f = &p->instr[j];
        float *y = f->reg < 0 ? (float *)w->out[f->direct] + at : reg_at(w, f->reg);

        instr_fn(f->op)(y, w->at[f->src[0]], w->at[f->src[1]], w->at[f->src[2]], f->num, n);
        w->at[p->n_in + j] = y;
    }
    for (int k = 0; k < p->n_out; k++)
        store_block(w->out[k], p->out[k].dtype, at, w->at[p->out[k].operand], n);
}

void TD_ISA_SYM(td__ew_run)(const td__ew *p, const void *const *in, void *const *out,
                            float *scratch)
{
    ew_walk w = {.p = p, .in = in, .out = out, .scratch = scratch};

    if (p->rows == 0 || p->inner == 0)
        return;
    expand_fixed(&w);
    if (p->inner > p->block) {
        for (int64_t row = 0; row < p->rows; row++)
            for (int64_t col = 0; col < p->inner; col += p->block) {
                int64_t left = p->inner - col;

                run_block(&w, row, col, 1, left < p->block ? left : p->block);
            }
        return;
    }
    for (int64_t row = 0; row < p->rows; row += p->block_rows) {
        int64_t left = p->rows - row;
        int64_t rows = left < p->block_rows ? left : p->block_rows;

        run_block(&w, row, 0, rows, rows * p->inner);
    }
}
