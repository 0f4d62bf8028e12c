/* rewrite_fold.c -- constants and identities.
 *
 * Constants   A node whose inputs are all constants is computed now, by the reference kernels, if
 *             its result is small.
 * Identities  Nodes that change nothing go: reshapes to the same shape and of reshapes, casts to
 *             the same type, permutes that keep the order, 1 x + 0. An elementwise operator with a
 *             one-number constant becomes an affine one; one that reads a broadcast reads the
 *             narrow value itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "graph/rewrite.h"

enum { MAX_FOLDED_BYTES = 64 * 1024 };

typedef struct folder {
    td__rewriter rw;
    td_backend *ref;
} folder;

/* ---- Constants ------------------------------------------------------------------------------- */

static td_status run_now(folder *f, const td_node *n, void *result)
{
    td_backend *b = f->ref;
    td_kernel k = {.node = n};
    bool is_param[TD_MAX_IN] = {false};
    const void *in[TD_MAX_IN];
    void *zeros[TD_MAX_IN] = {NULL};
    void *scratch = NULL;
    td_status st = b->ops->plan(b, n, is_param, &k);
    for (int i = 0; i < n->n_in && !st; i++) {
        const td_attr_leaf *leaf = n->in[i]->attr;
        in[i] = leaf->data;
        if (!leaf->data &&
            !(in[i] = zeros[i] = td__calloc(td__desc_bytes(&n->in[i]->out[0]) + 1, 1)))
            st = TD_FAIL(TD_ENOMEM, "no memory to fold '%s'", n->name);
    }
    if (!st && k.scratch)
        if (!(scratch = td__alloc_block(k.scratch)))
            st = TD_FAIL(TD_ENOMEM, "no memory to fold '%s'", n->name);
    if (!st)
        k.run(&(td_kernel_call){
            .in = in, .out = &result, .scratch = scratch, .kernel = &k, .ctx = &(td_run_ctx){0}});
    if (scratch)
        td__free_block(scratch, k.scratch);
    for (int i = 0; i < n->n_in; i++)
        td__free(zeros[i]);
    if (k.fini)
        k.fini(k.state);
    return st;
}

static bool is_foldable(const td_node *n)
{
    const td_op_def *def = td__op(n->op);
    if (def->is_view || def->random || n->n_in == 0 || n->n_out != 1 ||
        td__desc_bytes(&n->out[0]) > MAX_FOLDED_BYTES)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->op != TD_OP_CONSTANT)
            return false;
    return true;
}

/* The constant that n always gives; n itself stays behind and is pruned. */
static td_node *fold_constant(folder *f, td_node *n)
{
    void *result = td__calloc(td__desc_bytes(&n->out[0]) + 1, 1);
    td_status st =
        result ? run_now(f, n, result) : TD_FAIL(TD_ENOMEM, "no memory to fold '%s'", n->name);
    td_node *constant =
        st ? td__graph_fail(f->rw.to, st, "td_graph", "'%s' cannot be computed in advance: %s",
                            n->name, td_last_error())
           : td_constant(f->rw.to, n->out[0].dtype, n->out[0].shape, result);
    td__free(result);
    return constant;
}

/* ---- Identities ------------------------------------------------------------------------------ */

/* The number in a constant of one element. */
static bool is_number(const td_node *n, double *value)
{
    if (n->op != TD_OP_CONSTANT || td__desc_count(&n->out[0]) != 1)
        return false;
    const void *data = ((const td_attr_leaf *)n->attr)->data;
    switch (n->out[0].dtype) {
    case TD_F32: *value = data ? (double)*(const float *)data : 0; return true;
    case TD_F64: *value = data ? *(const double *)data : 0; return true;
    case TD_BF16: *value = data ? (double)td__bf16_to_f32(*(const td_bf16 *)data) : 0; return true;
    default: return false;
    }
}

/* x op c as scale x + shift, where c is a number and the shape is x's. */
static bool as_affine(td_opcode op, td_node *const *in, const td_desc *out, td_node **x,
                      td_attr_affine *affine)
{
    double c;
    int at = is_number(in[1], &c) ? 1 : is_number(in[0], &c) ? 0 : -1;
    if (at < 0)
        return false;
    *x = in[1 - at];
    if (!td_shape_equal(&(*x)->out[0].shape, &out->shape))
        return false;
    switch (op) {
    case TD_OP_ADD: *affine = (td_attr_affine){1, c}; return true;
    case TD_OP_SUB:
        *affine = at == 1 ? (td_attr_affine){1, -c} : (td_attr_affine){-1, c};
        return true;
    case TD_OP_MUL: *affine = (td_attr_affine){c, 0}; return true;
    default: return false;
    }
}

