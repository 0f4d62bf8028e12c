/* rewrite_elementwise.c -- trees of elementwise operators into one `fused` node, so that a chain
 * reads its inputs once and writes its result once.
 *
 * A group grows from its last node (the one whose result leaves it) towards the inputs: a node
 * joins if it is elementwise, has the same shape and layout, and all its readers are in the group
 * already. So only one value leaves the group, and fusing can never close a cycle. Inside, values
 * are f32 whatever their types were; the last one is rounded once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

typedef struct fuser {
    td__rewriter rw;
    int *uses;    /* by old id: readers, roots included */
    int *group;   /* by old id: id of the last node of its group; itself if it leaves; -1: none */
    int *next;    /* by old id: the next node of its group, in order */
    int *first;   /* by id of the last node: the first one */
    int *pending; /* by old id, scratch: readers inside the group that is growing */
} fuser;

/* What the growing group reads and might still take in, latest first: a reader is always looked at
 * before what it reads. */
typedef struct frontier {
    int id[3 * TD_FUSED_MAX_INSTR]; /* falling */
    int n;
} frontier;

/* Can this node be an instruction? Single f32 or bf16 results from operands of those types. */
static bool is_fusable(const td_node *n)
{
    const td_op_def *def = td__op(n->op);
    bool cast = n->op == TD_OP_CAST;
    if ((!def->scalar && !cast) || n->n_in > 3)
        return false;
    if (n->out[0].dtype != TD_F32 && n->out[0].dtype != TD_BF16)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->out[0].dtype != TD_F32 && n->in[i]->out[0].dtype != TD_BF16)
            return false;
    return true;
}

/* A cast to a narrower type rounds, which nothing inside a group does: it can only end one. */
static bool rounds(const td_node *n)
{
    return n->op == TD_OP_CAST && n->out[0].dtype == TD_BF16 && n->in[0]->out[0].dtype == TD_F32;
}

static bool same_place(const td_node *a, const td_node *b)
{
    return td_shape_equal(&a->out[0].shape, &b->out[0].shape) &&
           a->out[0].layout == b->out[0].layout;
}

/* Distinct values that the group `last` reads from outside if `extra` joined it. */
static int count_inputs(const fuser *f, int last, int extra)
{
    const td_graph *g = f->rw.from;
    const td_node *seen[TD_FUSED_MAX_IN + 1];
    int n = 0;
    for (int i = extra; n <= TD_FUSED_MAX_IN; i = i == extra ? f->first[last] : f->next[i]) {
        for (int k = 0; k < g->nodes[i]->n_in && n <= TD_FUSED_MAX_IN; k++) {
            const td_node *in = g->nodes[i]->in[k];
            if (f->group[in->id] == last || in->id == extra)
                continue;
            int j = 0;
            while (j < n && seen[j] != in)
                j++;
            if (j == n)
                seen[n++] = in;
        }
        if (i == last)
            break;
    }
    return n;
}

static void read_by_group(fuser *f, frontier *at, const td_node *n)
{
    for (int k = 0; k < n->n_in; k++) {
        int id = n->in[k]->id, i = at->n;
        if (f->pending[id]++)
            continue;
        for (at->n++; i > 0 && at->id[i - 1] < id; i--)
            at->id[i] = at->id[i - 1];
        at->id[i] = id;
    }
}

static void grow(fuser *f, int last)
{
    const td_graph *g = f->rw.from;
    frontier at = {.n = 0};
    int size = 1;
    f->group[last] = f->first[last] = last;
    read_by_group(f, &at, g->nodes[last]);
    for (int k = 0; k < at.n; k++) { /* grows: what joins is read before the rest */
        int i = at.id[k];
        const td_node *n = g->nodes[i];
        if (size == TD_FUSED_MAX_INSTR || f->pending[i] != f->uses[i] || f->group[i] >= 0 ||
            !is_fusable(n) || rounds(n) || !same_place(n, g->nodes[last]) ||
            count_inputs(f, last, i) > TD_FUSED_MAX_IN)
            continue;
        f->group[i] = last;
        f->next[i] = f->first[last];
        f->first[last] = i;
        size++;
        read_by_group(f, &at, n);
    }
    for (int k = 0; k < at.n; k++)
        f->pending[at.id[k]] = 0;
    if (size == 1)
        f->group[last] = -1;
}

