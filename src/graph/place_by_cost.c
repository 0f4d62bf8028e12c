/* place_by_cost.c -- see place_by_cost.h.
 *
 * The cost of a node is its arithmetic and the memory that it writes. What is looked for are the
 * boundaries with which the largest stage is small and few bytes cross, and no stage takes more
 * memory than the mean and a layer, unless that made a stage much larger. A first answer is found
 * around the points where the shares of the work are done: the node before which the fewest bytes
 * cross, and from there by moving boundaries one by one. Then a table over places and nodes has the
 * best ways to cut what is in front of a node into so many places: all that are not worse than
 * another in both, work of the largest place and bytes. Where each place is a stage no cut is
 * better than the table's; else boundaries are moved from there, too: even places are not even
 * stages. The first answer stays unless another is better.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/place_by_cost.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/cost.h"
#include "graph/graph_impl.h"

/* How far from its ideal point a boundary may be, in shares of a place's work. */
static const double WINDOW = 0.3;
/* What a stage may have more to do, in shares of the mean, for as many bytes less as the narrowest
 * boundary has. */
static const double BYTES_WORTH = 0.03;
/* What a stage may have more to do, in shares of the mean, so that none is above the bound of
 * memory. */
static const double MEMORY_WORTH = 0.1;
/* Bytes of a byte of params: with the gradient and two states of an optimizer. */
static const double PARAM_BYTES = 4;

typedef struct work {
    const td_graph *g;
    int n;
    bool *used;      /* does the loss depend on it, and is it no leaf? */
    double *before;  /* (n + 1) cost of all nodes before this one */
    double *crosses; /* (n + 1) bytes made before this node and read from it on */
    int *last;       /* the last node that reads this one */
    int *begins;     /* (places + 1) the node that a place begins with; n behind the last */
    double *load;    /* (places) of the stages */
    double *params;  /* (n + 1) bytes of params that are first read before this node */
    double *acts;    /* (n + 1) bytes made before this node */
    double *memory;  /* (places) of the stages */
    int stages;
    bool alone;       /* each place is a stage */
    double narrowest; /* bytes of the narrowest boundary; 0: none crosses anything */
    double bound;     /* bytes of a stage */
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
        bool read = false; /* params count where they are read first */
        w->before[i + 1] = w->before[i] + (w->used[i] ? td__node_work(w->g, i) : 0);
        w->acts[i + 1] = w->acts[i] + (w->used[i] ? bytes_of(w->g->nodes[i]) : 0);
        w->params[i + 1] = w->params[i];
        for (int k = 0; w->used[i] && k < w->g->nodes[i]->n_in; k++) {
            const td_node *x = w->g->nodes[i]->in[k];
            read = x->op != TD_OP_PARAM || w->last[x->id];
            w->params[i + 1] += read ? 0 : bytes_of(x);
            w->last[x->id] = i;
        }
    }
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

static int stage_of(const td__stages *to, int place)
{
    return to->stage_of ? to->stage_of(to->user, place) : place;
}

/* Bytes of nodes [from, to) on a stage, with the micro-batches that 1f1b has under way there; with
 * several places all stages have about as many. */
static double bytes_on(const work *w, int stage, int from, int to)
{
    return PARAM_BYTES * (w->params[to] - w->params[from]) +
           (w->alone ? w->stages - stage : w->stages) * (w->acts[to] - w->acts[from]);
}

static int begin_of(const work *w, int place)
{
    return place ? w->begins[place] : 0;
}

/* The largest stage, what crosses, and memory above the bound; less is better. */
static double badness(const work *w, const td__stages *to)
{
    double most = 0, bytes = 0, memory = 0;
    for (int k = 0; k < to->places; k++)
        w->load[k] = w->memory[k] = 0;
    for (int k = 0; k < to->places; k++) {
        int s = stage_of(to, k), begin = begin_of(w, k), end = w->begins[k + 1];
        w->load[s] += w->before[end] - w->before[begin];
        w->memory[s] += bytes_on(w, s, begin, end);
        most = w->load[s] > most ? w->load[s] : most;
        memory = w->memory[s] > memory ? w->memory[s] : memory;
        bytes += k ? w->crosses[begin] : 0;
    }
    return most * w->stages / w->before[w->n] +
           (w->narrowest > 0 ? BYTES_WORTH * bytes / w->narrowest : 0) +
           (memory > w->bound ? MEMORY_WORTH : 0);
}

