/* export.c -- what both forms share (export.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "export/export_impl.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "ops/op.h"

/* Is it a constant of zeros? First states of recurrent layers are. */
static bool is_zeros(const td_node *n)
{
    const td_attr_leaf *a = n->attr;

    if (n->op == TD_OP_EXPAND || n->op == TD_OP_RESHAPE)
        return is_zeros(n->in[0]);
    if (n->op != TD_OP_CONSTANT)
        return false;
    const char *bytes = a->data;
    for (size_t i = 0; bytes && i < a->nbytes; i++)
        if (bytes[i])
            return false;
    return true;
}

const td_node *td__export_recurrent(const td_node *n)
{
    bool lstm = n->op == TD_OP_LSTM;

    if ((!lstm && n->op != TD_OP_GRU) || n->in[0]->op != TD_OP_LINEAR || n->in[0]->n_in != 3 ||
        !is_zeros(n->in[1]) || (lstm && !is_zeros(n->in[2])))
        return NULL;
    return n->in[0];
}

/* Inputs that follow from the operator: first states of zeros, where bags of one length begin. */
static bool implied(const td_node *n, int i)
{
    if (td__export_recurrent(n))
        return i == 1 || (i == 2 && n->op == TD_OP_LSTM);
    return n->op == TD_OP_EMBEDDING_BAG && i == 1 && td__export_bag_length(n) > 0;
}

int64_t td__export_bag_length(const td_node *n)
{
    const td_attr_leaf *offsets = n->in[1]->attr;
    int64_t bags = n->out[0].shape.dim[0], ids = n->in[0]->out[0].shape.dim[0];

    if (n->in[1]->op != TD_OP_CONSTANT || !offsets->data || n->in[1]->out[0].dtype != TD_I32 ||
        !bags || ids % bags != 0)
        return 0;
    for (int64_t i = 0; i < bags; i++)
        if (((const int32_t *)offsets->data)[i] != (int32_t)(i * (ids / bags)))
            return 0;
    return ids / bags;
}

static td_status walk(const td_node *n, const td_node *other, td__export_node *at)
{
    if (at[n->id].n)
        return TD_OK;
    if (n->op != other->op || n->n_in != other->n_in || n->id != other->id)
        return TD_FAIL(TD_EINVAL, "the model is another one for another number of rows, at '%s'",
                       n->name);
    const td_node *whole = td__export_recurrent(n);
    for (int i = 0; whole && i < whole->n_in; i++)
        TD_TRY(walk(whole->in[i], other->in[0]->in[i], at));
    for (int i = 0; i < n->n_in; i++) {
        if (!(whole && i == 0) && !implied(n, i))
            TD_TRY(walk(n->in[i], other->in[i], at));
    }
    at[n->id] = (td__export_node){n, other};
    return TD_OK;
}

td_status td__export_walk(const td__export *e, td__export_node **out, int *count)
{
    size_t all = (size_t)e->output->id + 1;
    td__export_node *at = td__calloc(all, sizeof *at);

    *out = NULL;
    *count = 0;
    if (!at)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu nodes", all);
    td_status st = walk(e->output, e->other, at);
    if (st) {
        td__free(at);
        return st;
    }
    for (size_t i = 0; i < all; i++)
        if (at[i].n)
            at[(*count)++] = at[i];
    *out = at;
    return TD_OK;
}

td_status td__export_refuse(const td_node *n, const char *format)
{
    return TD_FAIL(TD_ENOTSUP, "'%s': %s has no form for this use of the operator %s", n->name,
                   format, td__op(n->op)->name);
}

td_status td__export_target(const td__export_node *x, int64_t dims[TD_MAX_DIMS])
{
    const td_shape *s = &x->n->out[0].shape;
    int open = 0;

    for (int i = 0; i < s->ndim; i++) {
        dims[i] = s->dim[i];
        if (td__export_open(x, i)) {
            dims[i] = -1;
            open++;
        }
    }
    return open > 1 ? td__export_refuse(x->n, "a file for any number of rows") : TD_OK;
}

td_status td__export_weight(const td__export *e, const td_node *leaf, td_tensor *out)
{
    int k = td_safetensors_find(e->weights, leaf->name);

    if (k < 0)
        return TD_FAIL(TD_EINVAL, "the checkpoint has no tensor '%s'", leaf->name);
    *out = td_safetensors_tensor(e->weights, k);
    if (out->dtype != TD_F32 || !td_shape_equal(&out->shape, &leaf->out[0].shape))
        return TD_FAIL(TD_EINVAL, "the checkpoint's tensor '%s' has another shape or type",
                       leaf->name);
    return TD_OK;
}
