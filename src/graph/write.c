/* write.c -- graphs as text (one line per node) and as Graphviz. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "base/fail.h"
#include "graph/graph_impl.h"

static const char *const ROOT_NAMES[] = {
    [TD_ROOT_LOSS] = "loss",
    [TD_ROOT_OUTPUT] = "output",
    [TD_ROOT_INPUT_GRAD] = "gradient of input",
    [TD_ROOT_PARAM_GRAD] = "gradient of",
    [TD_ROOT_SPARSE_GRAD] = "sparse gradient of",
    [TD_ROOT_EDGE] = "edge",
    [TD_ROOT_TRACK] = "tracked by",
};

static td_status check_written(FILE *to)
{
    return ferror(to) ? TD_FAIL(TD_EIO, "writing a graph failed") : TD_OK;
}

/* %12 = linear 'fc1' f32(64, 512) <- %3 %4 %5 @1         (at place 1; 0 is not shown) */
static void write_node(const td_node *n, FILE *to)
{
    char desc[160];
    fprintf(to, "%%%d = %s '%s'", n->id, td__op(n->op)->name, n->name);
    for (int k = 0; k < n->n_out; k++)
        fprintf(to, "%s %s", k ? "," : "", td__desc_text(&n->out[k], desc, sizeof desc));
    for (int i = 0; i < n->n_in; i++)
        fprintf(to, "%s%%%d", i ? " " : " <- ", n->in[i]->id);
    if (n->op == TD_OP_FUSED) {
        const td_attr_fused *f = n->attr;
        for (int i = 0; i < f->n_instr; i++)
            fprintf(to, "%s%s", i ? " " : "  { ", td__op((td_opcode)f->instr[i].op)->name);
        fprintf(to, " }");
    }
    if (n->place)
        fprintf(to, " @%d", n->place);
    fputc('\n', to);
}

td_status td_graph_write_text(const td_graph *g, FILE *to)
{
    for (int i = 0; i < g->n_nodes; i++)
        write_node(g->nodes[i], to);
    for (int i = 0; i < g->n_roots; i++) {
        const td__root *r = &g->roots[i];
        fprintf(to, "%s%s%s%s: %%%d\n", ROOT_NAMES[r->kind], r->leaf ? " '" : "",
                r->leaf ? r->leaf->name : "", r->leaf ? "'" : "", r->node->id);
    }
    return check_written(to);
}

/* Quotes and backslashes would end the label. */
static void write_escaped(const char *s, FILE *to)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', to);
        fputc(*s, to);
    }
}

static const char *colour(const td_node *n)
{
    switch (n->op) {
    case TD_OP_INPUT: return "lightblue";
    case TD_OP_PARAM: return "lightgoldenrod";
    case TD_OP_STATE: return "khaki";
    case TD_OP_CONSTANT: return "lightgrey";
    default: return "white";
    }
}

td_status td_graph_write_dot(const td_graph *g, FILE *to)
{
    fprintf(to, "digraph tandem {\n  node [shape=box, style=filled, fontname=Helvetica];\n");
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        char desc[160];
        fprintf(to, "  n%d [fillcolor=%s, label=\"%s\\n", n->id, colour(n), td__op(n->op)->name);
        write_escaped(n->name, to);
        fprintf(to, "\\n%s", td__desc_text(&n->out[0], desc, sizeof desc));
        if (n->place)
            fprintf(to, "\\n@%d", n->place);
        fprintf(to, "\"];\n");
        for (int k = 0; k < n->n_in; k++)
            fprintf(to, "  n%d -> n%d;\n", n->in[k]->id, n->id);
    }
    for (int i = 0; i < g->n_roots; i++) {
        const td__root *r = &g->roots[i];
        fprintf(to, "  r%d [shape=ellipse, fillcolor=palegreen, label=\"%s ", i,
                ROOT_NAMES[r->kind]);
        write_escaped(r->leaf ? r->leaf->name : "", to);
        fprintf(to, "\"];\n  n%d -> r%d;\n", r->node->id, i);
    }
    fprintf(to, "}\n");
    return check_written(to);
}
