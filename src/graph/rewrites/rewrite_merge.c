/* rewrite_merge.c -- common subexpressions: of two nodes with the same operator, attributes and
 * inputs, the later one becomes the earlier one. Found through a hash table over the new graph. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

typedef struct table {
    td_node **entry; /* open addressing; a power of two of them */
    size_t mask;
} table;

static uint64_t mix(uint64_t h, const void *data, size_t nbytes)
{
    const unsigned char *p = data; /* FNV-1a: short keys, no adversary */
    for (size_t i = 0; i < nbytes; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static uint64_t hash_of(td_opcode op, const void *attr, td_node *const *in, int n_in)
{
    uint64_t h = mix(14695981039346656037u, &op, sizeof op);
    h = mix(h, attr, td__op(op)->attr_size);
    for (int i = 0; i < n_in; i++)
        h = mix(h, &in[i]->id, sizeof in[i]->id);
    return h;
}

static bool same(const td_node *n, td_opcode op, const void *attr, td_node *const *in, int n_in)
{
    size_t attr_size = td__op(op)->attr_size;
    return n->op == op && n->n_in == n_in &&
           (attr_size == 0 || memcmp(n->attr, attr, attr_size) == 0) &&
           (n_in == 0 || memcmp(n->in, in, (size_t)n_in * sizeof *in) == 0);
}

/* The entry of an equal node, or the free one where it belongs. */
static td_node **look_up(table *t, const td_node *old, td_node *const *in)
{
    size_t i = (size_t)hash_of(old->op, old->attr, in, old->n_in) & t->mask;
    while (t->entry[i] && !same(t->entry[i], old->op, old->attr, in, old->n_in))
        i = (i + 1) & t->mask;
    return &t->entry[i];
}

static void merge(td__rewriter *rw, table *t, const td_node *old)
{
    if (td__is_leaf(old) || td__op(old->op)->random) {
        td__rewrite_copy(rw, old);
        return;
    }
    td_node *in[TD_MAX_IN];
    for (int i = 0; i < old->n_in; i++)
        in[i] = rw->map[old->in[i]->id];
    td_node **entry = look_up(t, old, in);
    if (*entry)
        rw->map[old->id] = *entry;
    else
        *entry = td__rewrite_copy(rw, old);
}

td_status td__rewrite_merge(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    size_t size = 64;
    while (size < 2 * (size_t)g->n_nodes)
        size *= 2;
    table t = {.entry = td__calloc(size, sizeof(td_node *)), .mask = size - 1};
    if (!t.entry)
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to merge equal nodes");
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++)
        merge(&rw, &t, td__rewrite_visit(&rw, i));
    td__free(t.entry);
    return td__rewrite_end(&rw, out);
}
