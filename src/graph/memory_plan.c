/* memory_plan.c -- an address for every value before anything runs.
 *
 * Inputs, constants, params and gradients have blocks of their own. All other values, the
 * activations, share one block:
 *
 *   1. A value lives from the node that makes it to the last node that reads it (to the end, if it
 *      is a root). A node's outputs and inputs are alive together.
 *   2. In place: where an operator allows it, an output takes over the memory of an input that dies
 *      there. The two become one buffer whose life is the union.
 *      An input of a node that is carried out beside others (branches.c) lives until it is done.
 *   3. Buffers are placed largest first, each at the lowest offset where no buffer lies that is
 *      alive at the same time. (Greedy by size: a few per cent from optimal on real graphs.) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/program_impl.h"
#include "graph/skyline.h"

typedef struct buffer {
    size_t nbytes, offset;
    int first, last; /* step numbers (node ids) of its life, both included */
    int value;       /* the value that it was made for: order of equal sizes */
} buffer;

typedef struct planner {
    td_program *p;
    int n_values;
    int *last;  /* by value: last reader */
    int *owner; /* by value: index in buffers, -1 where it has none */
    buffer *buffers;
    int n_buffers;
} planner;

static int value_of(const td_node *n)
{
    int k;
    const td_node *base = td__view_base(n, &k);
    return base->id * TD_MAX_OUT + k;
}

static bool is_grad_root(const td__root *r)
{
    return r->kind == TD_ROOT_PARAM_GRAD || r->kind == TD_ROOT_TRACK;
}

/* A state has one place for its new statistics, so one node alone may make them. */
static td_status check_tracks(const td_graph *g)
{
    bool *tracked = td__calloc((size_t)g->n_nodes + 1, sizeof *tracked);
    if (!tracked)
        return TD_FAIL(TD_ENOMEM, "no memory to plan %d nodes", g->n_nodes);
    td_status st = TD_OK;
    for (int i = 0; i < g->n_roots && !st; i++) {
        const td__root *r = &g->roots[i];
        if (r->kind != TD_ROOT_TRACK)
            continue;
        int k;
        char text[160];
        if (tracked[r->leaf->id])
            st = TD_FAIL(TD_ENOTSUP,
                         "td_program_create: the state '%s' %s is updated by two nodes, '%s' being "
                         "the second; give each running averages of its own",
                         r->leaf->name, td__desc_text(&r->leaf->out[0], text, sizeof text),
                         td__view_base(r->node, &k)->name);
        tracked[r->leaf->id] = true;
    }
    td__free(tracked);
    return st;
}

td_status td__own_gradients(td_graph *g)
{
    TD_TRY(check_tracks(g));
    bool *taken = td__calloc((size_t)g->n_nodes * TD_MAX_OUT + 1, sizeof *taken);
    if (!taken)
        return TD_FAIL(TD_ENOMEM, "no memory to plan %d nodes", g->n_nodes);
    int n_nodes = g->n_nodes;
    for (int i = 0; i < g->n_roots; i++) {
        td__root *r = &g->roots[i];
        if (!is_grad_root(r))
            continue;
        int k;
        const td_node *base = td__view_base(r->node, &k);
        bool own = !td__is_leaf(base) && base->id < n_nodes && !taken[base->id * TD_MAX_OUT + k] &&
                   base->out[k].layout == TD_LAYOUT_PLAIN && base->out[k].dtype == TD_F32;
        g->place = base->place;
        g->phase = TD_RUN_WEIGHT;
        if (own)
            taken[base->id * TD_MAX_OUT + k] = true;
        else
            r->node =
                TD__NODE(g, TD_OP_REORDER, &(td_attr_reorder){.to = TD_LAYOUT_PLAIN}, r->node);
    }
    td__free(taken);
    return g->status ? TD_FAIL(g->status, "%s", g->error) : TD_OK;
}

bool td__lies_in_param(const td_node *n)
{
    const td_attr_pieces *a = n->attr;
    if (n->op != TD_OP_PIECES_CUT || n->in[0]->op != TD_OP_PARAM || !a->packed)
        return false;
    for (int i = 0; i < a->n; i++) {
        int64_t begin;
        (void)td__pieces_range(a, &n->in[0]->out[0].shape, a->first + i, 1, &begin);
        if (begin % TD_ALIGN_FLOATS) /* kernels want values that begin where params may */
            return false;
    }
    return true;
}

