/* ref_exec.c -- see ref_exec.h.
 *
 * Scratch holds, in this order and each aligned to 64 bytes: for every input that must be widened,
 * un-ordered or protected from an output in its memory, a plain copy; for every output that must be
 * rounded or re-ordered, a plain original. Floating elements are doubles there, others keep their
 * type. Inputs and outputs that need none of this are used where they lie. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/ref_exec.h"

#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "base/narrow.h"

enum { ALIGN = 64 };

/* ---- Elements: one conversion each way for every dtype. ---- */

static double load(td_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TD_F32: return (double)((const float *)p)[i];
    case TD_BF16: return (double)td__bf16_to_f32(((const td_bf16 *)p)[i]);
    case TD_F16: return (double)td__f16_to_f32(((const td_f16 *)p)[i]);
    case TD_F64: return ((const double *)p)[i];
    case TD_I32: return (double)((const int32_t *)p)[i];
    case TD_I64: return (double)((const int64_t *)p)[i];
    case TD_U8: return (double)((const uint8_t *)p)[i];
    case TD_BOOL: return ((const uint8_t *)p)[i] ? 1.0 : 0.0;
    case TD_DTYPE_COUNT: break;
    }
    return 0.0;
}

static void store(td_dtype t, void *p, int64_t i, double d)
{
    switch (t) {
    case TD_F32: ((float *)p)[i] = (float)d; break;
    case TD_BF16: ((td_bf16 *)p)[i] = td__bf16_from_f32(td__f32_odd_from_f64(d)); break;
    case TD_F16: ((td_f16 *)p)[i] = td__f16_from_f32(td__f32_odd_from_f64(d)); break;
    case TD_F64: ((double *)p)[i] = d; break;
    case TD_I32: ((int32_t *)p)[i] = (int32_t)td__int_from_f64(d, INT32_MIN, INT32_MAX); break;
    case TD_I64: ((int64_t *)p)[i] = td__int_from_f64(d, INT64_MIN, INT64_MAX); break;
    case TD_U8: ((uint8_t *)p)[i] = (uint8_t)td__int_from_f64(d, 0, UINT8_MAX); break;
    case TD_BOOL: ((uint8_t *)p)[i] = d != 0.0; break;
    case TD_DTYPE_COUNT: break;
    }
}

/* ---- Whole tensors between their own form and the plain working form. ---- */

/* Bytes of one element in the working form. */
static size_t work_size(td_dtype t)
{
    return td_dtype_is_float(t) ? sizeof(double) : td_dtype_size(t);
}

/* to[j] = from[i] for one element, between own form and working form. */
static void widen(const td_desc *d, void *to, int64_t j, const void *from, int64_t i)
{
    size_t e = td_dtype_size(d->dtype);

    if (td_dtype_is_float(d->dtype))
        ((double *)to)[j] = load(d->dtype, from, i);
    else
        memcpy((char *)to + (size_t)j * e, (const char *)from + (size_t)i * e, e);
}

static void narrow(const td_desc *d, void *to, int64_t j, const void *from, int64_t i)
{
    size_t e = td_dtype_size(d->dtype);

    if (td_dtype_is_float(d->dtype))
        store(d->dtype, to, j, ((const double *)from)[i]);
    else
        memcpy((char *)to + (size_t)j * e, (const char *)from + (size_t)i * e, e);
}

/* Where plain element i of an NHWC tensor lies. */
static int64_t nhwc_index(const td_shape *s, int64_t i)
{
    int64_t c = s->dim[1], hw = s->dim[2] * s->dim[3];
    int64_t pixel = i % hw, channel = i / hw % c, image = i / (hw * c);

    return (image * hw + pixel) * c + channel;
}

static void to_work(const td_desc *d, void *to, const void *from)
{
    int64_t count = td__desc_count(d);

    for (int64_t i = 0; i < count; i++)
        widen(d, to, i, from, d->layout == TD_LAYOUT_NHWC ? nhwc_index(&d->shape, i) : i);
}

static void from_work(const td_desc *d, void *to, const void *from)
{
    int64_t count = td__desc_count(d);

    for (int64_t i = 0; i < count; i++)
        narrow(d, to, d->layout == TD_LAYOUT_NHWC ? nhwc_index(&d->shape, i) : i, from, i);
}

/* ---- Elementwise operators, from their definition for one element. ---- */

const double *td__scalar_numbers(const td_op_def *def, const void *attr)
{
    /* The attr structs of elementwise operators hold doubles and nothing else, but for cast, whose
     * target type is already in the output's desc. */
    return def->attr_size >= sizeof(double) ? attr : NULL;
}

/* Step of input d along each axis of an output of shape s, in elements; 0 where it is broadcast. */
static void broadcast_steps(const td_shape *d, const td_shape *s, int64_t step[TD_MAX_DIMS])
{
    int64_t run = 1;

    memset(step, 0, sizeof(int64_t) * TD_MAX_DIMS);
    for (int i = d->ndim - 1; i >= 0; i--) {
        int axis = i + s->ndim - d->ndim;

        step[axis] = d->dim[i] == 1 ? 0 : run;
        run *= d->dim[i];
    }
}

