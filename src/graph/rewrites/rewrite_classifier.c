/* rewrite_classifier.c -- a classifier and its cross entropy, some rows at a time:
 *
 *     logits = linear(x, w)
 *     both = softmax_cross_entropy_both(logits, target, dloss)
 *     dx = linear_back_data(both, w),  dw = linear_back_weight(both, x)
 *                                 -> linear_cross_entropy(x, w, target, dloss)
 *
 * The logits of a language model are more than any layer keeps: 50,304 numbers a token. Where they
 * are more than MOST bytes, the fused operator has them for a part of the rows at a time, so that
 * they never are there as a whole. How many is a function of the shape: the sum over the parts has
 * the same bits in every run.
 *
 * Runs after rewrite_one_pass.c, which makes `both`, and pruning. The fused node stands at its
 * place. Nobody else may read the logits, their gradient or the rows' own sums; gradients are made
 * earlier than before, so programs that run phase by phase have the four nodes, and the whole
 * logits; but their products are of the same parts, which gives them the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

static const int64_t MOST = 2LL << 30; /* bytes of logits at a time */
enum { LEAST = 1024 };                 /* rows: with fewer, products are slow */

typedef struct found {
    const td_node *logits, *both, *data, *weight;
    int64_t rows; /* at a time */
} found;

/* The power of two of rows whose logits are at most MOST. */
static int64_t rows_at_once(const td_node *logits)
{
    const td_shape *s = &logits->out[0].shape;
    int64_t row = s->dim[s->ndim - 1] * (int64_t)td_dtype_size(logits->out[0].dtype), n = LEAST;
    while (2 * n * row <= MOST)
        n *= 2;
    return n;
}

static bool is_plain(const td_node *n, int n_in)
{
    const td_attr_linear *a = n->attr;
    return n->n_in == n_in && a->act == TD_ACT_NONE && !a->has_bias && !a->has_residual;
}

static void take_reader(found *f, const td_node *n, bool *other)
{
    const td_node *x = f->logits->in[0], *w = f->logits->in[1];
    bool data = n->op == TD_OP_LINEAR_BACK_DATA && n->in[0] == f->both && n->in[1] == w &&
                is_plain(n, 2) && n->out[0].dtype == x->out[0].dtype && !f->data;
    bool weight = n->op == TD_OP_LINEAR_BACK_WEIGHT && n->in[0] == f->both && n->in[1] == x &&
                  is_plain(n, 2) && n->out[0].dtype == TD_F32 && !f->weight;
    bool loss = n->op == TD_OP_PART && ((const td_attr_part *)n->attr)->index == 1;
    if (data)
        f->data = n;
    else if (weight)
        f->weight = n;
    else
        *other = *other || n->op != TD_OP_PART || !loss;
}

/* Who reads the logits and what is made of them? false: others too, or not all of these. */
static bool find(const td_graph *g, const td_node *both, found *f)
{
    bool other = false;
    const td_node *logits = both->op == TD_OP_XENT_BOTH ? both->in[0] : NULL;
    *f = (found){.logits = logits, .both = both};
    if (!logits || logits->op != TD_OP_LINEAR || !is_plain(logits, 2) ||
        logits->place != both->place || logits->out[0].dtype != logits->in[0]->out[0].dtype)
        return false;
    f->rows = rows_at_once(logits);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            other = other || (g->nodes[i]->in[k] == logits && g->nodes[i] != both);
            if (g->nodes[i]->in[k] == both)
                take_reader(f, g->nodes[i], &other);
        }
    for (int i = 0; i < g->n_roots; i++)
        other = other || g->roots[i].node == logits || g->roots[i].node == both;
    const td_shape *s = &logits->out[0].shape;
    return !other && f->data && f->weight && td_shape_count(s) > f->rows * s->dim[s->ndim - 1];
}

static void emit(td__rewriter *rw, const found *f)
{
    const td_node *both = f->both;
    td_node *in[] = {rw->map[f->logits->in[0]->id], rw->map[f->logits->in[1]->id],
                     rw->map[both->in[1]->id], rw->map[both->in[2]->id]};
    td_attr_linear_xent attr;
    memset(&attr, 0, sizeof attr);
    memcpy(&attr.loss, both->attr, sizeof attr.loss);
    attr.out_dtype = f->weight->out[0].dtype;
    attr.rows = f->rows;
    td_node *fused = td__node_named(rw->to, TD_OP_LINEAR_XENT, &attr, in, 4, both->name);
    rw->map[f->data->id] = fused;
    rw->map[f->weight->id] = fused ? td__part(rw->to, fused, 1) : NULL;
    rw->map[both->id] = fused ? td__part(rw->to, fused, 2) : NULL;
}

/* The same three products, some rows at a time. */
static void emit_parts(td__rewriter *rw, const found *f, const td_node *n)
{
    td_attr_linear attr;
    td_node *in[] = {rw->map[n->in[0]->id], rw->map[n->in[1]->id]};
    memcpy(&attr, n->attr, sizeof attr);
    attr.rows = f->rows;
    td__rewrite_copy_as(rw, n, &attr, in, 2);
}

/* All parts of `both` that are left are its loss. */
static td_status rewrite(const td_graph *g, bool fuse, td_graph **out)
{
    td__rewriter rw;
    found f = {.both = NULL};
    bool any = false;
    TD_TRY(td__rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes && !any; i++)
        any = find(g, g->nodes[i], &f);
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&rw, i);
        bool product = any && (n == f.logits || n == f.data || n == f.weight);
        if (any && fuse && n == f.both)
            emit(&rw, &f);
        else if (any && fuse && n->op == TD_OP_PART && n->in[0] == f.both)
            rw.map[i] = rw.map[f.both->id];
        else if (product && !fuse)
            emit_parts(&rw, &f, n);
        else if (!product)
            td__rewrite_copy(&rw, n);
    }
    return td__rewrite_end(&rw, out);
}

td_status td__rewrite_classifier(const td_graph *g, td_graph **out)
{
    return rewrite(g, true, out);
}

td_status td__rewrite_classifier_parts(const td_graph *g, td_graph **out)
{
    return rewrite(g, false, out);
}
