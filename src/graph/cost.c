/* cost.c -- params and arithmetic of parts of a graph, from its nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/cost.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "graph/graph_impl.h"
#include "graph/program_impl.h"

/* Arithmetic that takes as long as it takes to write a byte. */
static const double FLOPS_PER_BYTE = 8;

static double count(const td_node *n)
{
    return (double)td_shape_count(&n->out[0].shape);
}

/* `products` of queries (B, T, H, D) and S keys or values each. */
static double attention_flops(const td_node *n, int products, const td_node *q, int64_t s)
{
    const td_attr_attention *a = n->attr;
    double all = 2.0 * products * count(q) * (double)s;

    return a->causal ? all / 2 : all;
}

/* Gates times (input + state), for each row and time. */
static double recurrent_flops(const td_node *n, int gates)
{
    const td_shape *x = &n->in[0]->out[0].shape, *y = &n->out[0].shape;
    double rows = (double)x->dim[0] * (double)x->dim[1], hidden = (double)y->dim[2];

    return 2.0 * gates * rows * hidden * ((double)x->dim[2] + hidden);
}

/* Of the gradients that operators with products have: as of their forward, for each of its products
 * that has one. false: n is none of these. */
static bool back_flops(const td_node *n, double *out)
{
    const td_node *a = n->in[0], *b = n->n_in > 1 ? n->in[1] : NULL;
    const td_shape *y = &n->out[0].shape;

    switch (n->op) {
    case TD_OP_LINEAR_BACK_DATA: *out = 2 * count(n) * (double)b->out[0].shape.dim[0]; break;
    case TD_OP_LINEAR_XENT: *out = 6 * count(n) * (double)b->out[0].shape.dim[0]; break;
    case TD_OP_LINEAR_BACK_WEIGHT: *out = 2 * count(a) * (double)y->dim[1]; break;
    case TD_OP_CONV2D_BACK_DATA: {
        const td_shape *w = &b->out[0].shape;
        *out = 2 * count(a) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
        break;
    }
    case TD_OP_CONV2D_BACK_WEIGHT:
        *out = 2 * count(a) * (double)(y->dim[1] * y->dim[2] * y->dim[3]);
        break;
    case TD_OP_ATTENTION_BACK:
        *out = attention_flops(n, 5, b, n->in[2]->out[0].shape.dim[1]);
        break;
    case TD_OP_ATTENTION_JOINED_BACK:
        *out = attention_flops(n, 5, a, b->out[0].shape.dim[1]);
        break;
    case TD_OP_LSTM_BACK: /* gates, w_hh */
        *out = 2 * count(n->in[2]) * (double)n->in[5]->out[0].shape.dim[1];
        break;
    case TD_OP_GRU_BACK: *out = 2 * count(n->in[1]) * (double)n->in[4]->out[0].shape.dim[1]; break;
    default: return false;
    }
    return true;
}

static double node_flops(const td_node *n)
{
    const td_shape *w = n->n_in > 1 ? &n->in[1]->out[0].shape : NULL;
    double back;

    if (td__is_leaf(n) || td__op(n->op)->is_view)
        return 0;
    if (back_flops(n, &back))
        return back;
    switch (n->op) {
    case TD_OP_LINEAR: return 2 * count(n) * (double)w->dim[1];
    case TD_OP_CONV2D: return 2 * count(n) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
    case TD_OP_MATMUL: {
        const td_attr_matmul *a = n->attr;
        const td_shape *x = &n->in[0]->out[0].shape;
        return 2 * count(n) * (double)x->dim[x->ndim - (a->ta ? 2 : 1)];
    }
    case TD_OP_ATTENTION: return attention_flops(n, 2, n->in[0], w->dim[1]);
    case TD_OP_ATTENTION_JOINED: return attention_flops(n, 2, n, n->in[0]->out[0].shape.dim[1]);
    case TD_OP_LSTM: return recurrent_flops(n, 4);
    case TD_OP_GRU: return recurrent_flops(n, 3);
    case TD_OP_EMBEDDING:
    case TD_OP_PERMUTE:
    case TD_OP_SLICE:
    case TD_OP_CONCAT:
    case TD_OP_EXPAND:
    case TD_OP_CAST: return 0;
    default: return count(n);
    }
}

td__cost td__graph_cost(const td_graph *g, int from, int to)
{
    td__cost c = {.params = 0};

    for (int i = from; i < to; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == TD_OP_PARAM)
            c.params += td_shape_count(&n->out[0].shape);
        c.flops += node_flops(n);
        for (int k = 0; k < n->n_in && n->op != TD_OP_EMBEDDING; k++)
            if (n->in[k]->op == TD_OP_PARAM)
                c.weights += count(n->in[k]);
    }
    return c;
}

double td__node_work(const td_graph *g, int node)
{
    const td_node *n = g->nodes[node];
    double bytes = count(n) * (double)td_dtype_size(n->out[0].dtype);
    return node_flops(n) + (td__op(n->op)->is_view ? 0 : FLOPS_PER_BYTE * bytes);
}

void td__program_work(const td_program *p, double work[TD_RUN_PHASE_COUNT])
{
    for (int k = 0; k < TD_RUN_PHASE_COUNT; k++)
        work[k] = 0;
    for (int i = 0; i < p->n_steps; i++)
        work[p->steps[i].node->phase] += td__node_work(p->g, p->steps[i].node->id);
}

/* The first param that n reads, NULL if it reads none. */
static const td_node *param_of(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->op == TD_OP_PARAM)
            return n->in[i];
    return NULL;
}

td_status td__graph_cut(const td_graph *g, int from, td__cost_sink sink, void *user)
{
    int start = from, head = -1; /* the node that a row is named after */
    char name[200] = "";

    for (int i = from; i <= g->n_nodes; i++) {
        const td_node *p = i < g->n_nodes ? param_of(g->nodes[i]) : NULL;
        if (i < g->n_nodes && !p)
            continue;
        /* A row ends before the params of the next one, which stand right before their reader. */
        int end = i;
        while (i < g->n_nodes && end > start && td__is_leaf(g->nodes[end - 1]))
            end--;
        if (head >= 0)
            TD_TRY(
                sink(user, name, td__op(g->nodes[head]->op)->name, g->nodes[end - 1], start, end));
        if (!p)
            break;
        const char *dot = strrchr(p->name, '.');
        snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - p->name) : 150, p->name);
        start = head >= 0 ? end : from;
        head = i;
    }
    return TD_OK;
}
