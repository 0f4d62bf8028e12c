/* names.c -- is a name taken? A hash table over the nodes of a graph, filled when it is asked, so
 * that adding a leaf costs the same in a large graph as in a small one.
 *
 * Names that change (td_named) are entered again. Old entries stay: they lead to a node that is
 * called otherwise by now, which a look-up notices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/graph_impl.h"

static uint64_t hash_of(const char *name)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a: short keys, no adversary */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

static void put(td__name_table *t, const td_node *n)
{
    size_t i = (size_t)hash_of(n->name) & (t->cap - 1);
    while (t->entry[i])
        i = (i + 1) & (t->cap - 1);
    t->entry[i] = n;
    t->used++;
}

/* Room for one more, at most half full. */
static bool grow(td__name_table *t)
{
    if (2 * (t->used + 1) <= t->cap)
        return true;
    td__name_table bigger = {.cap = t->cap ? 2 * t->cap : 128, .n_nodes = t->n_nodes};
    bigger.entry = td__calloc(bigger.cap, sizeof(const td_node *));
    if (!bigger.entry)
        return false;
    for (size_t i = 0; i < t->cap; i++)
        if (t->entry[i])
            put(&bigger, t->entry[i]);
    td__free(t->entry);
    *t = bigger;
    return true;
}

td_status td__graph_name_taken(td_graph *g, const char *name, bool *taken)
{
    td__name_table *t = &g->names;
    *taken = false;
    for (; t->n_nodes < g->n_nodes; t->n_nodes++) {
        if (!grow(t))
            return TD_FAIL(TD_ENOMEM, "no memory for the names of %d nodes", g->n_nodes);
        put(t, g->nodes[t->n_nodes]);
    }
    for (size_t i = t->cap ? (size_t)hash_of(name) & (t->cap - 1) : 0; t->cap && t->entry[i];
         i = (i + 1) & (t->cap - 1))
        if (strcmp(t->entry[i]->name, name) == 0) {
            *taken = true;
            break;
        }
    return TD_OK;
}

td_status td__graph_renamed(td_graph *g, const td_node *n)
{
    if (n->id >= g->names.n_nodes) /* not entered yet */
        return TD_OK;
    if (!grow(&g->names))
        return TD_FAIL(TD_ENOMEM, "no memory for the names of %d nodes", g->n_nodes);
    put(&g->names, n);
    return TD_OK;
}