/* Operator attributes as numbers, the way instructions carry them. */
static void numbers_of(const td_node *n, double num[2])
{
    size_t size = td__op(n->op)->attr_size;
    num[0] = num[1] = 0;
    if (n->op != TD_OP_CAST)
        memcpy(num, n->attr ? n->attr : num, size <= 2 * sizeof(double) ? size : 0);
}

/* Operand number of `n` in the program being made. */
static int operand(const fuser *f, const td_node *n, int last, const int *instr_of, td_node **in,
                   int *n_in)
{
    if (f->group[n->id] == last)
        return -1 - instr_of[n->id]; /* fixed up when the number of inputs is known */
    td_node *mapped = f->rw.map[n->id];
    for (int i = 0; i < *n_in; i++)
        if (in[i] == mapped)
            return i;
    in[*n_in] = mapped;
    return (*n_in)++;
}

static void emit(fuser *f, const td_node *end, int *instr_of)
{
    td_attr_fused attr;
    td_node *in[TD_FUSED_MAX_IN + 3];
    int n_in = 0;
    memset(&attr, 0, sizeof attr);
    for (int i = f->first[end->id], more = 1; more; i = f->next[i]) {
        const td_node *n = f->rw.from->nodes[i];
        more = i != end->id;
        if (n->op == TD_OP_CAST) { /* values have no type inside: a cast is its operand */
            int src = operand(f, n->in[0], end->id, instr_of, in, &n_in);
            td_fused_instr *copy = &attr.instr[attr.n_instr];
            *copy = (td_fused_instr){.op = TD_OP_AFFINE, .src = {src, 0, 0}, .attr = {1, 0}};
        } else {
            td_fused_instr *instr = &attr.instr[attr.n_instr];
            instr->op = (int)n->op;
            for (int k = 0; k < n->n_in; k++)
                instr->src[k] = operand(f, n->in[k], end->id, instr_of, in, &n_in);
            numbers_of(n, instr->attr);
        }
        instr_of[i] = attr.n_instr++;
    }
    for (int i = 0; i < attr.n_instr; i++)
        for (int k = 0; k < 3; k++)
            if (attr.instr[i].src[k] < 0)
                attr.instr[i].src[k] = n_in + (-1 - attr.instr[i].src[k]);
    attr.n_out = 1;
    attr.result[0] = n_in + instr_of[end->id];
    attr.dtype[0] = end->out[0].dtype;
    f->rw.map[end->id] = td__node_named(f->rw.to, TD_OP_FUSED, &attr, in, n_in, end->name);
}

static void fuse_all(fuser *f)
{
    const td_graph *g = f->rw.from;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (f->group[i] < 0 && is_fusable(g->nodes[i]))
            grow(f, i);
    int *instr_of = f->pending; /* all zero again, and no longer needed */
    for (int i = 0; i < g->n_nodes && !f->rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&f->rw, i);
        if (f->group[i] < 0)
            td__rewrite_copy(&f->rw, n);
        else if (f->group[i] == i)
            emit(f, n, instr_of);
    }
}

td_status td__rewrite_elementwise(const td_graph *g, td_graph **out)
{
    size_t n = (size_t)g->n_nodes + 1;
    fuser f = {.uses = td__use_counts(g),
               .group = td__calloc(n, sizeof(int)),
               .next = td__calloc(n, sizeof(int)),
               .first = td__calloc(n, sizeof(int)),
               .pending = td__calloc(n, sizeof(int))};
    td_status st = td__rewrite_begin(&f.rw, g);
    if (!st && f.uses && f.group && f.next && f.first && f.pending) {
        for (int i = 0; i < g->n_nodes; i++)
            f.group[i] = -1;
        fuse_all(&f);
    } else if (!st) {
        td__graph_fail(f.rw.to, TD_ENOMEM, "td_graph", "no memory to fuse elementwise operators");
    }
    td__free(f.uses);
    td__free(f.group);
    td__free(f.next);
    td__free(f.first);
    td__free(f.pending);
    return st ? st : td__rewrite_end(&f.rw, out);
}
