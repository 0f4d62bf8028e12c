/* op_fused.c -- a straight-line program of elementwise operators in one pass over memory. Made by
 * rewriting only, after autodiff, so it has no gradient.
 *
 * Inputs are broadcast against one another and read as numbers; every instruction calls the scalar
 * function of its operator; results are converted to the outputs' types when they are stored. The
 * whole program runs for one element before anything is written, so the outputs may lie in an
 * input's memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_util.h"

static td_status check_program(const td_attr_fused *p, int n_in)
{
    if (p->n_instr < 1 || p->n_instr > TD_FUSED_MAX_INSTR)
        return TD_FAIL(TD_EINVAL, "%d instructions: 1 to %d are possible", p->n_instr,
                       TD_FUSED_MAX_INSTR);
    if (p->n_out < 1 || p->n_out > TD_FUSED_MAX_OUT)
        return TD_FAIL(TD_EINVAL, "%d outputs: 1 to %d are possible", p->n_out, TD_FUSED_MAX_OUT);
    for (int j = 0; j < p->n_instr; j++) {
        const td_fused_instr *f = &p->instr[j];
        if (f->op < 0 || f->op >= TD_OP_COUNT)
            return TD_FAIL(TD_EINVAL, "instruction %d has unknown operator %d", j, f->op);
        const td_op_def *def = td__op((td_opcode)f->op);
        if (!def->scalar || def->n_in_max > 3 || f->op == TD_OP_CAST)
            return TD_FAIL(TD_EINVAL, "instruction %d: %s cannot be fused", j, def->name);
        for (int k = 0; k < def->n_in_max; k++)
            if (f->src[k] < 0 || f->src[k] >= n_in + j)
                return TD_FAIL(TD_EINVAL, "instruction %d reads operand %d of %d", j, f->src[k],
                               n_in + j);
    }
    for (int k = 0; k < p->n_out; k++) {
        if (p->result[k] < 0 || p->result[k] >= n_in + p->n_instr)
            return TD_FAIL(TD_EINVAL, "output %d is operand %d of %d", k, p->result[k],
                           n_in + p->n_instr);
        if ((unsigned)p->dtype[k] >= TD_DTYPE_COUNT)
            return TD_FAIL(TD_EINVAL, "output %d has unknown dtype %d", k, (int)p->dtype[k]);
    }
    return TD_OK;
}

static td_status fused_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_fused *p = a->attr;
    TD_TRY(check_program(p, a->n_in));
    for (int k = 0; k < p->n_out; k++) {
        out[k].dtype = p->dtype[k];
        TD_TRY(td__infer_broadcast(a, &out[k]));
    }
    *n_out = p->n_out;
    return TD_OK;
}

static void fused_ref(const td_op_args *a)
{
    const td_attr_fused *p = a->attr;
    const td_shape *s = &a->out_desc[0].shape;
    int64_t stride[TD_FUSED_MAX_IN][TD_MAX_DIMS], index[TD_MAX_DIMS] = {0}, n = td__count(s);
    for (int i = 0; i < a->n_in; i++)
        td__broadcast_strides(&a->in_desc[i]->shape, s, stride[i]);
    for (int64_t e = 0; e < n; e++) {
        double operand[TD_FUSED_MAX_IN + TD_FUSED_MAX_INSTR];
        for (int i = 0; i < a->n_in; i++)
            operand[i] =
                td__ref_get(a->in_desc[i]->dtype, a->in[i], td__offset(s->ndim, index, stride[i]));
        for (int j = 0; j < p->n_instr; j++) {
            const td_fused_instr *f = &p->instr[j];
            const td_op_def *def = td__op((td_opcode)f->op);
            double x[3] = {0};
            for (int k = 0; k < def->n_in_max; k++)
                x[k] = operand[f->src[k]];
            operand[a->n_in + j] = def->scalar(x, f->attr);
        }
        for (int k = 0; k < p->n_out; k++)
            td__ref_set(a->out_desc[k].dtype, a->out[k], e, operand[p->result[k]]);
        td__next_index(s, index);
    }
}

/* relu(2 a b + c), and the sum before relu. */
static const td_attr_fused CHAIN = {
    .n_instr = 4,
    .n_out = 2,
    .instr = {{.op = TD_OP_MUL, .src = {0, 1}},
              {.op = TD_OP_AFFINE, .src = {3}, .attr = {2, 0}},
              {.op = TD_OP_ADD, .src = {4, 2}},
              {.op = TD_OP_RELU, .src = {5}}},
    .result = {6, 5},
    .dtype = {TD_F32, TD_F32},
};

/* where(a < b, tanh(a), b) as f32 and the condition as bool. */
static const td_attr_fused CHOICE = {
    .n_instr = 4,
    .n_out = 2,
    .instr = {{.op = TD_OP_LESS, .src = {0, 1}},
              {.op = TD_OP_TANH, .src = {0}},
              {.op = TD_OP_WHERE, .src = {2, 3, 1}},
              {.op = TD_OP_CLAMP, .src = {4}, .attr = {-0.5, 0.5}}},
    .result = {5, 2},
    .dtype = {TD_F32, TD_BOOL},
};

static const td_op_sample SAMPLES[] = {
    {.n_in = 3, .in = {TD_SAMPLE_F(7, 13), TD_SAMPLE_F(13), TD_SAMPLE_F(7, 1)}, .attr = &CHAIN},
    {.n_in = 3, .in = {TD_SAMPLE_F0, TD_SAMPLE_F0, TD_SAMPLE_F0}, .attr = &CHAIN},
    {.n_in = 3, .in = {TD_SAMPLE_F(0, 5), TD_SAMPLE_F(5), TD_SAMPLE_F0}, .attr = &CHAIN},
    {.n_in = 3,
     .in = {TD_SAMPLE_F(2, 3, 5, 4), TD_SAMPLE_F(1, 3, 1, 1), TD_SAMPLE_F0},
     .attr = &CHAIN},
    {.n_in = 2, .in = {TD_SAMPLE_F(7, 33, 65), TD_SAMPLE_F(33, 65)}, .attr = &CHOICE},
    {.n_in = 2, .in = {TD_SAMPLE_F(1, 9), TD_SAMPLE_F(4, 9)}, .attr = &CHOICE},
};

const td_op_def td__op_fused = {
    .name = "fused",
    .n_in_min = 1,
    .n_in_max = TD_FUSED_MAX_IN,
    .attr_size = sizeof(td_attr_fused),
    .infer = fused_infer,
    .ref = fused_ref,
    .inplace = (1u << TD_FUSED_MAX_IN) - 1,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_ANY,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