/* The mean of the stages, and the layer that takes most: a cut that keeps to it is there. */
static void find_bounds(work *w, const td__stages *to)
{
    double largest = 0;
    int last = w->begins[0];
    w->alone = true;
    for (int k = 0; k < to->places; k++) {
        w->stages = stage_of(to, k) >= w->stages ? stage_of(to, k) + 1 : w->stages;
        w->alone = w->alone && stage_of(to, k) == k;
    }
    for (int i = neighbour(w, last, 1);; last = i, i = neighbour(w, i, 1)) {
        int end = i < 0 ? w->n : i;
        double bytes = bytes_on(w, 0, last, end);
        largest = bytes > largest ? bytes : largest;
        if (i < 0)
            break;
        if (w->crosses[i] > 0 && (w->narrowest <= 0 || w->crosses[i] < w->narrowest))
            w->narrowest = w->crosses[i];
    }
    double under_way = w->alone ? (w->stages + 1) / 2.0 : w->stages;
    w->bound = largest + (PARAM_BYTES * w->params[w->n] + under_way * w->acts[w->n]) / w->stages;
}

static void even_out(work *w, const td__stages *to)
{
    double best = badness(w, to);
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 1; k < to->places; k++)
            for (int step = -1; step <= 1; step += 2) {
                int was = w->begins[k], at = neighbour(w, was, step);
                if (at <= w->begins[k - 1] || at >= w->begins[k + 1])
                    continue;
                w->begins[k] = at;
                double now = badness(w, to);
                if (now < best) {
                    best = now;
                    moved = true;
                } else {
                    w->begins[k] = was;
                }
            }
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

enum { KEPT = 8 }; /* ways to cut the same nodes: few are neither larger nor wider than another */

typedef struct way {
    double most, bytes;
    int from,
        of; /* the place begins with layer `from`, and what is in front of it is its way `of` */
} way;

typedef struct table {
    const work *w;
    const td__stages *to;
    int *layer; /* (n + 1) nodes that a place may begin with; the end */
    int n;
    way *ways;    /* (places + 1, n + 1, KEPT) */
    int *count;   /* (places + 1, n + 1) */
    double limit; /* what is not better is of no use */
    bool bounded; /* no stage is above the bound of memory */
} table;

static double worth(const table *t, const way *x)
{
    double all = t->w->before[t->w->n];
    return x->most * t->to->places / all +
           (t->w->narrowest > 0 ? BYTES_WORTH * x->bytes / t->w->narrowest : 0);
}

static void keep(const table *t, size_t cell, const way *x)
{
    way *ways = t->ways + cell * KEPT;
    int *n = &t->count[cell], worst = 0;
    if (worth(t, x) >= t->limit)
        return;
    for (int i = 0; i < *n; i++)
        if (ways[i].most <= x->most && ways[i].bytes <= x->bytes)
            return;
    for (int i = 0; i < *n;)
        if (x->most <= ways[i].most && x->bytes <= ways[i].bytes)
            ways[i] = ways[--*n];
        else
            i++;
    if (*n < KEPT) {
        ways[(*n)++] = *x;
        return;
    }
    for (int i = 1; i < KEPT; i++)
        worst = worth(t, &ways[i]) > worth(t, &ways[worst]) ? i : worst;
    if (worth(t, x) < worth(t, &ways[worst]))
        ways[worst] = *x;
}

static size_t cell_of(const table *t, int places, int layer)
{
    return (size_t)places * (size_t)(t->n + 1) + (size_t)layer;
}

/* The layers [from, to) as place k - 1, behind every way to cut what is in front of them. */
static bool extend(const table *t, int k, int from, int to)
{
    const work *w = t->w;
    int begin = from ? t->layer[from] : 0;
    double load = w->before[t->layer[to]] - w->before[begin];
    size_t before = cell_of(t, k - 1, from);
    if (load * t->to->places / w->before[w->n] >= t->limit)
        return false; /* nor does any that begins earlier */
    if (t->bounded && bytes_on(w, k - 1, begin, t->layer[to]) > w->bound)
        return false;
    for (int i = 0; i < t->count[before]; i++) {
        const way *x = &t->ways[before * KEPT + (size_t)i];
        keep(t, cell_of(t, k, to),
             &(way){.most = load > x->most ? load : x->most,
                    .bytes = x->bytes + (from ? w->crosses[begin] : 0),
                    .from = from,
                    .of = i});
    }
    return true;
}

