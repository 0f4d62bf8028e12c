/* rewrite_epilogue.c -- activations and residual sums into the node that makes their input.
 *
 *     relu(linear(x))             -> linear(x; act relu)        also gelu, gelu_tanh
 *     relu(conv2d(x))             -> conv2d(x; act relu)
 *     relu(batch_norm(x))         -> batch_norm(x; act relu)
 *     relu(batch_norm(x) + r)     -> batch_norm(x, residual r; act relu)
 *
 * Runs before autodiff: the fused operators have gradients of their own. A producer is taken only
 * if the activation is the sole reader of its output 0. The fused node stands where the activation
 * stood; statistics of a batch norm (parts, read by tracks alone) follow it there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

typedef struct fusion {
    int producer; /* id of the linear, conv2d or batch_norm; -1: none ends at this node */
    int sum;      /* id of the add between, or -1 */
} fusion;

typedef struct finder {
    const td_graph *g;
    int *readers; /* by id: readers of output 0 */
    bool *open;   /* by id: a part of it has readers besides roots */
    fusion *ends; /* by id of the activation */
    bool *gone;   /* by id: absorbed into a later node */
} finder;

static td_act act_of(td_opcode op)
{
    switch (op) {
    case TD_OP_RELU: return TD_ACT_RELU;
    case TD_OP_GELU: return TD_ACT_GELU;
    case TD_OP_GELU_TANH: return TD_ACT_GELU_TANH;
    default: return TD_ACT_NONE;
    }
}

static bool takes(const finder *f, const td_node *n, td_act act)
{
    if (f->readers[n->id] != 1 || f->gone[n->id])
        return false;
    switch (n->op) {
    case TD_OP_LINEAR: return ((const td_attr_linear *)n->attr)->act == TD_ACT_NONE;
    case TD_OP_CONV2D:
        return act == TD_ACT_RELU && ((const td_attr_conv2d *)n->attr)->act == TD_ACT_NONE;
    case TD_OP_BATCH_NORM:
    case TD_OP_BATCH_NORM_EVAL: {
        const td_attr_norm *a = n->attr;
        return act == TD_ACT_RELU && a->act == TD_ACT_NONE && !a->has_residual && !f->open[n->id];
    }
    default: return false;
    }
}

/* A batch norm whose residual has its place, behind the running averages. */
static bool takes_residual(const td_node *n)
{
    return (n->op == TD_OP_BATCH_NORM || n->op == TD_OP_BATCH_NORM_EVAL) &&
           ((const td_attr_norm *)n->attr)->has_running;
}

static void find(finder *f)
{
    for (int i = 0; i < f->g->n_nodes; i++) {
        const td_node *n = f->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            const td_node *in = n->in[k];
            if (n->op != TD_OP_PART)
                f->readers[in->id]++;
            if (in->op == TD_OP_PART)
                f->open[in->in[0]->id] = true;
        }
    }
    for (int i = 0; i < f->g->n_roots; i++)
        f->readers[f->g->roots[i].node->id]++;
    for (int i = 0; i < f->g->n_nodes; i++) {
        const td_node *n = f->g->nodes[i];
        td_act act = act_of(n->op);
        f->ends[i] = (fusion){-1, -1};
        if (act == TD_ACT_NONE)
            continue;
        const td_node *in = n->in[0];
        if (takes(f, in, act)) {
            f->ends[i].producer = in->id;
        } else if (in->op == TD_OP_ADD && f->readers[in->id] == 1 &&
                   td_shape_equal(&in->in[0]->out[0].shape, &in->in[1]->out[0].shape)) {
            for (int k = 1; k >= 0 && f->ends[i].producer < 0; k--)
                if (takes_residual(in->in[k]) && in->in[0] != in->in[1] && takes(f, in->in[k], act))
                    f->ends[i] = (fusion){in->in[k]->id, in->id};
        }
        if (f->ends[i].producer >= 0)
            f->gone[f->ends[i].producer] = true;
        if (f->ends[i].sum >= 0)
            f->gone[f->ends[i].sum] = true;
    }
}

/* The fused node, in place of the activation `end`. */
static void emit(td__rewriter *rw, const finder *f, const td_node *end)
{
    const td_node *producer = f->g->nodes[f->ends[end->id].producer];
    td_act act = act_of(end->op);
    td_node *in[TD_MAX_IN];
    int n_in = producer->n_in;
    for (int i = 0; i < n_in; i++)
        in[i] = rw->map[producer->in[i]->id];
    union {
        td_attr_linear linear;
        td_attr_conv2d conv;
        td_attr_norm norm;
    } attr;
    memcpy(&attr, producer->attr, td__op(producer->op)->attr_size);
    if (producer->op == TD_OP_LINEAR)
        attr.linear.act = act;
    else if (producer->op == TD_OP_CONV2D)
        attr.conv.act = act;
    else
        attr.norm.act = act;
    if (f->ends[end->id].sum >= 0) {
        const td_node *sum = f->g->nodes[f->ends[end->id].sum];
        attr.norm.has_residual = true;
        in[n_in++] = rw->map[sum->in[sum->in[0] == producer ? 1 : 0]->id];
    }
    td_node *fused = td__rewrite_copy_as(rw, producer, &attr, in, n_in);
    rw->map[end->id] = fused;
    for (int i = producer->id + 1; i < f->g->n_nodes && fused; i++)
        if (f->g->nodes[i]->op == TD_OP_PART && f->g->nodes[i]->in[0] == producer)
            td__rewrite_copy(rw, f->g->nodes[i]);
}

static void rewrite(td__rewriter *rw, const finder *f)
{
    for (int i = 0; i < f->g->n_nodes && !rw->to->status; i++) {
        const td_node *n = td__rewrite_visit(rw, i);
        bool part_of_gone = n->op == TD_OP_PART && f->gone[n->in[0]->id];
        if (f->ends[i].producer >= 0)
            emit(rw, f, n);
        else if (!f->gone[i] && !part_of_gone)
            td__rewrite_copy(rw, n);
    }
}

td_status td__rewrite_epilogue(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    size_t n = (size_t)g->n_nodes + 1;
    finder f = {.g = g,
                .readers = td__calloc(n, sizeof(int)),
                .open = td__calloc(n, sizeof(bool)),
                .ends = td__calloc(n, sizeof(fusion)),
                .gone = td__calloc(n, sizeof(bool))};
    if (f.readers && f.open && f.ends && f.gone) {
        find(&f);
        rewrite(&rw, &f);
    } else {
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to fuse epilogues");
    }
    td__free(f.readers);
    td__free(f.open);
    td__free(f.ends);
    td__free(f.gone);
    return td__rewrite_end(&rw, out);
}
