/* plan_elementwise.c -- elementwise operators and fused chains of them as block programs
 * (kernels/ew.h).
 *
 * Taken are f32, bf16, f16, bool and u8; i32 and i64 only as the source of a cast to a floating
 * type. All is computed in f32, which would not be exact for other integers, nor enough for f64. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/ew.h"
#include "backend/ref_exec.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum {
    CACHE_FLOATS = 6144, /* 24 KB: what the registers of a program may fill of the L1 cache */
    MIN_BLOCK = 256,
    MAX_BLOCK = 2048,
    FREE_BLOCK = 16384, /* for programs without registers: only the calls are saved */
    LINE = 16           /* floats in 64 bytes */
};

typedef struct ew_state {
    td__ew program;
    td__ew_run_fn *run;
} ew_state;

static const bool HAS[TD_OP_COUNT] = {
#define EW(OP, expr) [TD_OP_##OP] = true,
#include "backend/cpu/kernels/ew_ops.def"
#undef EW
};

static void run(const td_kernel_call *c)
{
    const ew_state *s = c->kernel->state;

    s->run(&s->program, c->in, c->out, c->scratch);
}

/* ---- Types and instructions. ---- */

static bool takes(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        td_dtype t = td__in_desc(n, i)->dtype;
        bool index = t == TD_I32 || t == TD_I64;

        if (t == TD_F64 || (index && n->op != TD_OP_CAST))
            return false;
        if (index && !td_dtype_is_float(n->out[0].dtype))
            return false;
    }
    for (int k = 0; k < n->n_out; k++) {
        td_dtype t = n->out[k].dtype;

        if (t == TD_F64 || t == TD_I32 || t == TD_I64)
            return false;
        /* Arithmetic that ends in u8 is too rare to be worth a path of its own. */
        if (t == TD_U8 && n->op != TD_OP_CAST)
            return false;
    }
    return true;
}

/* The program of n, still without registers. False if an operator has no expression. */
static bool take_program(const td_node *n, td__ew *p)
{
    p->n_in = n->n_in;
    p->n_out = n->n_out;
    for (int i = 0; i < n->n_in; i++)
        p->in[i].dtype = td__in_desc(n, i)->dtype;
    for (int k = 0; k < n->n_out; k++)
        p->out[k].dtype = n->out[k].dtype;
    if (n->op == TD_OP_CAST)
        return true;
    if (n->op != TD_OP_FUSED) {
        const double *num = td__scalar_numbers(td__op(n->op), n->attr);
        size_t count = td__op(n->op)->attr_size / sizeof *num;
        td__ew_instr *f = &p->instr[0];

        *f = (td__ew_instr){.op = n->op};
        for (int i = 0; i < n->n_in; i++)
            f->src[i] = i; /* unused sources name operand 0 again */
        for (size_t i = 0; i < count; i++)
            f->num[i] = (float)num[i];
        p->n_instr = 1;
        p->out[0].operand = n->n_in;
        return HAS[n->op];
    }
    const td_attr_fused *a = n->attr;

    p->n_instr = a->n_instr;
    for (int j = 0; j < a->n_instr; j++) {
        const td_fused_instr *s = &a->instr[j];
        td__ew_instr *f = &p->instr[j];

        if (!HAS[s->op])
            return false;
        *f = (td__ew_instr){.op = (td_opcode)s->op, .num = {(float)s->attr[0], (float)s->attr[1]}};
        for (int i = 0; i < 3; i++)
            f->src[i] = s->src[i < td__op(f->op)->n_in_max ? i : 0];
    }
    for (int k = 0; k < a->n_out; k++)
        p->out[k].operand = a->result[k];
    return true;
}

/* ---- The walk: axes in memory order, merged where possible. ---- */

/* Input d's steps along the axes of output s, in the output's memory order. False if its bytes lie
 * in another order than the output's. */
