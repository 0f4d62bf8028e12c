/* plan_elementwise.c -- elementwise operators and fused chains of them (kernels/elementwise.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/convert.h"
#include "backend/cuda/kernels/elementwise.h"
#include "backend/ref_exec.h"
#include "base/check.h"
#include "base/fail.h"

_Static_assert((int)TD__EW_IN >= (int)TD_FUSED_MAX_IN && (int)TD__EW_OUT >= (int)TD_FUSED_MAX_OUT &&
                   (int)TD__EW_INSTR >= (int)TD_FUSED_MAX_INSTR,
               "a fused node fits");

/* f32 holds these exactly. */
static bool is_narrow(td_dtype t)
{
    return t == TD_F32 || t == TD_BF16 || t == TD_F16 || t == TD_BOOL || t == TD_U8;
}

/* True: f32 is not enough. */
static bool take_types(const td_node *n, td__ew_args *a)
{
    bool wide = false;
    for (int i = 0; i < n->n_in; i++) {
        td_dtype t = td__in_desc_of(n, i)->dtype;
        a->in_dtype[i] = (int)t;
        wide = wide || !is_narrow(t);
    }
    for (int k = 0; k < n->n_out; k++) {
        td_dtype t = n->out[k].dtype;
        a->out_dtype[k] = (int)t;
        wide = wide || !is_narrow(t);
    }
    return wide;
}

static void take_program(const td_node *n, td__ew_args *a)
{
    a->n_in = n->n_in;
    a->n_out = n->n_out;
    if (n->op == TD_OP_CAST)
        return; /* types change at the edges */
    if (n->op != TD_OP_FUSED) {
        const td_op_def *def = td__op(n->op);
        const double *num = td__scalar_numbers(def, n->attr);
        a->n_instr = 1;
        a->instr[0].op = (int)n->op;
        for (int i = 0; i < n->n_in; i++)
            a->instr[0].src[i] = i;
        for (size_t i = 0; num && i < def->attr_size / sizeof *num; i++)
            a->instr[0].num[i] = num[i];
        a->out_operand[0] = n->n_in;
        return;
    }
    const td_attr_fused *f = n->attr;
    a->n_instr = f->n_instr;
    for (int j = 0; j < f->n_instr; j++) {
        int n_src = td__op((td_opcode)f->instr[j].op)->n_in_max;
        a->instr[j].op = f->instr[j].op;
        for (int i = 0; i < 3; i++)
            a->instr[j].src[i] = f->instr[j].src[i < n_src ? i : 0];
        a->instr[j].num[0] = f->instr[j].attr[0];
        a->instr[j].num[1] = f->instr[j].attr[1];
    }
    for (int k = 0; k < f->n_out; k++)
        a->out_operand[k] = f->result[k];
}

/* Steps of input d along the axes of the output, which come in the output's memory order. */
static void input_steps(const td_desc *d, const td_desc *out, long long step[TD_MAX_DIMS])
{
    static const int NHWC_AXES[4] = {0, 2, 3, 1};
    int64_t plain[TD_MAX_DIMS] = {0}, run = 1;
    int lead = out->shape.ndim - d->shape.ndim;
    for (int i = d->shape.ndim - 1; i >= 0; i--) {
        int axis = d->layout == TD_LAYOUT_NHWC ? NHWC_AXES[i] : i;
        plain[axis + lead] = d->shape.dim[axis] == 1 ? 0 : run;
        run *= d->shape.dim[axis];
    }
    for (int i = 0; i < out->shape.ndim; i++)
        step[i] = plain[out->layout == TD_LAYOUT_NHWC ? NHWC_AXES[i] : i];
}