static void place_pieces(td_program *p, const td_node *n)
{
    const td_attr_pieces *a = n->attr;
    for (int i = 0; i < a->n; i++) {
        int64_t begin;
        (void)td__pieces_range(a, &n->in[0]->out[0].shape, a->first + i, 1, &begin);
        *td__location_of(p, n, i) = *td__location_of(p, n->in[0], 0);
        td__location_of(p, n, i)->offset = (size_t)begin * sizeof(float);
    }
}

/* Values with a block of their own. */
static void place_fixed(td_program *p)
{
    const td_graph *g = p->g;
    for (int i = 0; i < p->n_slots; i++)
        *td__location_of(p, p->slots[i].leaf, 0) =
            (td__location){.space = TD_SPACE_PARAM, .slot = i};
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (td__lies_in_param(n))
            place_pieces(p, n);
        td__location *location = td__location_of(p, n, 0);
        if (n->op == TD_OP_INPUT || n->op == TD_OP_CONSTANT) {
            location->space = n->op == TD_OP_INPUT ? TD_SPACE_INPUT : TD_SPACE_CONSTANT;
            location->offset = p->space_bytes[location->space];
            p->space_bytes[location->space] += td__align_up(td__desc_bytes(&n->out[0]), TD_ALIGN);
        }
    }
    for (int i = 0; i < g->n_roots; i++) {
        const td__root *r = &g->roots[i];
        int value = value_of(r->node);
        if (is_grad_root(r)) {
            p->location[value].space = TD_SPACE_GRAD;
            p->location[value].slot = td__location_of(p, r->leaf, 0)->slot;
        }
    }
}

/* What nodes on a branch read lives until they are done. A view reads nothing: who reads the view
 * reads the value below. */
void td__value_lives(const td_program *p, int *last)
{
    const td_graph *g = p->g;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        int done = td__beside(p, n) ? td__beside(p, n) : i;
        for (int k = 0; k < n->n_in && !td__op(n->op)->is_view; k++) {
            int *reader = &last[value_of(n->in[k])];
            *reader = *reader < done ? done : *reader;
        }
        for (int k = 0; k < TD_MAX_OUT; k++)
            last[i * TD_MAX_OUT + k] = i;
    }
    for (int i = 0; i < g->n_roots; i++) {
        const td__root *r = &g->roots[i];
        last[value_of(r->node)] = g->n_nodes;
        if (r->kind == TD_ROOT_SPARSE_GRAD) /* its rows are read too */
            last[value_of(r->node) + 1] = g->n_nodes;
    }
}

/* The buffer of an input that n's output 0 may take over; -1 if there is none. */
static int inplace_owner(const planner *pl, const td_node *n)
{
    const td_op_def *def = td__op(n->op);
    for (int i = 0; i < n->n_in; i++) {
        if (!(def->inplace & (1u << i)))
            continue;
        int value = value_of(n->in[i]);
        if (pl->owner[value] < 0 || pl->last[value] != n->id ||
            td__desc_bytes(&n->in[i]->out[0]) != td__desc_bytes(&n->out[0]))
            continue;
        /* Another reader of the same buffer at this very node (another input, or a value that was
         * itself made in place) would see it change under its hands. */
        int readers = 0;
        for (int j = 0; j < n->n_in; j++)
            readers += pl->owner[value_of(n->in[j])] == pl->owner[value];
        if (readers == 1 && pl->buffers[pl->owner[value]].last == n->id)
            return pl->owner[value];
    }
    return -1;
}