static bool input_steps(const td_desc *d, const td_desc *out, int64_t step[TD_MAX_DIMS])
{
    static const int NHWC_AXES[4] = {0, 2, 3, 1};
    const td_shape *s = &out->shape;
    int64_t plain[TD_MAX_DIMS] = {0}, run = 1;

    if (d->layout == TD_LAYOUT_NHWC) {
        /* Only images are NHWC, so the output has four axes too. */
        for (int i = 3; i >= 0; i--) {
            int axis = NHWC_AXES[i];

            plain[axis] = d->shape.dim[axis] == 1 ? 0 : run;
            run *= d->shape.dim[axis];
        }
    } else {
        for (int i = d->shape.ndim - 1; i >= 0; i--) {
            plain[i + s->ndim - d->shape.ndim] = d->shape.dim[i] == 1 ? 0 : run;
            run *= d->shape.dim[i];
        }
    }
    for (int i = 0; i < s->ndim; i++)
        step[i] = plain[out->layout == TD_LAYOUT_NHWC ? NHWC_AXES[i] : i];
    return d->layout != TD_LAYOUT_NHWC || s->ndim == 4;
}

static bool plan_walk(const td_node *n, td__ew *p)
{
    const td_desc *out = &n->out[0];
    int64_t dim[TD_MAX_DIMS], step[TD_FUSED_MAX_IN][TD_MAX_DIMS];
    int n_dim = 0;

    for (int i = 0; i < n->n_in; i++)
        if (!input_steps(td__in_desc(n, i), out, step[i]))
            return false;
    for (int axis = 0; axis < out->shape.ndim; axis++) {
        static const int NHWC_AXES[4] = {0, 2, 3, 1};
        int64_t size = out->shape.dim[out->layout == TD_LAYOUT_NHWC ? NHWC_AXES[axis] : axis];
        bool merge = n_dim > 0;

        if (size == 1)
            continue;
        for (int i = 0; merge && i < n->n_in; i++)
            merge = p->in[i].step[n_dim - 1] == step[i][axis] * size;
        if (merge)
            dim[n_dim - 1] *= size;
        else
            dim[n_dim++] = size;
        for (int i = 0; i < n->n_in; i++)
            p->in[i].step[n_dim - 1] = step[i][axis];
    }
    if (n_dim == 0)
        dim[n_dim++] = 1;
    p->n_outer = n_dim - 1;
    p->inner = dim[n_dim - 1];
    p->rows = 1;
    for (int axis = 0; axis < p->n_outer; axis++) {
        p->outer[axis] = dim[axis];
        p->rows *= dim[axis];
    }
    for (int i = 0; i < n->n_in; i++) {
        p->in[i].inner_step = p->in[i].step[n_dim - 1];
        if (p->in[i].inner_step > 1)
            return false;
    }
    return true;
}

/* What an input is to a walk with blocks of `block` elements. */
static td__ew_kind input_kind(const td__ew *p, const td__ew_input *d, int64_t block)
{
    int64_t run = p->inner;
    bool contiguous = d->inner_step == 1, fixed = true;

    for (int axis = p->n_outer - 1; axis >= 0; axis--) {
        contiguous = contiguous && d->step[axis] == run;
        fixed = fixed && d->step[axis] == 0;
        run *= p->outer[axis];
    }
    if (contiguous)
        return TD_EW_CONTIGUOUS;
    if (fixed && (d->inner_step == 0 || p->inner <= block))
        return TD_EW_FIXED;
    return TD_EW_ROWS;
}

/* ---- Registers, by linear scan over the program. ---- */

typedef struct ew_regs {
    bool taken[TD_FUSED_MAX_IN + TD_FUSED_MAX_INSTR];
    int count;
} ew_regs;

static int take_reg(ew_regs *r)
{
    int i = 0;

    while (r->taken[i])
        i++;
    r->taken[i] = true;
    if (i >= r->count)
        r->count = i + 1;
    return i;
}