/* Axes of size 1 are left out; neighbours that all inputs walk through as one become one. */
static void take_axes(const td_node *n, td__ew_args *a)
{
    static const int NHWC_AXES[4] = {0, 2, 3, 1};
    const td_desc *out = &n->out[0];
    long long step[TD__EW_IN][TD_MAX_DIMS];
    for (int i = 0; i < n->n_in; i++)
        input_steps(td__in_desc_of(n, i), out, step[i]);
    for (int axis = 0; axis < out->shape.ndim; axis++) {
        int64_t size = out->shape.dim[out->layout == TD_LAYOUT_NHWC ? NHWC_AXES[axis] : axis];
        bool merge = a->ndim > 0;
        if (size == 1)
            continue;
        for (int i = 0; merge && i < n->n_in; i++)
            merge = a->step[i][a->ndim - 1] == step[i][axis] * size;
        if (merge)
            a->dim[a->ndim - 1] *= size;
        else
            a->dim[a->ndim++] = size;
        for (int i = 0; i < n->n_in; i++)
            a->step[i][a->ndim - 1] = step[i][axis];
    }
    for (int i = 0; i < n->n_in; i++) {
        int64_t run = 1;
        bool same = true, one = true;
        for (int d = a->ndim - 1; d >= 0; d--) {
            same = same && a->step[i][d] == run;
            one = one && a->step[i][d] == 0;
            run *= a->dim[d];
        }
        a->in_kind[i] = same ? TD__EW_SAME : one ? TD__EW_ONE : TD__EW_STEPS;
    }
}

/* The kernel of a single operator over operands that lie alike; NULL: there is none. */
static const char *lots_of(const td_node *n, const td__ew_args *a)
{
    static const char *const NAMES[TD_OP_COUNT] = {
#define TD_LOTS(OP, name) [TD_OP_##OP] = "ew_" #name,
#include "backend/cuda/kernels/lots.def"
#undef TD_LOTS
    };
    bool alike = td__cuda_takes(n->out[0].dtype);
    for (int i = 0; i < n->n_in; i++)
        alike = alike && a->in_kind[i] == TD__EW_SAME && a->in_dtype[i] == a->out_dtype[0];
    return alike ? NAMES[n->op] : NULL;
}

/* The rounding of f32 to bf16 and nothing else? */
static bool is_rounding(const td_node *n, const td__ew_args *a)
{
    return n->op == TD_OP_CAST && a->in_kind[0] == TD__EW_SAME && a->in_dtype[0] == TD__IO_F32 &&
           a->out_dtype[0] == TD__IO_BF16;
}

/* One sum of two operands, and casts of it? */
static bool is_sum(const td__ew_args *a)
{
    bool sum = a->n_in == 2 && a->n_out == 1 && a->n_instr > 0 && a->instr[0].op == TD_OP_ADD &&
               a->instr[0].src[0] + a->instr[0].src[1] == 1 &&
               a->out_operand[0] == a->n_in + a->n_instr - 1;
    for (int j = 1; sum && j < a->n_instr; j++)
        sum = a->instr[j].op == TD_OP_AFFINE && a->instr[j].src[0] == a->n_in + j - 1 &&
              a->instr[j].num[0] == 1 && a->instr[j].num[1] == 0;
    return sum;
}

td_status td__cuda_plan_elementwise(td__cuda *b, const td_node *n, const bool *is_param,
                                    td_kernel *k)
{
    td__ew_args a = {.n = td__desc_count(&n->out[0])};
    (void)is_param;
    bool wide = take_types(n, &a);
    take_program(n, &a);
    take_axes(n, &a);
    const char *lots = lots_of(n, &a);
    if (is_rounding(n, &a)) {
        td__convert_args all = {.n = a.n};
        return td__cuda_add(b, k, "to_bf16s", TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n / 8 + 8),
                            &all, sizeof all);
    }
    if (lots)
        return td__cuda_add(b, k, lots, n->out[0].dtype, td__cuda_grid_for(b, (a.n + 3) / 4), &a,
                            sizeof a);
    return td__cuda_add(b, k,
                        wide         ? "ew_f64"
                        : is_sum(&a) ? "ew_sum"
                                     : "ew_f32",
                        TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n), &a, sizeof a);
}
