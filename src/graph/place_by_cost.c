/* place_by_cost.c -- see place_by_cost.h.
 *
 * The cost of a node is its arithmetic and the memory that it writes. A boundary between two places
 * is looked for around the point where its share of the work is done, at the node before which the
 * fewest bytes cross: between the blocks of a model rather than inside one. Then boundaries are
 * moved one by one, as long as that makes the largest stage smaller by more than what crosses more
 * is worth: with several places a stage, even places are not even stages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/place_by_cost.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/cost.h"
#include "graph/graph_impl.h"

/* How far from its ideal point a boundary may be, in shares of a place's work. */
static const double WINDOW = 0.3;
/* What a stage may have more to do, in shares of the mean, for as many bytes less as the narrowest
 * boundary has. */
static const double BYTES_WORTH = 0.03;

typedef struct work {
    const td_graph *g;
    int n;
    bool *used;      /* does the loss depend on it, and is it no leaf? */
    double *before;  /* (n + 1) cost of all nodes before this one */
    double *crosses; /* (n + 1) bytes made before this node and read from it on */
    int *last;       /* the last node that reads this one */
    int *begins;     /* (places + 1) the node that a place begins with; n behind the last */
    double *load;    /* (places) of the stages */
} work;

/* May a place begin with it? With layers that have params; what follows one may become part of it
 * when the graph is rewritten: activations, residual sums. */
static bool may_begin(const work *w, int i)
{
    const td_node *x = w->g->nodes[i];
    for (int k = 0; w->used[i] && k < x->n_in; k++)
        if (x->in[k]->op == TD_OP_PARAM)
            return true;
    return false;
}

static double bytes_of(const td_node *x)
{
    return (double)td_shape_count(&x->out[0].shape) * (double)td_dtype_size(x->out[0].dtype);
}

static void find_used(work *w, const td_node *loss)
{
    for (int i = w->n; i-- > 0;) {
        const td_node *x = w->g->nodes[i];
        if (x == loss)
            w->used[i] = true;
        for (int k = 0; w->used[i] && k < x->n_in; k++)
            w->used[x->in[k]->id] = true;
    }
    for (int i = 0; i < w->n; i++)
        w->used[i] = w->used[i] && !td__is_leaf(w->g->nodes[i]);
}

static void add_up(work *w)
{
    for (int i = 0; i < w->n; i++) {
        w->before[i + 1] = w->before[i] + (w->used[i] ? td__node_work(w->g, i) : 0);
    }
    for (int i = 0; i < w->n; i++)
        for (int k = 0; w->used[i] && k < w->g->nodes[i]->n_in; k++)
            w->last[w->g->nodes[i]->in[k]->id] = i;
    /* A value crosses every boundary from after its node up to its last reader. */
    for (int i = 0; i < w->n; i++)
        if (w->used[i] && w->last[i] > i) {
            w->crosses[i + 1] += bytes_of(w->g->nodes[i]);
            w->crosses[w->last[i] + 1] -= bytes_of(w->g->nodes[i]);
        }
    for (int i = 1; i <= w->n; i++)
        w->crosses[i] += w->crosses[i - 1];
}

/* The node that place k begins with; `from`: that of the place before, and at least `left` nodes
 * are needed behind it. */
static int boundary(const work *w, int k, int places, int from, int left)
{
    double each = w->before[w->n] / places, ideal = k * each;
    int best = -1, count = 0;
    for (int i = w->n; i-- > from;) {
        if (!may_begin(w, i) || ++count < left || i == from)
            continue;
        double off = w->before[i] - ideal, was = best < 0 ? 0 : w->before[best] - ideal;
        bool near = off <= WINDOW * each && off >= -WINDOW * each;
        bool was_near = best >= 0 && was <= WINDOW * each && was >= -WINDOW * each;
        double distance = off < 0 ? -off : off, old = was < 0 ? -was : was;
        if (best < 0 || (near && !was_near) ||
            (near == was_near && near && w->crosses[i] < w->crosses[best]) ||
            (near == was_near && (!near || w->crosses[i] == w->crosses[best]) && distance < old))
            best = i;
    }
    return best;
}

/* The next node after i (step 1) or before it (-1) that a place may begin with; -1: none. */
static int neighbour(const work *w, int i, int step)
{
    for (i += step; i >= 0 && i < w->n; i += step)
        if (may_begin(w, i))
            return i;
    return -1;
}

