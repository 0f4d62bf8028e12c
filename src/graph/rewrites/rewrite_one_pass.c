/* rewrite_one_pass.c -- neighbours that would each go through the same memory, in one pass, for
 * backends whose kernels do it:
 *
 *     linear(x) + r                        -> linear(x, residual r)
 *     layer_norm_back(dy, ...) + r         -> layer_norm_back(dy, ..., residual r)
 *     gelu_tanh_back(pre, linear_back_data(dy))  -> linear_back_data(dy, pre; act gelu_tanh)
 *     cross entropy, and its gradient      -> softmax_cross_entropy_both
 *     batch_norm_back(a + b, ...)          -> batch_norm_back(a, ..., more b)
 *     batch_norm_back(..., y) of relu      -> batch_norm_back(..., beta): x tells the sign of y
 *
 * Runs after autodiff. The fused node stands where the first of the two stood (batch_norm_back
 * where it stands), and at its place, which is that of its params; what the second reads beside it
 * must be there by then. Nobody else may read what lies between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

typedef struct finder {
    const td_graph *g;
    int *readers;           /* by id: readers of output 0, roots included */
    const td_node **second; /* by id of the first: what it is fused with */
    bool *gone;             /* by id: it is part of another node */
} finder;

/* A part is there as soon as the node that it is of. */
static int made_at(const td_node *n)
{
    return n->op == TD_OP_PART ? n->in[0]->id : n->id;
}

/* May `end` be carried out by `first`, which alone it reads beside `other`? */
static bool fits(const finder *f, const td_node *first, const td_node *end, const td_node *other)
{
    return !f->second[first->id] && f->readers[first->id] == 1 && made_at(other) < first->id &&
           td_shape_equal(&first->out[0].shape, &end->out[0].shape) &&
           td_shape_equal(&other->out[0].shape, &end->out[0].shape) &&
           first->out[0].dtype == end->out[0].dtype && other->out[0].dtype == end->out[0].dtype;
}

static bool takes_sum(const td_node *n)
{
    if (n->op == TD_OP_LINEAR) {
        const td_attr_linear *a = n->attr;
        return a->has_bias && !a->has_residual && a->act == TD_ACT_NONE;
    }
    return n->op == TD_OP_LAYER_NORM_BACK && !((const td_attr_norm *)n->attr)->has_residual;
}

/* The node that `end` can be fused into; NULL: none. */
static const td_node *first_of(const finder *f, const td_node *end)
{
    if (end->op == TD_OP_ADD)
        for (int k = 1; k >= 0; k--)
            if (takes_sum(end->in[k]) && fits(f, end->in[k], end, end->in[1 - k]))
                return end->in[k];
    if (end->op == TD_OP_GELU_TANH_BACK && end->in[1]->op == TD_OP_LINEAR_BACK_DATA &&
        ((const td_attr_linear *)end->in[1]->attr)->act == TD_ACT_NONE &&
        fits(f, end->in[1], end, end->in[0]))
        return end->in[1];
    if (end->op == TD_OP_XENT_BACK && end->in[2]->op == TD_OP_PART &&
        end->in[3]->op == TD_OP_CONSTANT) {
        const td_node *loss = end->in[2]->in[0];
        if (loss->op == TD_OP_XENT && !f->second[loss->id] && loss->in[0] == end->in[0] &&
            loss->in[1] == end->in[1])
            return loss;
    }
    return NULL;
}

/* The sum of two gradients that the backward of a batch norm alone reads; NULL: none. */
static const td_node *sum_before(const finder *f, const td_node *n)
{
    const td_node *sum = n->in[0];
    if (n->op != TD_OP_BATCH_NORM_BACK || ((const td_attr_norm *)n->attr)->has_more ||
        sum->op != TD_OP_ADD || f->readers[sum->id] != 1 || f->gone[sum->id])
        return NULL;
    for (int k = 0; k < 2; k++)
        if (!td_shape_equal(&sum->in[k]->out[0].shape, &sum->out[0].shape) ||
            sum->in[k]->out[0].dtype != sum->out[0].dtype)
            return NULL;
    return sum;
}

/* Does x tell the sign of y, which the backward of a batch norm with relu reads? */
static bool sign_by_beta(const td_node *n)
{
    const td_attr_norm *a = n->attr;
    if (n->op != TD_OP_BATCH_NORM_BACK || a->act != TD_ACT_RELU || a->has_residual || a->by_beta)
        return false;
    const td_node *y = n->in[5];
    return y->op == TD_OP_BATCH_NORM && !((const td_attr_norm *)y->attr)->has_residual &&
           y->in[0] == n->in[1] && y->in[1] == n->in[2];
}