/* Is the operand read by an instruction after j, or by an output? */
static bool read_later(const td__ew *p, int operand, int j)
{
    for (int k = 0; k < p->n_out; k++)
        if (p->out[k].operand == operand)
            return true;
    for (int i = j + 1; i < p->n_instr; i++)
        for (int s = 0; s < 3; s++)
            if (p->instr[i].src[s] == operand)
                return true;
    return false;
}

static int operand_reg(const td__ew *p, int operand)
{
    return operand < p->n_in ? p->in[operand].reg : p->instr[operand - p->n_in].reg;
}

/* The output that instruction j may write at once, or -1. Only the last instruction: an output that
 * lies in an input's memory must not be written while the input is still needed. */
static int direct_output(const td__ew *p, int j)
{
    if (j == p->n_instr - 1)
        for (int k = 0; k < p->n_out; k++)
            if (p->out[k].operand == p->n_in + j && p->out[k].dtype == TD_F32)
                return k;
    return -1;
}

/* Must input d pass through a register? Rows of f32 that fill blocks need not. */
static bool needs_reg(const td__ew_input *d, bool one_row)
{
    if (d->dtype != TD_F32 || d->kind == TD_EW_FIXED)
        return true;
    return d->kind == TD_EW_ROWS && !(one_row && d->inner_step == 1);
}

static void plan_regs(td__ew *p, bool one_row)
{
    ew_regs regs = {.count = 0};

    for (int i = 0; i < p->n_in; i++)
        p->in[i].reg = needs_reg(&p->in[i], one_row) ? take_reg(&regs) : -1;
    for (int j = 0; j < p->n_instr; j++) {
        td__ew_instr *f = &p->instr[j];

        for (int s = 0; s < 3; s++) {
            int o = f->src[s], reg = operand_reg(p, o);
            bool fixed = o < p->n_in && p->in[o].kind == TD_EW_FIXED;

            if (reg >= 0 && !fixed && !read_later(p, o, j))
                regs.taken[reg] = false;
        }
        f->direct = direct_output(p, j);
        f->reg = f->direct >= 0 ? -1 : take_reg(&regs);
    }
    p->n_reg = regs.count;
}

/* Blocks, kinds and registers depend on one another: more registers, smaller blocks. The kinds are
 * fixed for the smallest block that can come out; registers are then counted once. */
static void plan_blocks(td__ew *p)
{
    bool one_row = p->inner > MIN_BLOCK;

    for (int i = 0; i < p->n_in; i++)
        p->in[i].kind = input_kind(p, &p->in[i], MIN_BLOCK);
    plan_regs(p, one_row);
    p->block = FREE_BLOCK;
    if (p->n_reg > 0) {
        p->block = CACHE_FLOATS / p->n_reg / LINE * LINE;
        p->block = p->block < MIN_BLOCK ? MIN_BLOCK : p->block > MAX_BLOCK ? MAX_BLOCK : p->block;
    }
    p->block_rows = one_row ? 1 : p->block / (p->inner > 0 ? p->inner : 1);
}

td_status td__cpu_plan_elementwise(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                   td_kernel *k)
{
    (void)is_param;
    if (n->n_in > TD_FUSED_MAX_IN || n->n_out > TD_FUSED_MAX_OUT || !takes(n))
        return TD_ENOTSUP;
    ew_state *s = td__calloc(1, sizeof *s);

    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    if (!take_program(n, &s->program) || !plan_walk(n, &s->program)) {
        td__free(s);
        return TD_ENOTSUP;
    }
    plan_blocks(&s->program);
    s->run = TD_ISA_PICK(cpu->isa, td__ew_run);
    k->run = run;
    k->impl = n->op == TD_OP_FUSED ? "fused chain" : "elementwise";
    k->scratch = (size_t)(s->program.n_reg * s->program.block) * sizeof(float);
    k->state = s;
    k->fini = td__free;
    return TD_OK;
}