/* The largest stage, and what crosses; less is better. */
static double badness(const work *w, const td__stages *to, double narrowest)
{
    double most = 0, bytes = 0;
    int stages = 0;
    for (int k = 0; k < to->places; k++)
        w->load[k] = 0;
    for (int k = 0; k < to->places; k++) {
        int s = to->stage_of ? to->stage_of(to->user, k) : k;
        w->load[s] += w->before[w->begins[k + 1]] - w->before[k ? w->begins[k] : 0];
        most = w->load[s] > most ? w->load[s] : most;
        stages = s >= stages ? s + 1 : stages;
        bytes += k ? w->crosses[w->begins[k]] : 0;
    }
    return most * stages / w->before[w->n] + (narrowest > 0 ? BYTES_WORTH * bytes / narrowest : 0);
}

static void even_out(work *w, const td__stages *to)
{
    double narrowest = 0, best;
    for (int i = neighbour(w, w->begins[0], 1); i >= 0; i = neighbour(w, i, 1))
        if (w->crosses[i] > 0 && (narrowest <= 0 || w->crosses[i] < narrowest))
            narrowest = w->crosses[i];
    best = badness(w, to, narrowest);
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 1; k < to->places; k++)
            for (int step = -1; step <= 1; step += 2) {
                int was = w->begins[k], at = neighbour(w, was, step);
                if (at <= w->begins[k - 1] || at >= w->begins[k + 1])
                    continue;
                w->begins[k] = at;
                double now = badness(w, to, narrowest);
                if (now < best) {
                    best = now;
                    moved = true;
                } else {
                    w->begins[k] = was;
                }
            }
    }
}

static td_status place(work *w, const td__stages *to)
{
    int nodes = 0, at = 0;
    for (int i = 0; i < w->n; i++)
        nodes += may_begin(w, i);
    if (nodes < to->places)
        return TD_FAIL(
            TD_EINVAL,
            "a model of %d layers with params cannot be cut into %d chunks: use fewer stages",
            nodes, to->places);
    while (!may_begin(w, at))
        at++;
    w->begins[0] = at;
    w->begins[to->places] = w->n;
    for (int k = 1; k < to->places; k++) {
        w->begins[k] = boundary(w, k, to->places, w->begins[k - 1], to->places - k);
        TD_ASSERT(w->begins[k] > w->begins[k - 1], "place %d of %d is empty", k - 1, to->places);
    }
    even_out(w, to);
    for (int k = 0; k < to->places; k++)
        for (int i = k ? w->begins[k] : 0; i < w->begins[k + 1]; i++)
            w->g->nodes[i]->place = k;
    for (int i = w->n; i-- > 0;)
        for (int k = 0; k < w->g->nodes[i]->n_in; k++)
            if (td__is_leaf(w->g->nodes[i]->in[k]))
                w->g->nodes[i]->in[k]->place = w->g->nodes[i]->place;
    return TD_OK;
}

td_status td__graph_place_by_cost(td_graph *g, const td_node *loss, const td__stages *to)
{
    work w = {.g = g, .n = g->n_nodes};
    w.used = td__calloc((size_t)w.n + 1, sizeof *w.used);
    w.before = td__calloc((size_t)w.n + 1, sizeof *w.before);
    w.crosses = td__calloc((size_t)w.n + 2, sizeof *w.crosses);
    w.last = td__calloc((size_t)w.n + 1, sizeof *w.last);
    w.begins = td__calloc((size_t)to->places + 1, sizeof *w.begins);
    w.load = td__calloc((size_t)to->places, sizeof *w.load);
    td_status st = TD_OK;
    if (!w.used || !w.before || !w.crosses || !w.last || !w.begins || !w.load) {
        st = TD_FAIL(TD_ENOMEM, "no memory to place %d nodes", w.n);
    } else {
        find_used(&w, loss);
        add_up(&w);
        st = place(&w, to);
    }
    td__free(w.used);
    td__free(w.before);
    td__free(w.crosses);
    td__free(w.last);
    td__free(w.begins);
    td__free(w.load);
    return st;
}

td_status td__graph_place_as(td_graph *g, const td_graph *model)
{
    bool same = g->n_nodes == model->n_nodes;
    for (int i = 0; same && i < g->n_nodes; i++)
        same = g->nodes[i]->op == model->nodes[i]->op;
    if (!same)
        return TD_FAIL(TD_ENOTSUP,
                       "the model has other nodes for another number of rows (%d and %d): it "
                       "cannot be cut for both alike",
                       g->n_nodes, model->n_nodes);
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->place = model->nodes[i]->place;
    return TD_OK;
}