static void find(finder *f)
{
    for (int i = 0; i < f->g->n_nodes; i++)
        for (int k = 0; k < f->g->nodes[i]->n_in && f->g->nodes[i]->op != TD_OP_PART; k++)
            f->readers[f->g->nodes[i]->in[k]->id]++;
    for (int i = 0; i < f->g->n_roots; i++)
        f->readers[f->g->roots[i].node->id]++;
    for (int i = 0; i < f->g->n_nodes; i++) {
        const td_node *end = f->g->nodes[i], *first = first_of(f, end);
        if (end->n_in && sum_before(f, end)) {
            f->gone[end->in[0]->id] = true;
            f->second[i] = end->in[0];
        }
        if (!first)
            continue;
        f->second[first->id] = end;
        f->gone[i] = true;
    }
}

/* What stands for n, which may be a constant or a part that comes later. */
static td_node *mapped(td__rewriter *rw, const td_node *n)
{
    return rw->map[n->id] ? rw->map[n->id] : td__rewrite_copy(rw, n);
}

static void emit_both(td__rewriter *rw, const td_node *loss, const td_node *back)
{
    td_node *in[] = {rw->map[loss->in[0]->id], rw->map[loss->in[1]->id], mapped(rw, back->in[3])};
    td_node *both = td__node_named(rw->to, TD_OP_XENT_BOTH, loss->attr, in, 3, loss->name);
    rw->map[back->id] = both;
    rw->map[loss->id] = both ? td__part(rw->to, both, 1) : NULL;
}

static void emit(td__rewriter *rw, const td_node *first, const td_node *end)
{
    td_node *in[TD_MAX_IN];
    union {
        td_attr_linear linear;
        td_attr_norm norm;
    } attr;
    if (first->op == TD_OP_XENT) {
        emit_both(rw, first, end);
        return;
    }
    for (int i = 0; i < first->n_in; i++)
        in[i] = rw->map[first->in[i]->id];
    in[first->n_in] = mapped(rw, end->in[end->in[0] == first ? 1 : 0]);
    memcpy(&attr, first->attr, td__op(first->op)->attr_size);
    if (first->op == TD_OP_LINEAR)
        attr.linear.has_residual = true;
    else if (first->op == TD_OP_LINEAR_BACK_DATA)
        attr.linear.act = TD_ACT_GELU_TANH;
    else
        attr.norm.has_residual = true;
    rw->map[end->id] = td__rewrite_copy_as(rw, first, &attr, in, first->n_in + 1);
}

/* The backward of a batch norm, with the sum before it if there is one. */
static void emit_norm(td__rewriter *rw, const td_node *n, const td_node *sum)
{
    td_node *in[TD_MAX_IN];
    td_attr_norm attr;
    int n_in = n->n_in;
    memcpy(&attr, n->attr, sizeof attr);
    for (int i = 0; i < n_in; i++)
        in[i] = rw->map[n->in[i]->id];
    if (sum) {
        attr.has_more = true;
        in[0] = rw->map[sum->in[0]->id];
        in[n_in++] = rw->map[sum->in[1]->id];
    } else if (sign_by_beta(n)) {
        attr.by_beta = true;
        in[5] = rw->map[n->in[5]->in[2]->id];
    }
    td__rewrite_copy_as(rw, n, &attr, in, n_in);
}

static void rewrite(td__rewriter *rw, const finder *f)
{
    for (int i = 0; i < f->g->n_nodes && !rw->to->status; i++) {
        const td_node *n = td__rewrite_visit(rw, i);
        if (n->op == TD_OP_BATCH_NORM_BACK)
            emit_norm(rw, n, f->second[i]);
        else if (f->second[i])
            emit(rw, n, f->second[i]);
        else if (n->op == TD_OP_PART && n->in[0]->op == TD_OP_XENT && f->second[n->in[0]->id])
            rw->map[i] = td__part(rw->to, rw->map[f->second[n->in[0]->id]->id], 2);
        else if (!f->gone[i] && !rw->map[i])
            td__rewrite_copy(rw, n);
    }
}

td_status td__rewrite_one_pass(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    size_t n = (size_t)g->n_nodes + 1;
    finder f = {.g = g,
                .readers = td__calloc(n, sizeof(int)),
                .second = td__calloc(n, sizeof(td_node *)),
                .gone = td__calloc(n, sizeof(bool))};
    if (f.readers && f.second && f.gone) {
        find(&f);
        rewrite(&rw, &f);
    } else {
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to fuse neighbours");
    }
    td__free(f.readers);
    td__free(f.second);
    td__free(f.gone);
    return td__rewrite_end(&rw, out);
}