/* Into w->begins; false: nothing is better than the limit. */
static bool fill(const table *t, work *w)
{
    int places = t->to->places, best = 0, at = t->n;
    t->count[0] = 1;
    t->ways[0] = (way){.most = 0};
    for (int k = 1; k <= places; k++)
        for (int to = k == places ? t->n : k; to <= t->n - (places - k); to++)
            for (int from = to - 1; from >= k - 1 && extend(t, k, from, to); from--)
                continue;
    size_t end = cell_of(t, places, t->n);
    if (!t->count[end])
        return false;
    for (int i = 1; i < t->count[end]; i++)
        if (worth(t, &t->ways[end * KEPT + (size_t)i]) <
            worth(t, &t->ways[end * KEPT + (size_t)best]))
            best = i;
    for (int k = places; k > 0; k--) {
        const way *x = &t->ways[cell_of(t, k, at) * KEPT + (size_t)best];
        at = x->from;
        best = x->of;
        w->begins[k - 1] = t->layer[at];
    }
    return true;
}

/* The cut by the table, if it is better than that of w->begins, which is otherwise kept in
 * `first`. */
static void improve(const table *t, work *w, int *first)
{
    size_t nbytes = ((size_t)t->to->places + 1) * sizeof *first;
    double was = badness(w, t->to);
    memcpy(first, w->begins, nbytes);
    memset(t->count, 0, cell_of(t, t->to->places + 1, 0) * sizeof *t->count);
    if (!fill(t, w))
        return;
    even_out(w, t->to);
    if (badness(w, t->to) >= was * (1 - 1e-9))
        memcpy(w->begins, first, nbytes);
}

/* A better cut than that of w->begins, if there is one. */
static td_status by_table(work *w, const td__stages *to)
{
    enum { MOST = 1 << 22, LAYERS = 2048 }; /* ways; models of more layers do without */
    table t = {.w = w, .to = to};
    for (int i = w->begins[0]; i >= 0; i = neighbour(w, i, 1))
        t.n++;
    size_t cells = cell_of(&t, to->places + 1, 0);
    if (cells * KEPT > MOST || t.n > LAYERS)
        return TD_OK;
    t.layer = td__calloc((size_t)t.n + 1, sizeof *t.layer);
    t.ways = td__calloc(cells * KEPT, sizeof *t.ways);
    t.count = td__calloc(cells, sizeof *t.count);
    int *first = td__calloc((size_t)to->places + 1, sizeof *first), n = 0;
    td_status st = t.layer && t.ways && t.count && first
                       ? TD_OK
                       : TD_FAIL(TD_ENOMEM, "no memory to place %d nodes", w->n);
    for (int i = w->begins[0]; !st && i >= 0; i = neighbour(w, i, 1))
        t.layer[n++] = i;
    if (!st)
        t.layer[n] = w->n;
    for (int bounded = 0; !st && bounded <= w->alone; bounded++) {
        t.bounded = bounded;
        /* With several places a stage, places that are even enough are a beginning. */
        t.limit = w->alone ? badness(w, to) : 4;
        improve(&t, w, first);
    }
    td__free(t.layer);
    td__free(t.ways);
    td__free(t.count);
    td__free(first);
    return st;
}

/* ---- Placing --------------------------------------------------------------------------------- */

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
    find_bounds(w, to);
    even_out(w, to);
    TD_TRY(by_table(w, to));
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
    w.memory = td__calloc((size_t)to->places, sizeof *w.memory);
    w.params = td__calloc((size_t)w.n + 1, sizeof *w.params);
    w.acts = td__calloc((size_t)w.n + 1, sizeof *w.acts);
    td_status st = TD_OK;
    if (!w.used || !w.before || !w.crosses || !w.last || !w.begins || !w.load || !w.memory ||
        !w.params || !w.acts) {
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
    td__free(w.memory);
    td__free(w.params);
    td__free(w.acts);
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