static void make_buffers(planner *pl, bool no_reuse)
{
    td_program *p = pl->p;
    for (int i = 0; i < p->g->n_nodes; i++) {
        const td_node *n = p->g->nodes[i];
        if (td__is_leaf(n) || td__op(n->op)->is_view)
            continue;
        for (int k = 0; k < n->n_out; k++) {
            int value = i * TD_MAX_OUT + k;
            if (p->location[value].space != TD_SPACE_ACTIVATION)
                continue;
            size_t nbytes = td__align_up(td__desc_bytes(&n->out[k]), TD_ALIGN);
            p->activations_unshared += nbytes;
            int owner = k == 0 && !no_reuse ? inplace_owner(pl, n) : -1;
            if (owner < 0) {
                owner = pl->n_buffers++;
                pl->buffers[owner] = (buffer){.nbytes = nbytes, .first = i, .value = value};
            }
            pl->owner[value] = owner;
            if (pl->buffers[owner].last < pl->last[value])
                pl->buffers[owner].last = pl->last[value];
            if (no_reuse)
                pl->buffers[owner].last = p->g->n_nodes;
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const buffer *x = *(buffer *const *)a, *y = *(buffer *const *)b;
    if (x->nbytes != y->nbytes)
        return x->nbytes > y->nbytes ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* The lowest offset, not below `at`, where b meets none of n buffers, in order of offsets, of which
 * none is larger than `largest`. */
static size_t find_gap(const buffer *b, size_t at, buffer *const *placed, int n, size_t largest)
{
    int low = 0, high = n; /* the first that may reach beyond `at` */
    while (low < high) {
        int mid = (low + high) / 2;
        if (placed[mid]->offset + largest <= at)
            low = mid + 1;
        else
            high = mid;
    }
    for (int j = low; j < n; j++) {
        const buffer *other = placed[j];
        if (other->first > b->last || b->first > other->last)
            continue;
        if (at + b->nbytes <= other->offset)
            break;
        if (other->offset + other->nbytes > at)
            at = other->offset + other->nbytes;
    }
    return at;
}

/* Place all buffers; returns the size of the block. `order` and `placed` hold n pointers each;
 * `placed` is kept in order of offsets. */
static size_t place_buffers(buffer *buffers, int n, td__skyline *sky, buffer **order,
                            buffer **placed)
{
    size_t total = 0;
    for (int i = 0; i < n; i++)
        order[i] = &buffers[i];
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        buffer *b = order[i];
        size_t at = b->nbytes ? td__skyline_full(sky, b->first, b->last) : 0;
        if (b->nbytes && td__skyline_top(sky, b->first, b->last) > at)
            at = find_gap(b, at, placed, i, order[0]->nbytes);
        if (b->nbytes)
            td__skyline_add(sky, b->first, b->last, at, at + b->nbytes);
        b->offset = at;
        int k = i;
        for (; k > 0 && placed[k - 1]->offset > at; k--)
            placed[k] = placed[k - 1];
        placed[k] = b;
        if (at + b->nbytes > total)
            total = at + b->nbytes;
    }
    return total;
}

static td_status plan_with(planner *pl, bool no_reuse)
{
    td_program *p = pl->p;
    for (int v = 0; v < pl->n_values; v++)
        pl->owner[v] = -1;
    place_fixed(p);
    TD_TRY(td__plan_branches(p));
    td__value_lives(p, pl->last);
    make_buffers(pl, no_reuse);
    buffer **order = td__calloc((size_t)pl->n_buffers + 1, 2 * sizeof *order);
    td__skyline *sky = td__skyline_create(p->g->n_nodes + 1);
    if (order && sky)
        p->space_bytes[TD_SPACE_ACTIVATION] =
            place_buffers(pl->buffers, pl->n_buffers, sky, order, order + pl->n_buffers + 1);
    td_status st =
        order && sky ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory to plan %d buffers", pl->n_buffers);
    td__skyline_destroy(sky);
    td__free(order);
    TD_TRY(st);
    for (int v = 0; v < pl->n_values; v++)
        if (pl->owner[v] >= 0)
            p->location[v].offset = pl->buffers[pl->owner[v]].offset;
    for (int i = 0; i < p->g->n_nodes; i++)
        if (td__op(p->g->nodes[i]->op)->is_view)
            *td__location_of(p, p->g->nodes[i], 0) = p->location[value_of(p->g->nodes[i])];
    return TD_OK;
}

td_status td__plan_memory(td_program *p, bool no_reuse)
{
    size_t n = (size_t)p->g->n_nodes * TD_MAX_OUT + 1;
    planner pl = {.p = p,
                  .n_values = p->g->n_nodes * TD_MAX_OUT,
                  .last = td__calloc(n, sizeof(int)),
                  .owner = td__calloc(n, sizeof(int)),
                  .buffers = td__calloc(n, sizeof(buffer))};
    p->location = td__calloc(n, sizeof *p->location);
    td_status st = pl.last && pl.owner && pl.buffers && p->location
                       ? plan_with(&pl, no_reuse)
                       : TD_FAIL(TD_ENOMEM, "no memory to plan %d nodes", p->g->n_nodes);
    td__free(pl.last);
    td__free(pl.owner);
    td__free(pl.buffers);
    return st;
}
