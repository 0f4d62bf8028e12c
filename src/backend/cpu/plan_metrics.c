/* plan_metrics.c -- argmax, accuracy, top_k: one look at each element, no arithmetic worth
 * vectorising. Rules for ties and NaN as in the operators' files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "base/half.h"
#include "ops/attr.h"
#include "ops/op_check.h"

static float load(td_dtype t, const void *p, int64_t i)
{
    if (t == TD_F32)
        return ((const float *)p)[i];
    return t == TD_BF16 ? td__bf16_to_f32(((const td_bf16 *)p)[i])
                        : td__f16_to_f32(((const td_f16 *)p)[i]);
}

static void run_argmax(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_desc *x = td__in_desc(n, 0);
    int axis = __builtin_ctz(((const td_attr_reduce *)n->attr)->axes);
    int32_t *y = c->out[0]; /* (outer, inner) */
    int64_t outer = 1, inner = 1, size = x->shape.dim[axis];

    for (int i = 0; i < axis; i++)
        outer *= x->shape.dim[i];
    for (int i = axis + 1; i < x->shape.ndim; i++)
        inner *= x->shape.dim[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t first = o * size * inner + i, at = 0;
            float best = load(x->dtype, c->in[0], first);

            for (int64_t k = 1; k < size && !isnan(best); k++) {
                float v = load(x->dtype, c->in[0], first + k * inner);

                if (v > best || isnan(v)) {
                    best = v;
                    at = k;
                }
            }
            y[o * inner + i] = (int32_t)at;
        }
}

static void run_accuracy(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_desc *x = td__in_desc(n, 0);
    td_dtype target_type = td__in_desc(n, 1)->dtype;
    int64_t rows = td__row_count(&x->shape), classes = td__last_dim(&x->shape), hits = 0;
    const td_attr_accuracy *at = n->attr;
    int64_t counted = 0;

    for (int64_t r = 0; r < rows; r++) {
        int64_t first = r * classes, before = 0;
        int64_t t =
            target_type == TD_I32 ? ((const int32_t *)c->in[1])[r] : ((const int64_t *)c->in[1])[r];

        bool ignored = at->use_ignore && t == at->ignore;
        counted += !ignored;
        if (ignored || t < 0 || t >= classes)
            continue;
        float mine = load(x->dtype, c->in[0], first + t);

        for (int64_t i = 0; i < classes; i++) {
            float v = load(x->dtype, c->in[0], first + i);

            before += v > mine || (v == mine && i < t);
        }
        hits += before < at->k;
    }
    *(float *)c->out[0] = counted ? (float)((double)hits / (double)counted) : 0;
}

/* The list of the k best so far is kept in scratch, sorted. */
static void run_top_k(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_desc *x = td__in_desc(n, 0);
    const int k = ((const td_attr_topk *)n->attr)->k;
    float *best = c->scratch;   /* (k) */
    int32_t *where = c->out[1]; /* (rows, k) */
    int64_t rows = td__row_count(&x->shape), size = td__last_dim(&x->shape);

    for (int64_t r = 0; r < rows; r++, where += k) {
        int found = 0;

        for (int64_t i = 0; i < size; i++) {
            float v = load(x->dtype, c->in[0], r * size + i);
            int at = found;

            while (at > 0 && v > best[at - 1])
                at--;
            if (at == k)
                continue;
            found += found < k;
            for (int j = found - 1; j > at; j--) {
                best[j] = best[j - 1];
                where[j] = where[j - 1];
            }
            best[at] = v;
            where[at] = (int32_t)i;
        }
        for (int j = 0; j < k; j++) {
            int64_t at = r * k + j;

            if (x->dtype == TD_F32)
                ((float *)c->out[0])[at] = best[j];
            else /* the bits as they were */
                ((uint16_t *)c->out[0])[at] = ((const uint16_t *)c->in[0])[r * size + where[j]];
        }
    }
}

static td_status plan(const td_node *n, void (*run)(const td_kernel_call *), size_t scratch,
                      td_kernel *k)
{
    const td_desc *x = td__in_desc(n, 0);

    if (!td__is_narrow(x->dtype) || x->layout != TD_LAYOUT_PLAIN)
        return TD_ENOTSUP;
    k->run = run;
    k->impl = "scan";
    k->scratch = scratch;
    return TD_OK;
}

td_status td__cpu_plan_argmax(const td__cpu *cpu, const td_node *n, const bool *is_param,
                              td_kernel *k)
{
    (void)cpu, (void)is_param;
    return plan(n, run_argmax, 0, k);
}

td_status td__cpu_plan_accuracy(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                td_kernel *k)
{
    (void)cpu, (void)is_param;
    return plan(n, run_accuracy, 0, k);
}

td_status td__cpu_plan_top_k(const td__cpu *cpu, const td_node *n, const bool *is_param,
                             td_kernel *k)
{
    size_t kept = (size_t)((const td_attr_topk *)n->attr)->k;

    (void)cpu, (void)is_param;
    return plan(n, run_top_k, kept * sizeof(float), k);
}