static void run_scalar(const td_op_def *def, const td_op_args *a)
{
    const td_shape *s = &a->out_desc[0].shape;
    const double *num = td__scalar_numbers(def, a->attr);
    int64_t step[TD_MAX_IN][TD_MAX_DIMS], at[TD_MAX_IN] = {0}, index[TD_MAX_DIMS] = {0};
    int64_t count = td__desc_count(&a->out_desc[0]);
    td_dtype out = a->out_desc[0].dtype;

    if (td_dtype_is_float(out))
        out = TD_F64;
    for (int k = 0; k < a->n_in; k++)
        broadcast_steps(&a->in_desc[k]->shape, s, step[k]);
    for (int64_t i = 0; i < count; i++) {
        double x[TD_MAX_IN];

        for (int k = 0; k < a->n_in; k++) {
            td_dtype t = a->in_desc[k]->dtype;

            x[k] = load(td_dtype_is_float(t) ? TD_F64 : t, a->in[k], at[k]);
        }
        store(out, a->out[0], i, def->scalar(x, num));
        for (int axis = s->ndim - 1; axis >= 0; axis--) {
            bool carry = ++index[axis] == s->dim[axis];

            for (int k = 0; k < a->n_in; k++)
                at[k] += carry ? -step[k][axis] * (s->dim[axis] - 1) : step[k][axis];
            if (!carry)
                break;
            index[axis] = 0;
        }
    }
}

/* ---- The kernel. ---- */

/* Does input i need a plain copy? Outputs may lie in the memory of inputs named by def->inplace. */
static bool copies_in(const td_op_def *def, const td_desc *d, int i)
{
    return td_dtype_is_float(d->dtype) || d->layout != TD_LAYOUT_PLAIN || (def->inplace >> i & 1u);
}

static bool copies_out(const td_desc *d)
{
    return td_dtype_is_float(d->dtype) || d->layout != TD_LAYOUT_PLAIN;
}

static size_t work_bytes(const td_desc *d)
{
    return td__align_up((size_t)td__desc_count(d) * work_size(d->dtype), ALIGN);
}

static void run_ref(const td_kernel_call *c)
{
    const td_node *n = c->kernel->node;
    const td_op_def *def = td__op(n->op);
    td_desc in_desc[TD_MAX_IN], out_desc[TD_MAX_OUT];
    const td_desc *in_desc_at[TD_MAX_IN];
    const void *in[TD_MAX_IN];
    void *out[TD_MAX_OUT];
    char *free_at = c->scratch;

    for (int i = 0; i < n->n_in; i++) {
        const td_desc *d = &n->in[i]->out[0];

        in[i] = c->in[i];
        if (copies_in(def, d, i)) {
            to_work(d, free_at, c->in[i]);
            in[i] = free_at;
            free_at += work_bytes(d);
        }
        in_desc[i] = *d;
        in_desc[i].layout = TD_LAYOUT_PLAIN;
        in_desc_at[i] = &in_desc[i];
    }
    for (int k = 0; k < n->n_out; k++) {
        out[k] = c->out[k];
        if (copies_out(&n->out[k])) {
            out[k] = free_at;
            free_at += work_bytes(&n->out[k]);
        }
        out_desc[k] = n->out[k];
        out_desc[k].layout = TD_LAYOUT_PLAIN;
    }
    td_op_args a = {
        .n_in = n->n_in,
        .n_out = n->n_out,
        .in_desc = in_desc_at,
        .attr = n->attr,
        .out_desc = out_desc,
        .in = in,
        .out = out,
        .ctx = c->ctx,
    };

    if (def->scalar)
        run_scalar(def, &a);
    else
        def->ref(&a);
    for (int k = 0; k < n->n_out; k++)
        if (out[k] != c->out[k])
            from_work(&n->out[k], c->out[k], out[k]);
}

td_status td__ref_exec_plan(const td_node *n, td_kernel *k)
{
    const td_op_def *def = td__op(n->op);
    size_t total = 0;
    bool fits = true;

    if (!def->ref && !def->scalar)
        return TD_FAIL(TD_ENOTSUP, "%s: operator %s has no reference kernel", n->name, def->name);
    for (int i = 0; i < n->n_in; i++)
        if (copies_in(def, &n->in[i]->out[0], i))
            fits = fits && td__size_add(total, work_bytes(&n->in[i]->out[0]), &total);
    for (int i = 0; i < n->n_out; i++)
        if (copies_out(&n->out[i]))
            fits = fits && td__size_add(total, work_bytes(&n->out[i]), &total);
    if (!fits)
        return TD_FAIL(TD_EINVAL, "%s: operator %s is too large to run", n->name, def->name);
    *k = (td_kernel){.node = n, .impl = "reference", .run = run_ref, .scratch = total};
    return TD_OK;
}