static bool keeps_order(const td_node *n)
{
    const td_attr_permute *p = n->attr;
    for (int i = 0; i < n->in[0]->out[0].shape.ndim; i++)
        if (p->axes[i] != i)
            return false;
    return true;
}

/* The node that `old` with these inputs is the same as, or NULL. */
static td_node *identity(folder *f, const td_node *old, td_node **in)
{
    const td_desc *x = old->n_in ? &in[0]->out[0] : NULL;
    switch (old->op) {
    case TD_OP_RESHAPE:
        while (in[0]->op == TD_OP_RESHAPE)
            in[0] = in[0]->in[0];
        return td_shape_equal(&in[0]->out[0].shape, &old->out[0].shape) ? in[0] : NULL;
    case TD_OP_EXPAND: return td_shape_equal(&x->shape, &old->out[0].shape) ? in[0] : NULL;
    case TD_OP_CAST: return x->dtype == old->out[0].dtype ? in[0] : NULL;
    case TD_OP_PERMUTE: return keeps_order(old) ? in[0] : NULL;
    case TD_OP_DROPOUT: return ((const td_attr_dropout *)old->attr)->p > 0 ? NULL : in[0];
    case TD_OP_AFFINE: {
        const td_attr_affine *a = old->attr;
        return a->scale == 1 && a->shift == 0 ? in[0] : NULL;
    }
    case TD_OP_ADD:
    case TD_OP_SUB:
    case TD_OP_MUL: {
        td_node *value;
        td_attr_affine a;
        if (!td_dtype_is_float(old->out[0].dtype) ||
            !as_affine(old->op, in, &old->out[0], &value, &a))
            return NULL;
        if (a.scale == 1 && a.shift == 0)
            return value;
        return td__node_named(f->rw.to, TD_OP_AFFINE, &a, &value, 1, old->name);
    }
    default: return NULL;
    }
}

/* Does `old` take these inputs and give the shape that it gave? */
static bool still_fits(const td_node *old, td_node *const *in)
{
    const td_desc *in_desc[TD_MAX_IN];
    td_desc out[TD_MAX_OUT] = {{0}};
    int n_out = 1;
    for (int i = 0; i < old->n_in; i++)
        in_desc[i] = &in[i]->out[0];
    td_op_args args = {.n_in = old->n_in, .in_desc = in_desc, .attr = old->attr};
    return td__op(old->op)->infer(&args, out, &n_out) == TD_OK &&
           td_shape_equal(&out[0].shape, &old->out[0].shape);
}

/* Most elementwise operators broadcast by themselves: let them read what was broadcast. Their infer
 * rule says which (gradients of activations, for one, want equal shapes), and at least one input
 * must keep the full shape, or the result would shrink. */
static void skip_expands(const td_node *old, td_node **in)
{
    if (!td__op(old->op)->scalar || old->n_in < 2)
        return;
    for (int i = 0; i < old->n_in; i++) {
        td_node *wide = in[i];
        if (wide->op != TD_OP_EXPAND)
            continue;
        in[i] = wide->in[0];
        if (!still_fits(old, in))
            in[i] = wide;
    }
}

static void fold(folder *f, const td_node *old)
{
    td_node *in[TD_MAX_IN];
    for (int i = 0; i < old->n_in; i++)
        in[i] = f->rw.map[old->in[i]->id];
    skip_expands(old, in);
    td_node *same = identity(f, old, in);
    if (same || f->rw.to->status) {
        f->rw.map[old->id] = same;
        return;
    }
    td_node *n = td__rewrite_copy_as(&f->rw, old, old->attr, in, old->n_in);
    if (n && is_foldable(n))
        f->rw.map[old->id] = fold_constant(f, n);
}

td_status td__rewrite_fold(const td_graph *g, td_graph **out)
{
    folder f;
    TD_TRY(td__rewrite_begin(&f.rw, g));
    td_status st = td__backend_create("ref", &f.ref);
    if (st)
        td__graph_fail(f.rw.to, st, "td_graph", "%s", td_last_error());
    for (int i = 0; i < g->n_nodes && !f.rw.to->status; i++)
        fold(&f, td__rewrite_visit(&f.rw, i));
    td__backend_destroy(st ? NULL : f.ref);
    return td__rewrite_end(&f.rw, out);
}
